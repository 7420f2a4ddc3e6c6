#include "weightsync/transport/bucket_codec.h"

#include "leeway/v1/weights.pb.h"

namespace leeway {
namespace {

// Protobuf's tags: field number and wire type (0 = varint, 2 = length-delimited).
constexpr uint64_t Tag(int field, int wire_type) { return static_cast<uint64_t>(field) << 3 | wire_type; }
constexpr uint64_t kOffsetTag = Tag(v1::Bucket::kOffsetFieldNumber, 0);
constexpr uint64_t kDataTag = Tag(v1::Bucket::kDataFieldNumber, 2);
constexpr uint64_t kHashTag = Tag(v1::Bucket::kHashFieldNumber, 0);

void AppendVarint(uint64_t value, std::string* out) {
  while (value >= 0x80) {
    out->push_back(static_cast<char>(value | 0x80));
    value >>= 7;
  }
  out->push_back(static_cast<char>(value));
}

bool ReadVarint(absl::string_view* in, uint64_t* value) {
  *value = 0;
  for (int shift = 0; shift < 64 && !in->empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(in->front());
    in->remove_prefix(1);
    *value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return true;
  }
  return false;
}

}  // namespace

std::string EncodeBucketHeader(uint64_t offset, uint64_t hash, size_t data_bytes) {
  std::string header;
  header.reserve(kMaxBucketHeaderBytes);
  AppendVarint(kOffsetTag, &header);
  AppendVarint(offset, &header);
  AppendVarint(kHashTag, &header);
  AppendVarint(hash, &header);
  AppendVarint(kDataTag, &header);
  AppendVarint(data_bytes, &header);
  return header;
}

std::optional<BucketHeader> DecodeBucketHeader(absl::string_view beginning, size_t message_bytes) {
  BucketHeader header;
  absl::string_view rest = beginning;
  uint64_t tag = 0;
  uint64_t data_bytes = 0;
  while (ReadVarint(&rest, &tag)) {
    if (tag == kDataTag) {
      if (!ReadVarint(&rest, &data_bytes)) return std::nullopt;
      header.data_begin = beginning.size() - rest.size();
      header.data_bytes = data_bytes;
      if (header.data_begin > message_bytes || message_bytes - header.data_begin != data_bytes) return std::nullopt;
      return header;
    }
    if (tag != kOffsetTag && tag != kHashTag) return std::nullopt;
    if (!ReadVarint(&rest, tag == kOffsetTag ? &header.offset : &header.hash)) return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace leeway
