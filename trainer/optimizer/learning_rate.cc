#include "trainer/optimizer/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "trainer/enum_names.h"

namespace leeway {
namespace {

constexpr internal::EnumName<ScheduleKind> kSchedules[] = {
    {ScheduleKind::kConstant, "constant"},
    {ScheduleKind::kLinear, "linear"},
    {ScheduleKind::kCosine, "cosine"},
};

}  // namespace

absl::StatusOr<ScheduleKind> ParseScheduleKind(absl::string_view name) {
  return internal::ParseEnum(kSchedules, "schedule", name);
}

const std::vector<std::string>& ScheduleKindNames() {
  static const auto* const names = new std::vector<std::string>(internal::EnumNames(kSchedules));
  return *names;
}

double LearningRateSchedule::At(int64_t step) const {
  if (step <= warmup_steps) return peak * static_cast<double>(step) / static_cast<double>(warmup_steps);
  if (kind == ScheduleKind::kConstant) return peak;
  // 0 at the first step after the warm-up, 1 at the step after the last one.
  const double decay_steps = static_cast<double>(std::max<int64_t>(1, total_steps - warmup_steps));
  const double progress = std::clamp(static_cast<double>(step - warmup_steps - 1) / decay_steps, 0.0, 1.0);
  const double left =
      kind == ScheduleKind::kLinear ? 1.0 - progress : 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
  return peak * (final_fraction + (1.0 - final_fraction) * left);
}

}  // namespace leeway
