#ifndef LEEWAY_MODEL_RANDOM_CASE_H_
#define LEEWAY_MODEL_RANDOM_CASE_H_

// For tests and benchmarks: shapes, weights and sequences with enough spread that a wrong formula shows.

#include <cstdint>
#include <ostream>
#include <vector>

#include "base/random.h"
#include "model/shape.h"
#include "model/transformer.h"

namespace leeway {

// For the names of parameterised tests.
inline void PrintTo(const ModelShape& shape, std::ostream* out) {
  *out << "hidden " << shape.hidden << ", heads " << shape.heads << "/" << shape.key_value_heads << " of "
       << shape.head_dim << (shape.tied_head ? ", tied" : "");
}

namespace internal {

// Prime vocabulary, grouped heads, sizes that are no multiple of the kernels' 16 lanes.
inline ModelShape OddShape() {
  return {.vocabulary = 53,
          .hidden = 36,
          .layers = 2,
          .heads = 4,
          .key_value_heads = 2,
          .head_dim = 10,
          .intermediate = 44,
          .max_positions = 64,
          .rope_theta = 10000.0,
          .rms_epsilon = 1e-5,
          .tied_head = false};
}

// The size of the shipped sort5 configuration.
inline ModelShape SmallShape() {
  return {.vocabulary = 64,
          .hidden = 64,
          .layers = 2,
          .heads = 4,
          .key_value_heads = 4,
          .head_dim = 16,
          .intermediate = 176,
          .max_positions = 64,
          .tied_head = true};
}

// SmolLM2-135M.
inline ModelShape SmolShape() {
  return {.vocabulary = 49152,
          .hidden = 576,
          .layers = 30,
          .heads = 9,
          .key_value_heads = 3,
          .head_dim = 64,
          .intermediate = 1536,
          .max_positions = 8192,
          .rope_theta = 100000.0,
          .tied_head = true};
}

inline RandomStream Stream(uint64_t seed) {
  return RandomStream(RandomKey{.seed = seed, .purpose = RandomPurpose::kShuffle});
}

// Weights large enough that softmax and attention are far from uniform; norms around 1.
template <typename Real>
std::vector<Real> SpreadParameters(const ModelShape& shape, uint64_t seed) {
  RandomStream stream = Stream(seed);
  std::vector<Real> flat;
  flat.reserve(static_cast<size_t>(shape.ParameterCount()));
  for (const ParameterInfo& info : ParameterLayout(shape)) {
    for (int64_t i = 0; i < info.element_count; ++i) {
      const double normal = stream.NextNormal();
      // Rounded to float, so that both Reals get the same weights.
      flat.push_back(
          static_cast<Real>(static_cast<float>(info.shape.size() == 1 ? 1.0 + 0.2 * normal : 0.15 * normal)));
    }
  }
  return flat;
}

// Sequences of the given lengths.
inline PackedSequences RandomSequences(const ModelShape& shape, const std::vector<int64_t>& lengths, uint64_t seed) {
  RandomStream stream = Stream(seed);
  PackedSequences packed;
  for (const int64_t length : lengths) {
    for (int64_t i = 0; i < length; ++i) {
      packed.tokens.push_back(static_cast<int32_t>(stream.NextBelow(static_cast<uint64_t>(shape.vocabulary))));
    }
    packed.starts.push_back(static_cast<int64_t>(packed.tokens.size()));
  }
  return packed;
}

// "After row i came the token of row i + 1", for all rows but each sequence's last.
inline std::vector<ScoredPosition> NextTokenPositions(const PackedSequences& sequences) {
  std::vector<ScoredPosition> positions;
  for (int64_t s = 0; s < sequences.sequence_count(); ++s) {
    for (int64_t row = sequences.starts[s]; row + 1 < sequences.starts[s + 1]; ++row) {
      positions.push_back({.row = row, .target = sequences.tokens[row + 1]});
    }
  }
  return positions;
}

}  // namespace internal
}  // namespace leeway

#endif  // LEEWAY_MODEL_RANDOM_CASE_H_
