#ifndef LEEWAY_ROLLOUT_ENGINE_NAIVE_GENERATOR_H_
#define LEEWAY_ROLLOUT_ENGINE_NAIVE_GENERATOR_H_

// The truth that tests hold the engine against: one sequence at a time, nothing cached, no batches.

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "base/random.h"
#include "base/status_macros.h"
#include "model/transformer/transformer.h"
#include "rollout/engine/engine.h"
#include "rollout/engine/sampler.h"

namespace leeway {

// A model small enough that a test can afford thousands of passes.
inline ModelShape TinyShape() {
  ModelShape shape;
  shape.vocabulary = 64;
  shape.hidden = 32;
  shape.layers = 2;
  shape.heads = 4;
  shape.key_value_heads = 2;
  shape.head_dim = 8;
  shape.intermediate = 48;
  shape.max_positions = 64;
  return shape;
}

// Weights of a version: far enough from each other, and peaked enough, that a wrong version shows in every number.
inline std::vector<float> TinyWeights(uint64_t version) {
  std::vector<float> weights = RandomParameters(TinyShape(), 1000 + version);
  for (float& weight : weights) weight = weight == 1.0f ? 1.0f : 10.0f * weight;
  return weights;
}

// Next token after `ids` by weights of any of the versions added, computed from nothing.
class NaiveGenerator {
 public:
  explicit NaiveGenerator(uint64_t seed) : seed_(seed), parallel_(1) {}

  SampledToken Next(uint64_t version, const std::vector<int32_t>& ids, const EpisodeIdentity& identity,
                    uint32_t interaction, uint64_t position, const TurnRequest& request) {
    KeyValueCache<float> cache(TinyShape());
    return Continue(version, &cache, ids, identity, interaction, position, request);
  }

  // The same behind a cache that somebody filled before: `ids` are the new ones.
  SampledToken Continue(uint64_t version, KeyValueCache<float>* cache, const std::vector<int32_t>& ids,
                        const EpisodeIdentity& identity, uint32_t interaction, uint64_t position,
                        const TurnRequest& request) {
    std::vector<float> logits;
    LEEWAY_CHECK(Model(version)->Decode({{cache, ids, true}}, &logits).ok());
    std::vector<float> scratch(logits.size());
    std::vector<int32_t> legal;
    if (request.legal_ids != nullptr) legal = *request.legal_ids;
    const RandomKey key{seed_, identity.purpose, identity.ticket, identity.member, interaction, position};
    return SampleToken(absl::MakeSpan(logits), request.sampling, legal, RandomUniform(key), absl::MakeSpan(scratch));
  }

  Transformer<float>* Model(uint64_t version) {
    std::unique_ptr<Transformer<float>>& model = models_[version];
    if (model == nullptr) {
      model = std::make_unique<Transformer<float>>(TinyShape(), &parallel_);
      model->SetParameters(TinyWeights(version));
    }
    return model.get();
  }

 private:
  const uint64_t seed_;
  ParallelFor parallel_;
  std::map<uint64_t, std::unique_ptr<Transformer<float>>> models_;
};

}  // namespace leeway

#endif  // LEEWAY_ROLLOUT_ENGINE_NAIVE_GENERATOR_H_
