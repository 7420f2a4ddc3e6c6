#include "launch/roles/trainer_role.h"

#include <algorithm>
#include <optional>

#include "base/status_macros.h"
#include "launch/roles/task_options.h"
#include "trainer/parallel/flops.h"

namespace leeway {
namespace {

// The schema allows only names that the parsers know (a test compares the two lists).
template <typename T>
T Known(absl::StatusOr<T> parsed) {
  LEEWAY_CHECK(parsed.ok()) << parsed.status();
  return *parsed;
}

// The most tokens that one episode may sample. What a turn may answer stands in observations alone, so a demonstration
// is looked at: its longest turn in every turn. Without demonstrations the bound that is known holds for prompts too.
int64_t MostSampledTokens(const Task& task, uint64_t seed) {
  const std::optional<Demonstration> demonstration = task.Demonstrate(task.TrainSeed(seed, 0));
  if (!demonstration.has_value()) return task.max_episode_tokens();
  int64_t of_turn = 0;
  for (const auto& [observation, answer] : demonstration->turns) {
    of_turn = std::max<int64_t>(of_turn, observation.max_answer_tokens);
  }
  return std::min<int64_t>(of_turn * task.max_turns(), task.max_episode_tokens());
}

}  // namespace

TrainerOptions TrainerOptionsOf(const Config& config, const Task& task, int64_t vocabulary,
                                const std::string& run_directory) {
  TrainerOptions options;
  options.run_directory = run_directory;
  options.resolved_config = config.ToToml();
  options.seed = static_cast<uint64_t>(config.GetInteger("seed"));
  options.model = ShapeOf(config, vocabulary);
  options.model_directory = config.GetString("model.init");
  options.steps = config.GetInteger("trainer.steps");
  options.groups_per_step = config.GetInteger("trainer.groups_per_step");
  options.group_size = config.GetInteger("trainer.group_size");
  options.updates_per_step = config.GetInteger("trainer.updates_per_step");
  options.micro_batch_tokens = config.GetInteger("trainer.micro_batch_tokens");
  options.ranks = static_cast<int>(config.GetInteger("trainer.ranks"));
  options.mesh.tensor = static_cast<int>(config.GetInteger("trainer.tensor_parallel"));
  options.mesh.data = std::max(options.ranks / options.mesh.tensor, 1);
  options.sequence_parallel = config.GetBoolean("trainer.sequence_parallel");
  options.recompute = Known(ParseRecompute(config.GetString("trainer.recompute")));
  options.sharding.zero_stage = static_cast<int>(config.GetInteger("trainer.zero_stage"));
  options.sharding.reduce_once = config.GetBoolean("trainer.reduce_once");
  options.sharding.bf16_parameters = config.GetString("model.dtype") == "bfloat16";
  options.sharding.bf16_gradients = config.GetString("trainer.gradient_dtype") == "bfloat16";
  options.sharding.frozen = FrozenNames(config.GetString("trainer.frozen"), options.model);
  options.warm_start.steps = config.GetInteger("trainer.warm_start.steps");
  options.warm_start.learning_rate = config.GetReal("trainer.warm_start.learning_rate");
  options.warm_start.examples_per_step = config.GetInteger("trainer.warm_start.batch");
  options.staleness_budget =
      config.GetString("mode") == "sync" ? 0 : static_cast<uint64_t>(config.GetInteger("staleness.budget"));
  options.breach_masks = config.GetString("staleness.breach") == "mask";
  options.advantage = Known(ParseAdvantageKind(config.GetString("objective.advantage")));
  options.objective.kind = Known(ParseObjectiveKind(config.GetString("objective.name")));
  options.objective.correction = Known(ParseCorrectionKind(config.GetString("objective.correction")));
  options.objective.aggregation = Known(ParseAggregationKind(config.GetString("objective.aggregation")));
  options.objective.epsilon_low = config.GetReal("objective.epsilon_low");
  options.objective.epsilon_high = config.GetReal("objective.epsilon_high");
  options.objective.tis_cap = config.GetReal("objective.tis_cap");
  options.objective.icepop_low = config.GetReal("objective.icepop_low");
  options.objective.icepop_high = config.GetReal("objective.icepop_high");
  options.objective.entropy_coefficient = config.GetReal("objective.entropy_coefficient");
  options.objective.max_tokens = MostSampledTokens(task, options.seed);
  options.optimizer.kind = Known(ParseOptimizerKind(config.GetString("optimizer.name")));
  options.optimizer.momentum = config.GetReal("optimizer.momentum");
  options.optimizer.schedule.kind = Known(ParseScheduleKind(config.GetString("optimizer.schedule")));
  options.optimizer.schedule.peak = config.GetReal("optimizer.learning_rate");
  options.optimizer.schedule.warmup_steps = config.GetInteger("optimizer.warmup_steps");
  options.optimizer.schedule.total_steps = options.steps;
  options.optimizer.schedule.final_fraction = config.GetReal("optimizer.final_fraction");
  options.optimizer.beta1 = config.GetReal("optimizer.beta1");
  options.optimizer.beta2 = config.GetReal("optimizer.beta2");
  options.optimizer.epsilon = config.GetReal("optimizer.epsilon");
  options.optimizer.weight_decay = config.GetReal("optimizer.weight_decay");
  options.optimizer.max_grad_norm = config.GetReal("optimizer.max_grad_norm");
  options.checkpoint_every = config.GetInteger("checkpoint.every");
  options.checkpoints_kept = config.GetInteger("checkpoint.keep");
  options.eval_every = config.GetInteger("eval.every");
  options.evaluation_wait = absl::Seconds(config.GetReal("eval.timeout"));
  options.trajectories.every = config.GetInteger("trajectories.every");
  options.trajectories.groups = config.GetInteger("trajectories.groups");
  options.publish_timeout = absl::Seconds(config.GetReal("weights.timeout"));
  return options;
}

}  // namespace leeway
