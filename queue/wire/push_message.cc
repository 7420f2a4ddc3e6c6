#include "queue/wire/push_message.h"

#include <utility>

namespace leeway {
namespace {

// Smaller ones are copied: a system call's vector of many small pieces costs more.
constexpr uint64_t kPointedAt = 16 << 10;

void AppendVarint(uint64_t value, std::string* bytes) {
  for (; value >= 0x80; value >>= 7) bytes->push_back(static_cast<char>(value | 0x80));
  bytes->push_back(static_cast<char>(value));
}

uint64_t VarintSize(uint64_t value) {
  uint64_t size = 1;
  for (; value >= 0x80; value >>= 7) ++size;
  return size;
}

// The wire's tags: field number and type.
constexpr char kIdentity = 1 << 3 | 2;
constexpr char kChunks = 2 << 3 | 2;
constexpr char kSequence = 1 << 3 | 0;
constexpr char kTotalBytes = 2 << 3 | 0;
constexpr char kData = 3 << 3 | 2;
constexpr char kLast = 4 << 3 | 0;

}  // namespace

void PushMessage::Clear() { pieces_.clear(); }

uint64_t PushMessage::size_bytes() const {
  uint64_t size = 0;
  for (const Piece& piece : pieces_) size += piece.bytes().size();
  return size;
}

std::string* PushMessage::Text() {
  if (pieces_.empty() || pieces_.back().owner != nullptr) pieces_.emplace_back();
  return &pieces_.back().text;
}

void PushMessage::SetIdentity(const v1::WorkerIdentity& identity) {
  std::string* const text = Text();
  text->push_back(kIdentity);
  AppendVarint(identity.ByteSizeLong(), text);
  identity.AppendToString(text);
}

void PushMessage::AddChunk(uint64_t sequence, const Payload& payload, uint64_t offset, uint64_t size) {
  const bool is_last = offset + size == payload->size();
  std::string* text = Text();
  text->push_back(kChunks);
  AppendVarint(1 + VarintSize(sequence) + 1 + VarintSize(payload->size()) + 1 + VarintSize(size) + size + 2 * is_last,
               text);
  text->push_back(kSequence);
  AppendVarint(sequence, text);
  text->push_back(kTotalBytes);
  AppendVarint(payload->size(), text);
  if (is_last) {
    text->push_back(kLast);
    text->push_back(1);
  }
  text->push_back(kData);
  AppendVarint(size, text);
  const absl::string_view data = absl::string_view(*payload).substr(offset, size);
  if (size < kPointedAt) {
    text->append(data.data(), data.size());
  } else {
    pieces_.push_back({.view = data, .owner = payload});
  }
}

}  // namespace leeway
