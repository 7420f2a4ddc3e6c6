#ifndef LEEWAY_ROLLOUT_ENGINE_SAMPLER_H_
#define LEEWAY_ROLLOUT_ENGINE_SAMPLER_H_

// From a row of logits to a token. Pure functions: no state, no threads, nothing blocks.

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace leeway {

// How tokens are drawn. Training episodes use the temperature (and the legal set of the turn) only, so that the trainer
// can apply the very same transform; the rest is for evaluation and free generation.
struct SamplingParameters {
  float temperature = 1.0f;
  // Only the k most likely legal ids; 0 = off. Ties: the smaller id.
  int32_t top_k = 0;
  // Only the most likely ids that together reach this probability; 1 = off.
  float top_p = 1.0f;
  // The most likely legal id (ties: the smaller one); the random number is not used.
  bool greedy = false;

  bool restricts() const { return top_k != 0 || top_p != 1.0f || greedy; }
  // INVALID_ARGUMENT listing every impossible value; `training` refuses whatever `restricts`.
  absl::Status Validate(bool training) const;
};

struct SampledToken {
  int32_t id = -1;
  // Of the distribution that `id` was drawn from: temperature and legal set applied, and renormalised over what top-k
  // and top-p left. Without those two it is the very float that LogSoftmaxRow gives for the id. Greedy: that float too
  // (the model's, not 0). Not finite when the logits were not: then nothing was drawn and id is -1.
  float logprob = 0.0f;
};

// Draws one token. `logits` (one per id of the vocabulary) become log-probabilities in place. `legal_ids`: ascending,
// in range, empty = all. `uniform` in [0, 1). The draw is the inverse of the cumulative distribution over ids in
// ascending order, summed in double from the left; an id of probability 0 is never drawn. `scratch` holds at least as
// many values as `logits`.
SampledToken SampleToken(absl::Span<float> logits, const SamplingParameters& sampling,
                         absl::Span<const int32_t> legal_ids, double uniform, absl::Span<float> scratch);

namespace internal {
// exp(x) for x <= 0 by a fixed polynomial in single precision without fused operations: the same bits on every machine
// and compiler (libm's are not). Relative error < 3e-7; 0 below -87.
float FixedExp(float x);
}  // namespace internal

}  // namespace leeway

#endif  // LEEWAY_ROLLOUT_ENGINE_SAMPLER_H_
