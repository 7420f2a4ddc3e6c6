#ifndef LEEWAY_TRAINER_LEARNER_H_
#define LEEWAY_TRAINER_LEARNER_H_

// One train step as a function: groups in, new parameters and numbers about them out. No queue, no files, no clock.
//
// With one update a step the batch goes through the model once: the log-probabilities of that pass are prox and theta,
// and the check against the recorded ones uses them. With several, the whole batch is scored at the step's weights
// first, and a step that turns out not to be finite half-way is undone. Nothing is applied before the check has passed.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/executor.h"
#include "model/transformer.h"
#include "queue/queue_client.h"
#include "trainer/loss/gradient_pass.h"
#include "trainer/loss/mismatch.h"
#include "trainer/loss/train_batch.h"
#include "trainer/optimizer/adamw.h"
#include "trainer/trainer_options.h"

namespace leeway {

// What one step did.
struct StepReport {
  // Not empty: nothing was changed, these groups have to be replaced and the step done again.
  std::vector<RefusedGroup> refused;
  // False: loss or gradients were not finite, and nothing was changed.
  bool is_finite = true;
  // Updates made; 0 also when no token was trained.
  int64_t updates = 0;
  ObjectiveSums sums;  // over all updates: normalised losses added up
  MismatchMetrics mismatch;
  double grad_norm = 0;  // before clipping; largest of the updates
  double learning_rate = 0;
};

// Owns parameters, optimizer and model. One caller at a time; uses `parallel`, which outlives it.
class Learner {
 public:
  Learner(const TrainerOptions& options, ParallelFor* parallel);

  // Replaces the parameters (flat, ParameterLayout order) and the optimizer's state. REQUIRES: right sizes.
  void Restore(std::vector<float> parameters, AdamW::State optimizer);
  // Replaces the parameters and forgets the optimizer's state.
  void Reset(std::vector<float> parameters);

  // Trains step `step` on the batch. `report` says what became of it; parameters change only if nothing was refused and
  // everything was finite. Errors: INTERNAL (staleness bound), INVALID_ARGUMENT (the model refused the batch).
  absl::Status Train(uint64_t step, const LeasedBatch& leased, StepReport* report);

  absl::Span<const float> parameters() const { return parameters_; }
  const AdamW::State& optimizer_state() const { return optimizer_.state(); }
  const std::vector<ParameterInfo>& layout() const { return layout_; }
  // Of the last Train: the batch, and the log-probabilities at the step's weights before its first update.
  const TrainBatch& batch() const { return batch_; }
  absl::Span<const double> recomputed() const { return prox_; }

 private:
  // One optimizer update. False when loss or gradients are not finite; then the parameters are untouched.
  absl::StatusOr<bool> Update(const UpdateRange& range, bool is_first, StepReport* report);

  const TrainerOptions options_;
  const std::vector<ParameterInfo> layout_;
  ParallelFor* const parallel_;
  Transformer<float> model_;
  AdamW optimizer_;
  GradientPass<float> pass_;

  std::vector<float> parameters_;
  std::vector<float> gradients_;
  TrainBatch batch_;
  std::vector<double> theta_;
  // Log-probabilities at the step's weights before its first update.
  std::vector<double> prox_;
};

}  // namespace leeway

#endif  // LEEWAY_TRAINER_LEARNER_H_
