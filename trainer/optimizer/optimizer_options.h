#ifndef LEEWAY_TRAINER_OPTIMIZER_OPTIMIZER_OPTIONS_H_
#define LEEWAY_TRAINER_OPTIMIZER_OPTIMIZER_OPTIONS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "trainer/config_problem.h"
#include "trainer/optimizer/learning_rate.h"

namespace leeway {

enum class OptimizerKind { kAdamW, kMuon, kSgd };

// INVALID_ARGUMENT naming the possible values: "adamw", "muon", "sgd".
absl::StatusOr<OptimizerKind> ParseOptimizerKind(absl::string_view name);
const std::vector<std::string>& OptimizerKindNames();

struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::kAdamW;
  LearningRateSchedule schedule;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  // Decoupled: parameters shrink by learning_rate * weight_decay before the step. One-dimensional parameters (the
  // norms) do not decay.
  double weight_decay = 0.0;
  // Gradients whose global L2 norm is larger are scaled down to it. 0 = never.
  double max_grad_norm = 1.0;
  // Of Muon's matrices; the other fields then hold for the parameters that it leaves to AdamW.
  double momentum = 0.95;
};

// Keys are "optimizer.<field>". Empty = usable.
std::vector<ConfigProblem> OptimizerProblems(const OptimizerOptions& options);

}  // namespace leeway

#endif  // LEEWAY_TRAINER_OPTIMIZER_OPTIMIZER_OPTIONS_H_
