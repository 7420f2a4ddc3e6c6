#ifndef LEEWAY_TRAINER_OPTIMIZER_LEARNING_RATE_H_
#define LEEWAY_TRAINER_OPTIMIZER_LEARNING_RATE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace leeway {

enum class ScheduleKind { kConstant, kLinear, kCosine };

// INVALID_ARGUMENT naming the possible values: "constant", "linear", "cosine".
absl::StatusOr<ScheduleKind> ParseScheduleKind(absl::string_view name);
const std::vector<std::string>& ScheduleKindNames();

// The learning rate of a train step; a pure function of the step (never of updates, groups or time), so a resumed run
// continues it.
//   step 1 .. warmup_steps               peak * step / warmup_steps
//   then constant                        peak
//   then linear, cosine                  from peak down to peak * final_fraction, which the step after `total_steps`
//   would have
struct LearningRateSchedule {
  ScheduleKind kind = ScheduleKind::kConstant;
  double peak = 1e-3;
  int64_t warmup_steps = 0;
  // Steps of the whole run. Only for linear and cosine.
  int64_t total_steps = 0;
  double final_fraction = 0.0;

  double At(int64_t step) const;
};

}  // namespace leeway

#endif  // LEEWAY_TRAINER_OPTIMIZER_LEARNING_RATE_H_
