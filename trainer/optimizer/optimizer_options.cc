#include "trainer/optimizer/optimizer_options.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "trainer/enum_names.h"

namespace leeway {
namespace {

constexpr internal::EnumName<OptimizerKind> kOptimizers[] = {
    {OptimizerKind::kAdamW, "adamw"},
    {OptimizerKind::kMuon, "muon"},
    {OptimizerKind::kSgd, "sgd"},
};

void Check(bool ok, const char* field, std::string message, std::vector<ConfigProblem>* problems) {
  if (!ok) problems->push_back({absl::StrCat("optimizer.", field), std::move(message)});
}

}  // namespace

absl::StatusOr<OptimizerKind> ParseOptimizerKind(absl::string_view name) {
  return internal::ParseEnum(kOptimizers, "optimizer", name);
}

const std::vector<std::string>& OptimizerKindNames() {
  static const auto* const names = new std::vector<std::string>(internal::EnumNames(kOptimizers));
  return *names;
}

std::vector<ConfigProblem> OptimizerProblems(const OptimizerOptions& options) {
  std::vector<ConfigProblem> problems;
  const LearningRateSchedule& schedule = options.schedule;
  Check(schedule.peak >= 0 && std::isfinite(schedule.peak), "learning_rate",
        absl::StrCat(schedule.peak, " is not a number >= 0"), &problems);
  Check(schedule.warmup_steps >= 0, "warmup_steps", absl::StrCat(schedule.warmup_steps, " is negative"), &problems);
  Check(schedule.kind == ScheduleKind::kConstant || schedule.total_steps > schedule.warmup_steps, "warmup_steps",
        absl::StrCat(schedule.warmup_steps, " leaves none of the run's ", schedule.total_steps,
                     " steps to decay over; lower it, or use schedule = \"constant\""),
        &problems);
  Check(schedule.final_fraction >= 0 && schedule.final_fraction <= 1, "final_fraction",
        absl::StrCat(schedule.final_fraction, " is not between 0 and 1"), &problems);
  Check(options.beta1 >= 0 && options.beta1 < 1, "beta1", absl::StrCat(options.beta1, " is not in [0, 1)"), &problems);
  Check(options.beta2 >= 0 && options.beta2 < 1, "beta2", absl::StrCat(options.beta2, " is not in [0, 1)"), &problems);
  Check(options.epsilon > 0 && std::isfinite(options.epsilon), "epsilon",
        absl::StrCat(options.epsilon, " is not a number > 0"), &problems);
  Check(options.weight_decay >= 0 && std::isfinite(options.weight_decay), "weight_decay",
        absl::StrCat(options.weight_decay, " is not a number >= 0"), &problems);
  Check(options.max_grad_norm >= 0 && std::isfinite(options.max_grad_norm), "max_grad_norm",
        absl::StrCat(options.max_grad_norm, " is not a number >= 0 (0 = no clipping)"), &problems);
  Check(options.momentum >= 0 && options.momentum < 1, "momentum", absl::StrCat(options.momentum, " is not in [0, 1)"),
        &problems);
  return problems;
}

}  // namespace leeway
