#include "rpc/streams/payload_message.h"

namespace leeway {
namespace {

// Smaller ones are copied: a system call's vector of many small pieces costs more.
constexpr uint64_t kPointedAt = 16 << 10;

// Of a field of bytes or a message.
void AppendTag(uint32_t field, std::string* bytes) { bytes->push_back(static_cast<char>(field << 3 | 2)); }

void AppendVarint(uint64_t value, std::string* bytes) {
  for (; value >= 0x80; value >>= 7) bytes->push_back(static_cast<char>(value | 0x80));
  bytes->push_back(static_cast<char>(value));
}

uint64_t VarintSize(uint64_t value) {
  uint64_t size = 1;
  for (; value >= 0x80; value >>= 7) ++size;
  return size;
}

}  // namespace

uint64_t PayloadMessage::size_bytes() const {
  uint64_t size = 0;
  for (const Piece& piece : pieces_) size += piece.bytes().size();
  return size;
}

std::string PayloadMessage::ToString() const {
  std::string bytes;
  bytes.reserve(size_bytes());
  for (const Piece& piece : pieces_) bytes.append(piece.bytes().data(), piece.bytes().size());
  return bytes;
}

std::string* PayloadMessage::Text() {
  if (pieces_.empty() || pieces_.back().owner != nullptr) pieces_.emplace_back();
  return &pieces_.back().text;
}

void PayloadMessage::AddFields(const google::protobuf::MessageLite& fields) { fields.AppendToString(Text()); }

void PayloadMessage::AddElement(uint32_t field, const google::protobuf::MessageLite& head, uint32_t data_field,
                                const Payload& payload, uint64_t offset, uint64_t size) {
  std::string* const text = Text();
  AppendTag(field, text);
  AppendVarint(head.ByteSizeLong() + 1 + VarintSize(size) + size, text);
  head.AppendToString(text);
  AppendTag(data_field, text);
  AppendVarint(size, text);
  const absl::string_view data = absl::string_view(*payload).substr(offset, size);
  if (size < kPointedAt) {
    text->append(data.data(), data.size());
  } else {
    pieces_.push_back({.text = {}, .view = data, .owner = payload});
  }
}

}  // namespace leeway
