#ifndef LEEWAY_QUEUE_DOOR_QUARANTINE_H_
#define LEEWAY_QUEUE_DOOR_QUARANTINE_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "base/file_system.h"
#include "base/mutex.h"

namespace leeway {

// Where refused trajectories are kept for people to look at: one JSON object a line,
//
//   {"reason": "logprob_positive: spans[1]...", "from": "rollout-0", "bytes": 812, "trajectory": {...}}
//
// `trajectory` is the message as protobuf's JSON, or, where the bytes are no Trajectory, `base64` has them. The file is
// bounded: what no longer fits is written without its content while that fits, and counted in any case. Never read by
// leeway's own processes. Thread-safe. Blocks for a write to a local file.
class Quarantine {
 public:
  // Appends to `path`, whose folder exists; what is in it already counts. Empty `path`: only counts.
  Quarantine(FileSystem* file_system, std::string path, uint64_t max_bytes);

  // Never fails: what cannot be written is logged and counted as dropped.
  void Keep(absl::string_view reason, absl::string_view from, absl::string_view bytes) LEEWAY_EXCLUDES(mutex_);

  uint64_t kept() const LEEWAY_EXCLUDES(mutex_);
  // Of which the content is not in the file.
  uint64_t dropped() const LEEWAY_EXCLUDES(mutex_);

 private:
  // False when the line does not fit or cannot be written.
  bool Append(const std::string& line) LEEWAY_REQUIRES(mutex_);

  FileSystem* const file_system_;
  const std::string path_;
  const uint64_t max_bytes_;

  mutable Mutex mutex_;
  // Bytes in the file.
  uint64_t size_ LEEWAY_GUARDED_BY(mutex_) = 0;
  uint64_t kept_ LEEWAY_GUARDED_BY(mutex_) = 0;
  uint64_t dropped_ LEEWAY_GUARDED_BY(mutex_) = 0;
};

}  // namespace leeway

#endif  // LEEWAY_QUEUE_DOOR_QUARANTINE_H_
