#ifndef LEEWAY_QUEUE_DOOR_VALIDATION_H_
#define LEEWAY_QUEUE_DOOR_VALIDATION_H_

// The door of the queue: is a trajectory well-formed? Pure functions. Whether it is welcome (identity, versions that
// exist, staleness, duplicates) is the core's business.

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "leeway/v1/types.pb.h"

namespace leeway {

struct ValidationLimits {
  // Ids are 0 .. vocabulary_size - 1.
  int32_t vocabulary_size = 0;
  // Members of a training ticket are 0 .. group_size - 1.
  uint32_t group_size = 0;
};

// Why a trajectory is refused.
struct Rejection {
  // Stable, snake_case; a counter's name. One per rule: see the table in validation.cc.
  std::string code;
  // Path of the field and what is wrong with it: "spans[2].logprobs[7]: 0.25 is greater than 0".
  std::string message;

  // "code: message", cut: as a push is answered.
  std::string ToString() const;
};

// What may become a metric's name: 1 to 64 of a-z, 0-9 and '_'.
bool IsFailureCode(absl::string_view text);
// What may stand in logs and files as a worker's name: 1 to 64 letters, digits, '-', '_', '.', ':'.
bool IsWorkerName(absl::string_view text);
// A peer's text as far as logs, files and answers take it: its first 512 bytes, cut between characters.
std::string CutText(absl::string_view text);

// The first rule that `trajectory` breaks; nothing when it is well-formed. Nothing is repaired. A log-probability of 0
// is legal; a missing one is a length mismatch. O(tokens + legal ids).
std::optional<Rejection> ValidateTrajectory(const v1::Trajectory& trajectory, const ValidationLimits& limits);
// The same rules without those of its spans.
std::optional<Rejection> ValidateAllButSpans(const v1::Trajectory& trajectory, const ValidationLimits& limits);

}  // namespace leeway

#endif  // LEEWAY_QUEUE_DOOR_VALIDATION_H_
