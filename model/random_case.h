#ifndef LEEWAY_MODEL_RANDOM_CASE_H_
#define LEEWAY_MODEL_RANDOM_CASE_H_

// For tests and benchmarks: shapes, weights and sequences with enough spread that a wrong formula shows.

#include <cstdint>
#include <cstring>
#include <ostream>
#include <vector>

#include "base/random.h"
#include "model/shape.h"
#include "model/transformer/transformer.h"

namespace leeway {

// For the names of parameterised tests.
inline void PrintTo(const ModelShape& shape, std::ostream* out) {
  *out << ModelFamilyName(shape.family) << ", hidden " << shape.hidden << ", heads " << shape.heads << "/"
       << shape.key_value_heads << " of " << shape.head_dim << (shape.tied_head ? ", tied" : "");
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

// The same with biases on the projections.
inline ModelShape OddQwen2Shape() {
  ModelShape shape = OddShape();
  shape.family = ModelFamily::kQwen2;
  return shape;
}

// Norms over heads of whole panels: what the narrow heads of OddShape pad is not there.
inline ModelShape TiedQwen3Shape() {
  ModelShape shape = OddShape();
  shape.family = ModelFamily::kQwen3;
  shape.head_dim = 32;
  shape.tied_head = true;
  shape.rms_epsilon = 1e-6;
  return shape;
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

// Equal as bytes: -0 is not 0, and a NaN is itself.
template <typename Real>
bool SameBits(const std::vector<Real>& a, const std::vector<Real>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(Real)) == 0);
}

inline RandomStream Stream(uint64_t seed) {
  return RandomStream(RandomKey{.seed = seed, .purpose = RandomPurpose::kShuffle});
}

// A shape of any family: few layers, sizes of no kind.
inline ModelShape RandomShape(uint64_t seed) {
  RandomStream stream = Stream(seed);
  const auto between = [&](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(stream.NextBelow(static_cast<uint64_t>(high - low + 1)));
  };
  ModelShape shape;
  shape.key_value_heads = between(1, 3);
  shape.heads = shape.key_value_heads * between(1, 3);
  shape.head_dim = 2 * between(1, 20);
  shape.hidden = between(8, 70);  // the norm of a few values amplifies rounding
  shape.intermediate = between(1, 90);
  shape.vocabulary = between(32, 120);
  shape.layers = between(1, 3);
  shape.max_positions = 64;
  shape.rope_theta = seed % 2 == 0 ? 10000.0 : 1e6;
  shape.rms_epsilon = seed % 3 == 0 ? 1e-6 : 1e-5;
  shape.tied_head = stream.NextBelow(2) == 0;
  shape.family = static_cast<ModelFamily>(seed % 3);
  return shape;
}

// `count` of them: every family as often.
inline std::vector<ModelShape> RandomShapes(int count) {
  std::vector<ModelShape> shapes;
  for (int i = 0; i < count; ++i) shapes.push_back(RandomShape(1000 + static_cast<uint64_t>(i)));
  return shapes;
}

// Weights large enough that softmax and attention are far from uniform; norms around 1, biases around 0.
template <typename Real>
std::vector<Real> SpreadParameters(const ModelShape& shape, uint64_t seed) {
  RandomStream stream = Stream(seed);
  std::vector<Real> flat;
  flat.reserve(static_cast<size_t>(shape.ParameterCount()));
  for (const ParameterInfo& info : ParameterLayout(shape)) {
    const bool is_bias = info.name.ends_with(".bias");
    for (int64_t i = 0; i < info.element_count; ++i) {
      const double normal = stream.NextNormal();
      const double value = is_bias ? 0.3 * normal : info.shape.size() == 1 ? 1.0 + 0.2 * normal : 0.15 * normal;
      // Rounded to float, so that both Reals get the same weights.
      flat.push_back(static_cast<Real>(static_cast<float>(value)));
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
