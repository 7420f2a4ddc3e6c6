#ifndef LEEWAY_QUEUE_DOOR_INSPECTION_H_
#define LEEWAY_QUEUE_DOOR_INSPECTION_H_

#include <string>

#include "absl/strings/string_view.h"
#include "queue/door/validation.h"
#include "queue/ledger/trajectory_summary.h"

namespace leeway {

// What the queue has to know of a serialised v1::Trajectory.
struct Inspection {
  TrajectorySummary summary;
  // Empty: it is well-formed. Otherwise "code: message"; the key in `summary` may be unset then.
  std::string reject_reason;
};

// Parses, validates and summarises. Pure. Spans as clients write them are checked where they lie in the bytes, several
// tokens at a time; anything unusual, and everything that is wrong, goes through the parser and ValidateTrajectory,
// whose verdict it is: both ways agree.
Inspection InspectTrajectory(absl::string_view payload, const ValidationLimits& limits);

namespace internal {

// The short way alone. False: it cannot tell; `inspection` is undefined then.
bool InspectSpansInPlace(absl::string_view payload, const ValidationLimits& limits, Inspection* inspection);

}  // namespace internal
}  // namespace leeway

#endif  // LEEWAY_QUEUE_DOOR_INSPECTION_H_
