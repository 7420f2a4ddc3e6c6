#ifndef LEEWAY_TRAINER_FAKE_ROLLOUT_H_
#define LEEWAY_TRAINER_FAKE_ROLLOUT_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "base/executor.h"
#include "leeway/v1/types.pb.h"
#include "model/transformer/transformer.h"
#include "queue/queue_client.h"

namespace leeway {

// A tiny model for tests: 64 symbols, one layer, 32 positions.
ModelShape TinyShape();

// Stands in for engine and environment in tests of the trainer: episodes of two turns with random (not sampled) tokens,
// a legal set and a temperature in the first turn, and log-probabilities that are exactly the model's. Everything is a
// function of (ticket, member) and the parameters. Not thread-safe.
class FakeRollout {
 public:
  FakeRollout(const ModelShape& shape, ParallelFor* parallel) : model_(shape, parallel), shape_(shape) {}

  // The weights that the following episodes are recorded under.
  void SetWeights(const v1::WeightsVersion& weights, absl::Span<const float> parameters);

  // Given 4 ids, 3 sampled, 1 given, 2 sampled, 1 given. The reward is the share of sampled ids that are even.
  v1::Trajectory Episode(uint64_t ticket, uint32_t member);
  BatchGroup Group(uint64_t ticket, int members);
  // Groups of tickets (step - 1) * groups + 1 .. step * groups.
  LeasedBatch Batch(uint64_t step, int groups, int members);

 private:
  Transformer<float> model_;
  const ModelShape shape_;
  v1::WeightsVersion weights_;
};

}  // namespace leeway

#endif  // LEEWAY_TRAINER_FAKE_ROLLOUT_H_
