#ifndef LEEWAY_TRAINER_LOSS_GRADIENT_PASS_H_
#define LEEWAY_TRAINER_LOSS_GRADIENT_PASS_H_

// A batch through the model and back: scores, objective, gradients, micro-batch by micro-batch. Normalisers are those
// of the whole update, over all ranks, so the split changes nothing but rounding; the order is fixed, so the bits
// depend on the split only.
//
// Real = float (product) or double (the tests' oracle).

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "model/transformer/transformer.h"
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

  // Log-probabilities of this rank's positions of the batch at the model's weights, without gradients (sized for the
  // whole batch, others untouched).
  absl::Status Score(const TrainBatch& batch, std::vector<double>* logprobs);

  // Scores this rank's positions of `update`, writes their log-probabilities to `theta` (sized for the whole batch,
  // others untouched), adds their loss to `sums` and its gradient to `gradients`, or hands it to `sink` after every
  // micro-batch. `prox` covers the whole batch; empty = the weights have not changed since the beginning of the step,
  // so that prox is theta.
  absl::Status Run(const TrainBatch& batch, const UpdateRange& update, absl::Span<const double> prox,
                   std::vector<double>* theta, ObjectiveSums* sums, absl::Span<Real> gradients);
  absl::Status Run(const TrainBatch& batch, const UpdateRange& update, absl::Span<const double> prox,
                   std::vector<double>* theta, ObjectiveSums* sums, GradientSink<Real>* sink);

 private:
  absl::Status ScoreMicroBatch(const TrainBatch& batch, const MicroBatch& micro, bool keep_activations,
                               double* logprobs);
  absl::Status RunMicroBatches(const TrainBatch& batch, const UpdateRange& update, absl::Span<const double> prox,
                               std::vector<double>* theta, ObjectiveSums* sums,
                               const std::function<absl::Status()>& backward);

  const ObjectiveOptions options_;
  Transformer<Real>* const model_;

  // Of one micro-batch.
  PositionScores<Real> scores_;
  std::vector<SequenceRange> ranges_;
  std::vector<double> theta_;
  std::vector<double> prox_;
  std::vector<double> mu_;
  std::vector<uint8_t> mask_;
  std::vector<double> entropy_;
  std::vector<double> d_logprob_;
  std::vector<double> d_entropy_;
  std::vector<Real> logprob_gradients_;
  std::vector<Real> entropy_gradients_;
  LivenessLog liveness_;
};

}  // namespace leeway

#endif  // LEEWAY_TRAINER_LOSS_GRADIENT_PASS_H_
