#include "trainer/trainer_options.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"

namespace leeway {
namespace {

void Check(bool ok, const char* key, std::string message, std::vector<ConfigProblem>* problems) {
  if (!ok) problems->push_back({key, std::move(message)});
}

void Append(std::vector<ConfigProblem> more, std::vector<ConfigProblem>* problems) {
  for (ConfigProblem& problem : more) problems->push_back(std::move(problem));
}

}  // namespace

std::vector<ConfigProblem> TrainerProblems(const TrainerOptions& options) {
  std::vector<ConfigProblem> problems;
  const auto at_least = [&](const char* key, int64_t value, int64_t minimum) {
    Check(value >= minimum, key, absl::StrCat(value, " is less than ", minimum), &problems);
  };
  if (const absl::Status shape = options.model.Validate(); !shape.ok()) {
    problems.push_back({"model", std::string(shape.message())});
  }
  at_least("trainer.steps", options.steps, 1);
  at_least("trainer.groups_per_step", options.groups_per_step, 1);
  at_least("trainer.group_size", options.group_size, 1);
  at_least("trainer.updates_per_step", options.updates_per_step, 1);
  Check(options.updates_per_step <= options.groups_per_step, "trainer.updates_per_step",
        absl::StrCat(options.updates_per_step, " minibatches can not be made of ", options.groups_per_step,
                     " groups (trainer.groups_per_step)"),
        &problems);
  at_least("trainer.micro_batch_tokens", options.micro_batch_tokens, 1);
  at_least("trainer.warm_start.steps", options.warm_start.steps, 0);
  at_least("trainer.warm_start.batch", options.warm_start.examples_per_step, 1);
  Check(options.warm_start.learning_rate >= 0 && std::isfinite(options.warm_start.learning_rate),
        "trainer.warm_start.learning_rate", absl::StrCat(options.warm_start.learning_rate, " is not a number >= 0"),
        &problems);
  at_least("checkpoint.every", options.checkpoint_every, 0);
  at_least("checkpoint.keep", options.checkpoints_kept, 2);
  at_least("eval.every", options.eval_every, 0);
  Append(ObjectiveProblems(options.objective), &problems);
  Append(OptimizerProblems(options.optimizer), &problems);
  if (problems.empty()) Append(MeshProblems(options.mesh, options.ranks, options.model), &problems);
  Append(ShardingProblems(options.sharding), &problems);
  if (options.model.Validate().ok()) Append(FrozenProblems(options.sharding.frozen, options.model), &problems);
  return problems;
}

}  // namespace leeway
