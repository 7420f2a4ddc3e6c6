#ifndef LEEWAY_QUEUE_WIRE_WIRE_READER_H_
#define LEEWAY_QUEUE_WIRE_WIRE_READER_H_

#include <cstdint>
#include <cstring>

#include "absl/strings/string_view.h"

namespace leeway {

// The types of protobuf's wire format that are in use, and a field's tag.
inline constexpr uint32_t kWireVarint = 0;
inline constexpr uint32_t kWireFixed64 = 1;
inline constexpr uint32_t kWireBytes = 2;
inline constexpr uint32_t kWireFixed32 = 5;
constexpr uint32_t WireTag(uint32_t field, uint32_t type) { return field << 3 | type; }

// Reads a serialised message from front to back, without copying. Every function is false at what it does not expect;
// whoever calls it then leaves the bytes to protobuf's parser.
class WireReader {
 public:
  explicit WireReader(absl::string_view bytes) : bytes_(bytes) {}
  bool done() const { return bytes_.empty(); }
  const char* position() const { return bytes_.data(); }

  bool Varint(uint64_t* value) {
    *value = 0;
    for (size_t i = 0; i < bytes_.size() && i < 9; ++i) {
      const uint64_t byte = static_cast<uint8_t>(bytes_[i]);
      *value |= (byte & 0x7f) << (7 * i);
      if (byte >= 0x80) continue;
      bytes_.remove_prefix(i + 1);
      return true;
    }
    return false;
  }
  // A tag of one byte: fields below 16.
  bool Tag(uint32_t* tag) {
    if (bytes_.empty() || static_cast<uint8_t>(bytes_[0]) >= 0x80) return false;
    *tag = static_cast<uint8_t>(bytes_[0]);
    bytes_.remove_prefix(1);
    return true;
  }
  bool Bytes(absl::string_view* value) {
    uint64_t size = 0;
    return Varint(&size) && Take(size, value);
  }
  bool Float(float* value) {
    absl::string_view raw;
    if (!Take(sizeof(*value), &raw)) return false;
    std::memcpy(value, raw.data(), sizeof(*value));
    return true;
  }
  // The value behind a tag.
  bool Skip(uint32_t tag) {
    uint64_t number = 0;
    absl::string_view ignored;
    switch (tag & 7) {
      case kWireVarint:
        return Varint(&number);
      case kWireFixed64:
        return Take(8, &ignored);
      case kWireBytes:
        return Bytes(&ignored);
      case kWireFixed32:
        return Take(4, &ignored);
      default:
        return false;
    }
  }

 private:
  bool Take(uint64_t size, absl::string_view* value) {
    if (size > bytes_.size()) return false;
    *value = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return true;
  }

  absl::string_view bytes_;
};

}  // namespace leeway

#endif  // LEEWAY_QUEUE_WIRE_WIRE_READER_H_
