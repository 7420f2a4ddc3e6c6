#include "rollout/rollout_options.h"

#include "absl/strings/str_cat.h"

namespace leeway {

absl::Status RolloutOptions::Validate() const {
  std::string faults;
  const auto require_positive = [&faults](bool is_positive, const char* key, const std::string& got) {
    if (!is_positive) absl::StrAppend(&faults, key, " must be positive, got ", got, "; ");
  };
  if (name.empty()) absl::StrAppend(&faults, "the worker needs a name; ");
  if (absl::Status status = shape.Validate(); !status.ok())
    absl::StrAppend(&faults, std::string(status.message()), "; ");
  SamplingParameters training;
  training.temperature = temperature;
  if (absl::Status status = training.Validate(/*training=*/true); !status.ok()) {
    absl::StrAppend(&faults, "rollout ", std::string(status.message()), "; ");
  }
  if (absl::Status status = evaluation_sampling.Validate(/*training=*/false); !status.ok()) {
    absl::StrAppend(&faults, "evaluation ", std::string(status.message()), "; ");
  }
  require_positive(max_episodes > 0, "rollout.max_episodes", absl::StrCat(max_episodes));
  require_positive(token_budget > 0, "rollout.token_budget", absl::StrCat(token_budget));
  require_positive(compute_threads > 0, "rollout.compute_threads", absl::StrCat(compute_threads));
  require_positive(environment_threads > 0, "rollout.environment_threads", absl::StrCat(environment_threads));
  require_positive(max_unanswered_pushes > 0, "rollout.max_unanswered_pushes", absl::StrCat(max_unanswered_pushes));
  require_positive(limits.max_attempts > 0, "rollout.max_attempts", absl::StrCat(limits.max_attempts));
  const auto require_duration = [&](absl::Duration value, const char* key) {
    require_positive(value > absl::ZeroDuration(), key, absl::FormatDuration(value));
  };
  require_duration(limits.reset_timeout, "rollout.reset_timeout");
  require_duration(limits.step_timeout, "rollout.step_timeout");
  require_duration(limits.episode_timeout, "rollout.episode_timeout");
  require_duration(queue_timeout, "rollout.queue_timeout");
  require_duration(abandoned_load_timeout, "rollout.abandoned_load_timeout");
  require_duration(watchdog_period, "rollout.watchdog_period");
  if (faults.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(faults.substr(0, faults.size() - 2));
}

}  // namespace leeway
