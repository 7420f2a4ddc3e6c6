#include "launch/roles/rollout_role.h"

#include <vector>

#include "base/status_macros.h"
#include "launch/roles/task_options.h"
#include "weightsync/manifest.h"

namespace leeway {

RolloutOptions RolloutOptionsOf(const Config& config, int64_t vocabulary, const std::string& name) {
  RolloutOptions options;
  options.name = name;
  options.run_fingerprint = config.RunFingerprint();
  options.seed = static_cast<uint64_t>(config.GetInteger("seed"));
  options.shape = ShapeOf(config, vocabulary);
  options.bf16_weights = config.GetString("model.dtype") == "bfloat16";
  const absl::StatusOr<UpdateMode> update_mode = ParseUpdateMode(config.GetString("rollout.update_mode"));
  LEEWAY_CHECK(update_mode.ok()) << update_mode.status();
  options.update_mode = *update_mode;
  options.temperature = static_cast<float>(config.GetReal("rollout.temperature"));
  options.evaluation_sampling.temperature = static_cast<float>(config.GetReal("eval.temperature"));
  options.evaluation_sampling.top_k = static_cast<int32_t>(config.GetInteger("eval.top_k"));
  options.evaluation_sampling.top_p = static_cast<float>(config.GetReal("eval.top_p"));
  options.evaluation_sampling.greedy = config.GetBoolean("eval.greedy");
  options.max_episodes = static_cast<int>(config.GetInteger("rollout.slots"));
  options.token_budget = config.GetInteger("rollout.token_budget");
  options.compute_threads = static_cast<int>(config.GetInteger("rollout.threads"));
  options.environment_threads = static_cast<int>(config.GetInteger("rollout.environment_threads"));
  options.limits.reset_timeout = absl::Seconds(config.GetReal("rollout.reset_timeout"));
  options.limits.step_timeout = absl::Seconds(config.GetReal("rollout.step_timeout"));
  options.limits.episode_timeout = absl::Seconds(config.GetReal("rollout.episode_timeout"));
  options.limits.max_attempts = static_cast<int>(config.GetInteger("rollout.max_attempts"));
  // Says what it waits for before the launcher's patience ends.
  options.watchdog_period = absl::Seconds(config.GetReal("run.stall_timeout")) / 4;
  return options;
}

absl::StatusOr<v1::Manifest> ExpectedManifest(const ModelShape& shape, bool bf16_weights) {
  std::vector<TensorView> tensors;
  for (const ParameterInfo& parameter : ParameterLayout(shape)) {
    tensors.push_back({parameter.name, parameter.shape, bf16_weights ? "BF16" : "F32", {}});
  }
  return MakeLayout(tensors);
}

}  // namespace leeway
