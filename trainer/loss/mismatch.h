#ifndef LEEWAY_TRAINER_LOSS_MISMATCH_H_
#define LEEWAY_TRAINER_LOSS_MISMATCH_H_

// Do the recorded log-probabilities belong to the weights that they claim? Both sides compute with the same kernels, so
// at lag 0 the answer is an equality of bits; at a larger lag only statistics are left.

#include <vector>

#include "absl/types/span.h"
#include "trainer/loss/train_batch.h"

namespace leeway {

// Over the trained tokens of a batch, q = prox / mu (prox = recomputed at the step's weights, mu = recorded). All exact
// at lag 0: 0, 0, 1, 1.
struct MismatchMetrics {
  double k1 = 0;         // mean of -log q
  double k3 = 0;         // mean of q - 1 - log q
  double ratio_max = 1;  // largest q
  double ess = 1;        // (sum q)^2 / (N * sum q^2), per token
};

// log q is clamped to +-20 before exp. Without trained tokens: the values of lag 0.
MismatchMetrics ComputeMismatch(const TrainBatch& batch, absl::Span<const double> prox);

// Groups with a token at lag 0, in a trajectory whose KV cache was consistent, whose recomputed log-probability is not
// equal to the recorded one. Reason "logprob_mismatch"; the detail names the first such token. In ticket order.
std::vector<RefusedGroup> FindMismatches(const TrainBatch& batch, absl::Span<const double> prox);

}  // namespace leeway

#endif  // LEEWAY_TRAINER_LOSS_MISMATCH_H_
