#ifndef LEEWAY_TRAINER_LOSS_GRADIENT_PASS_H_
#define LEEWAY_TRAINER_LOSS_GRADIENT_PASS_H_

// A batch through the model and back: scores, objective, gradients, micro-batch by micro-batch. Normalisers are those
// of the whole update, so the split changes nothing but rounding; the order is fixed, so the bits depend on the split
// only.
//
// Real = float (product) or double (the tests' oracle).

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "model/transformer.h"
#include "trainer/liveness_log.h"
#include "trainer/loss/objective.h"
#include "trainer/loss/train_batch.h"

namespace leeway {

// One caller at a time; keeps its buffers between calls.
template <typename Real>
class GradientPass {
 public:
  // `model` outlives the object.
  GradientPass(const ObjectiveOptions& options, Transformer<Real>* model) : options_(options), model_(model) {}

  // Log-probabilities of all positions of the batch at the model's weights, without gradients.
  absl::Status Score(const TrainBatch& batch, std::vector<double>* logprobs);

  // Scores the positions of `update`, writes their log-probabilities to `theta` (sized for the whole batch, others
  // untouched), adds the loss to `sums` and its gradient to `gradients`. `prox` covers the whole batch; empty = the
  // weights have not changed since the beginning of the step, so that prox is theta.
  absl::Status Run(const TrainBatch& batch, const UpdateRange& update, absl::Span<const double> prox,
                   std::vector<double>* theta, ObjectiveSums* sums, absl::Span<Real> gradients);

 private:
  absl::Status ScoreMicroBatch(const TrainBatch& batch, const MicroBatch& micro, bool keep_activations,
                               double* logprobs);

  const ObjectiveOptions options_;
  Transformer<Real>* const model_;

  PositionScores<Real> scores_;
  std::vector<SequenceRange> ranges_;
  std::vector<double> entropy_;
  std::vector<double> d_logprob_;
  std::vector<double> d_entropy_;
  std::vector<Real> logprob_gradients_;
  std::vector<Real> entropy_gradients_;
  LivenessLog liveness_;
};

}  // namespace leeway

#endif  // LEEWAY_TRAINER_LOSS_GRADIENT_PASS_H_
