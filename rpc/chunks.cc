#include "rpc/chunks.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace leeway {
namespace {

constexpr uint64_t kReservedChunks = 4;

}  // namespace

absl::StatusOr<bool> ChunkAssembler::Add(uint64_t key, uint64_t total_bytes, absl::string_view data, bool last) {
  if (data.size() > max_chunk_bytes_) {
    return absl::InvalidArgumentError(
        absl::StrCat("payload ", key, ": a chunk has ", data.size(), " bytes, the limit is ", max_chunk_bytes_));
  }
  if (total_bytes > max_payload_bytes_) {
    return absl::InvalidArgumentError(
        absl::StrCat("payload ", key, " has ", total_bytes, " bytes, the limit is ", max_payload_bytes_));
  }
  if (in_progress_ && key != key_) {
    return absl::InvalidArgumentError(
        absl::StrCat("a chunk of payload ", key, " arrived before the last one of payload ", key_));
  }
  if (in_progress_ && total_bytes != total_bytes_) {
    return absl::InvalidArgumentError(
        absl::StrCat("payload ", key, ": total_bytes changed from ", total_bytes_, " to ", total_bytes, " on the way"));
  }
  const uint64_t size = (in_progress_ ? buffer_.size() : 0) + data.size();
  if (size > total_bytes || (last && size != total_bytes) || (!last && data.empty())) {
    return absl::InvalidArgumentError(absl::StrCat("payload ", key, ": ", size, " bytes of ", total_bytes,
                                                   last ? " announced at the last chunk" : " announced so far"));
  }
  whole_ = !in_progress_ && last;
  if (whole_) return true;
  if (!in_progress_) {
    in_progress_ = true;
    key_ = key;
    total_bytes_ = total_bytes;
    buffer_.clear();
    // What is announced is not there yet.
    buffer_.reserve(std::min(total_bytes, kReservedChunks * max_chunk_bytes_));
  }
  buffer_.append(data.data(), data.size());
  if (last) in_progress_ = false;
  return last;
}

std::string ChunkAssembler::Take(std::string* last_piece) {
  std::string payload;
  payload.swap(whole_ ? *last_piece : buffer_);
  return payload;
}

}  // namespace leeway
