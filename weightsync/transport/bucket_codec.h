#ifndef LEEWAY_WEIGHTSYNC_TRANSPORT_BUCKET_CODEC_H_
#define LEEWAY_WEIGHTSYNC_TRANSPORT_BUCKET_CODEC_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace leeway {

// The wire form of a leeway.v1.Bucket whose bytes stay where they are: the small fields as a header, then the data.
// Header + data is a valid protobuf message (any protobuf library reads it), so that bulk bytes are never copied into
// or out of a message object. Pure functions.

// Everything of the message but the data, which must follow it at once.
std::string EncodeBucketHeader(uint64_t offset, uint64_t hash, size_t data_bytes);

struct BucketHeader {
  uint64_t offset = 0;
  uint64_t hash = 0;
  // Where in the message the data begins, and its length: they run to the end of the message.
  size_t data_begin = 0;
  size_t data_bytes = 0;
};

// More than the longest header.
inline constexpr size_t kMaxBucketHeaderBytes = 48;

// Reads a header from the first bytes of a message of `message_bytes` (at least kMaxBucketHeaderBytes of them, or all).
// Nothing if the message is not header + data in the form above: it may still be a valid Bucket in another order, or
// none at all.
std::optional<BucketHeader> DecodeBucketHeader(absl::string_view beginning, size_t message_bytes);

}  // namespace leeway

#endif  // LEEWAY_WEIGHTSYNC_TRANSPORT_BUCKET_CODEC_H_
