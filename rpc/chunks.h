#ifndef LEEWAY_RPC_CHUNKS_H_
#define LEEWAY_RPC_CHUNKS_H_

// Large payloads travel in pieces, so that no message is larger than the connection allows and nobody allocates what a
// stranger announces. Plain classes: no threads, no network.

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace leeway {

// Puts the pieces of one payload after another together. Every error is INVALID_ARGUMENT, names what the sender did
// wrong, and leaves the assembler unusable: the stream has to end. Not thread-safe.
class ChunkAssembler {
 public:
  // Payloads larger than `max_payload_bytes` and pieces larger than `max_chunk_bytes` are refused before a byte is
  // kept.
  ChunkAssembler(uint64_t max_payload_bytes, uint64_t max_chunk_bytes)
      : max_payload_bytes_(max_payload_bytes), max_chunk_bytes_(max_chunk_bytes) {}

  // Adds the next piece of payload `key`. True when it was the last one: then Take() gives the payload.
  // Pieces of another key before the last one of this, a changing total, too many or too few bytes are errors.
  absl::StatusOr<bool> Add(uint64_t key, uint64_t total_bytes, absl::string_view data, bool last);

  // The finished payload, after Add returned true. `last_piece` is the string that was given to Add last: a payload of
  // one piece is moved out of it instead of copied.
  std::string Take(std::string* last_piece);
  // Some pieces of a payload are there, and more are to come.
  bool in_progress() const { return in_progress_; }

 private:
  const uint64_t max_payload_bytes_;
  const uint64_t max_chunk_bytes_;
  bool in_progress_ = false;
  // Of the payload in progress.
  uint64_t key_ = 0;
  uint64_t total_bytes_ = 0;
  std::string buffer_;
  // The finished payload had one piece and is not in buffer_.
  bool whole_ = false;
};

}  // namespace leeway

#endif  // LEEWAY_RPC_CHUNKS_H_
