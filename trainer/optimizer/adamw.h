#ifndef LEEWAY_TRAINER_OPTIMIZER_ADAMW_H_
#define LEEWAY_TRAINER_OPTIMIZER_ADAMW_H_

// AdamW over the flat parameter vector. Everything is elementwise or summed in fixed blocks, so the bits do not depend
// on threads.

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "base/executor.h"
#include "model/shape.h"
#include "trainer/config_problem.h"
#include "trainer/optimizer/learning_rate.h"

namespace leeway {

struct OptimizerOptions {
  LearningRateSchedule schedule;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  // Decoupled: parameters shrink by learning_rate * weight_decay before the step. One-dimensional parameters (the
  // norms) do not decay.
  double weight_decay = 0.0;
  // Gradients whose global L2 norm is larger are scaled down to it. 0 = never.
  double max_grad_norm = 1.0;
};

// Keys are "optimizer.<field>". Empty = usable.
std::vector<ConfigProblem> OptimizerProblems(const OptimizerOptions& options);

// L2 norm over all gradients: sums of squares in double, per block of 4,096 elements, blocks added in order.
double GlobalNorm(absl::Span<const float> gradients, ParallelFor* parallel);

// State: first and second moment per parameter and the number of updates made. One caller at a time.
class AdamW {
 public:
  struct State {
    std::vector<float> first_moment;
    std::vector<float> second_moment;
    int64_t updates = 0;
  };

  // Zero state. `parallel` outlives the object.
  AdamW(const OptimizerOptions& options, const std::vector<ParameterInfo>& layout, ParallelFor* parallel);

  // One update of `parameters` in place with gradients * gradient_scale. REQUIRES: sizes as in the layout.
  void Step(double learning_rate, double gradient_scale, absl::Span<const float> gradients,
            absl::Span<float> parameters);

  const State& state() const { return state_; }
  // REQUIRES: sizes as in the layout.
  void set_state(State state);

 private:
  // A run of the flat vector that either decays or does not.
  struct Segment {
    int64_t begin = 0;
    int64_t end = 0;
    bool decays = false;
  };

  const OptimizerOptions options_;
  std::vector<Segment> segments_;
  ParallelFor* const parallel_;
  State state_;
};

}  // namespace leeway

#endif  // LEEWAY_TRAINER_OPTIMIZER_ADAMW_H_
