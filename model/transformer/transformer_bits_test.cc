// The same bits, whatever runs beside a sequence and whoever computes it.

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "model/instruction_set.h"
#include "model/random_case.h"
#include "model/transformer/transformer.h"

namespace leeway {
namespace {

using internal::NextTokenPositions;
using internal::OddQwen2Shape;
using internal::OddShape;
using internal::RandomSequences;
using internal::RandomShapes;
using internal::SameBits;
using internal::SmallShape;
using internal::SpreadParameters;
using internal::Stream;
using internal::TiedQwen3Shape;

std::vector<InstructionSet> SupportedSets() {
  std::vector<InstructionSet> sets;
  for (const InstructionSet set : {InstructionSet::kScalar, InstructionSet::kAvx2, InstructionSet::kAvx512}) {
    if (IsSupported(set)) sets.push_back(set);
  }
  return sets;
}

// Takes the override back when a test ends.
class ForcedSet {
 public:
  explicit ForcedSet(InstructionSet set) { OverrideInstructionSet(set); }
  ~ForcedSet() { OverrideInstructionSet(std::nullopt); }
};

// Sequences, what is scored in them, and the scores that everybody must reproduce.
template <typename Real>
struct Case {
  ModelShape shape;
  std::vector<Real> flat;
  PackedSequences sequences;
  std::vector<ScoredPosition> positions;
  std::vector<std::vector<int32_t>> legal_sets;
};

template <typename Real>
Case<Real> MakeCase(const ModelShape& shape, int64_t sequence_count, uint64_t seed) {
  Case<Real> c{shape, SpreadParameters<Real>(shape, seed), {}, {}, {}};
  RandomStream stream = Stream(seed + 1);
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < sequence_count; ++i) lengths.push_back(static_cast<int64_t>(2 + stream.NextBelow(38)));
  c.sequences = RandomSequences(shape, lengths, seed + 2);
  c.positions = NextTokenPositions(c.sequences);
  // Behind the last token too: what a prefill in one piece gives.
  for (int64_t i = 0; i < sequence_count; ++i)
    c.positions.push_back({.row = c.sequences.starts[i + 1] - 1, .target = 3});
  for (size_t i = 0; i < c.positions.size(); ++i) {
    c.positions[i].temperature = i % 2 == 0 ? 1.0f : 0.7f;
    if (i % 4 == 3) {
      c.positions[i].legal_set = static_cast<int32_t>(c.legal_sets.size());
      std::vector<int32_t> legal;
      for (int32_t id = 0; id < shape.vocabulary; ++id) {
        if (id == c.positions[i].target || stream.NextBelow(3) == 0) legal.push_back(id);
      }
      c.legal_sets.push_back(legal);
    }
  }
  return c;
}

template <typename Real>
PositionScores<Real> ScoreAll(const Case<Real>& c, int threads, bool keep = false) {
  ParallelFor parallel(threads);
  Transformer<Real> model(c.shape, &parallel);
  model.SetParameters(c.flat);
  PositionScores<Real> scores;
  EXPECT_TRUE(model.Score(c.sequences, c.positions, c.legal_sets, keep, &scores).ok());
  return scores;
}

// As an engine does it: chunks of `chunk` tokens (prompts of odd sequences in one piece), up to `batch` sequences at
// once, each joining when another has ended. Scores in the order of c.positions.
template <typename Real>
PositionScores<Real> DecodeAll(const Case<Real>& c, int threads, int64_t batch, int64_t chunk) {
  ParallelFor parallel(threads);
  Transformer<Real> model(c.shape, &parallel);
  model.SetParameters(c.flat);
  struct Request {
    int64_t sequence;
    int64_t done;
    KeyValueCache<Real> cache;
  };
  PositionScores<Real> scores;
  scores.logprobs.resize(c.positions.size());
  scores.entropies.resize(c.positions.size());
  std::vector<int64_t> position_of_row(c.sequences.tokens.size(), -1);
  for (size_t i = 0; i < c.positions.size(); ++i) position_of_row[c.positions[i].row] = static_cast<int64_t>(i);

  std::vector<Request> running;
  int64_t next = 0;
  std::vector<Real> logits;
  while (true) {
    while (static_cast<int64_t>(running.size()) < batch && next < c.sequences.sequence_count()) {
      running.push_back({next++, 0, KeyValueCache<Real>(c.shape)});
    }
    if (running.empty()) break;
    std::vector<SequenceChunk<Real>> chunks;
    for (Request& request : running) {
      const int64_t start = c.sequences.starts[request.sequence];
      const int64_t length = c.sequences.starts[request.sequence + 1] - start;
      const int64_t count = std::min(chunk, length - request.done);
      chunks.push_back(
          {&request.cache, absl::MakeConstSpan(c.sequences.tokens).subspan(start + request.done, count), true});
      request.done += count;
    }
    EXPECT_TRUE(model.Decode(chunks, &logits).ok());
    for (size_t i = 0; i < running.size(); ++i) {
      const int64_t row = c.sequences.starts[running[i].sequence] + running[i].done - 1;
      const int64_t index = position_of_row[row];
      if (index < 0) continue;
      const ScoredPosition& position = c.positions[index];
      const absl::Span<Real> own = absl::MakeSpan(logits).subspan(i * c.shape.vocabulary, c.shape.vocabulary);
      const absl::Span<const int32_t> legal =
          position.legal_set < 0 ? absl::Span<const int32_t>() : c.legal_sets[position.legal_set];
      scores.entropies[index] = LogSoftmaxRow<Real>(own, position.temperature, legal);
      scores.logprobs[index] = own[position.target];
    }
    std::vector<Request> rest;
    for (Request& request : running) {
      if (request.done < c.sequences.starts[request.sequence + 1] - c.sequences.starts[request.sequence]) {
        rest.push_back(std::move(request));
      }
    }
    running = std::move(rest);
  }
  return scores;
}

template <typename Real>
class BitsTest : public ::testing::Test {};
using Reals = ::testing::Types<float, double>;
TYPED_TEST_SUITE(BitsTest, Reals);

TYPED_TEST(BitsTest, DecodeTokenByTokenEqualsScore) {
  for (const ModelShape& shape : {OddShape(), SmallShape(), OddQwen2Shape(), TiedQwen3Shape()}) {
    const Case<TypeParam> c = MakeCase<TypeParam>(shape, 70, 5);
    const PositionScores<TypeParam> expected = ScoreAll(c, 1);
    for (const int64_t batch : {1, 7, 64}) {
      const PositionScores<TypeParam> scores = DecodeAll(c, 2, batch, 1);
      EXPECT_TRUE(SameBits(scores.logprobs, expected.logprobs)) << "batch " << batch;
      EXPECT_TRUE(SameBits(scores.entropies, expected.entropies)) << "batch " << batch;
    }
  }
}

TYPED_TEST(BitsTest, ChunkedPrefillEqualsScore) {
  for (const ModelShape& shape : {OddShape(), SmallShape(), OddQwen2Shape(), TiedQwen3Shape()}) {
    const Case<TypeParam> c = MakeCase<TypeParam>(shape, 20, 6);
    const PositionScores<TypeParam> expected = ScoreAll(c, 1);
    for (const int64_t chunk : {2, 5, 16, 1000}) {
      // Only the last row of each chunk has logits: compare what was computed.
      const PositionScores<TypeParam> scores = DecodeAll(c, 2, 7, chunk);
      int64_t compared = 0;
      for (size_t i = 0; i < scores.logprobs.size(); ++i) {
        if (scores.logprobs[i] == 0 && scores.entropies[i] == 0) continue;
        ++compared;
        EXPECT_EQ(scores.logprobs[i], expected.logprobs[i]) << "chunk " << chunk << ", position " << i;
        EXPECT_EQ(scores.entropies[i], expected.entropies[i]) << "chunk " << chunk << ", position " << i;
      }
      EXPECT_GE(compared, 20) << chunk;
    }
  }
}

TYPED_TEST(BitsTest, PackingOrderAndNeighboursDoNotMatter) {
  for (const ModelShape& shape : {OddShape(), OddQwen2Shape(), TiedQwen3Shape()}) {
    const Case<TypeParam> c = MakeCase<TypeParam>(shape, 30, 7);
    const PositionScores<TypeParam> expected = ScoreAll(c, 2);
    Case<TypeParam> reversed = c;
    reversed.sequences = {};
    reversed.positions.clear();
    PositionScores<TypeParam> in_order;
    for (int64_t s = c.sequences.sequence_count() - 1; s >= 0; --s) {
      const int64_t shift = static_cast<int64_t>(reversed.sequences.tokens.size()) - c.sequences.starts[s];
      for (size_t i = 0; i < c.positions.size(); ++i) {
        if (c.positions[i].row < c.sequences.starts[s] || c.positions[i].row >= c.sequences.starts[s + 1]) continue;
        reversed.positions.push_back(c.positions[i]);
        reversed.positions.back().row += shift;
        in_order.logprobs.push_back(expected.logprobs[i]);
        in_order.entropies.push_back(expected.entropies[i]);
      }
      reversed.sequences.tokens.insert(reversed.sequences.tokens.end(),
                                       c.sequences.tokens.begin() + c.sequences.starts[s],
                                       c.sequences.tokens.begin() + c.sequences.starts[s + 1]);
      reversed.sequences.starts.push_back(static_cast<int64_t>(reversed.sequences.tokens.size()));
    }
    const PositionScores<TypeParam> scores = ScoreAll(reversed, 2);
    EXPECT_TRUE(SameBits(scores.logprobs, in_order.logprobs));
    EXPECT_TRUE(SameBits(scores.entropies, in_order.entropies));
  }
}

TYPED_TEST(BitsTest, ThreadsAndKeptActivationsDoNotMatter) {
  for (const ModelShape& shape : {OddShape(), OddQwen2Shape(), TiedQwen3Shape()}) {
    for (const int64_t sequences : {1, 3, 60}) {
      const Case<TypeParam> c = MakeCase<TypeParam>(shape, sequences, 8);
      const PositionScores<TypeParam> expected = ScoreAll(c, 1);
      for (const int threads : {1, 2, 4}) {
        for (const bool keep : {false, true}) {
          const PositionScores<TypeParam> scores = ScoreAll(c, threads, keep);
          EXPECT_TRUE(SameBits(scores.logprobs, expected.logprobs)) << threads;
          EXPECT_TRUE(SameBits(scores.entropies, expected.entropies)) << threads;
        }
      }
    }
  }
}

TYPED_TEST(BitsTest, HoldsForShapesOfAnyKind) {
  for (const ModelShape& shape : RandomShapes(9)) {
    const Case<TypeParam> c = MakeCase<TypeParam>(shape, 6, 12);
    const PositionScores<TypeParam> expected = ScoreAll(c, 1);
    EXPECT_TRUE(SameBits(ScoreAll(c, 2, true).logprobs, expected.logprobs)) << ::testing::PrintToString(shape);
    EXPECT_TRUE(SameBits(DecodeAll(c, 2, 4, 1).logprobs, expected.logprobs)) << ::testing::PrintToString(shape);
    for (const InstructionSet set : SupportedSets()) {
      const ForcedSet forced(set);
      EXPECT_TRUE(SameBits(ScoreAll(c, 2).logprobs, expected.logprobs)) << InstructionSetName(set);
    }
  }
}

template <typename Real>
std::vector<Real> Gradients(const Case<Real>& c, int threads) {
  ParallelFor parallel(threads);
  Transformer<Real> model(c.shape, &parallel);
  model.SetParameters(c.flat);
  PositionScores<Real> scores;
  EXPECT_TRUE(model.Score(c.sequences, c.positions, c.legal_sets, true, &scores).ok());
  RandomStream stream = Stream(99);
  std::vector<Real> for_logprobs, for_entropies;
  for (size_t i = 0; i < c.positions.size(); ++i) {
    for_logprobs.push_back(static_cast<Real>(stream.NextNormal()));
    for_entropies.push_back(static_cast<Real>(stream.NextNormal()));
  }
  std::vector<Real> gradients(c.flat.size(), 0);
  EXPECT_TRUE(model.Backward(for_logprobs, for_entropies, absl::MakeSpan(gradients)).ok());
  return gradients;
}

TYPED_TEST(BitsTest, GradientsDoNotDependOnThreadsOrInstructionSet) {
  for (const ModelShape& shape : {OddShape(), SmallShape(), OddQwen2Shape(), TiedQwen3Shape()}) {
    for (const int64_t sequences : {2, 20}) {
      const Case<TypeParam> c = MakeCase<TypeParam>(shape, sequences, 9);
      const std::vector<TypeParam> expected = Gradients(c, 1);
      for (const int threads : {2, 4}) EXPECT_TRUE(SameBits(Gradients(c, threads), expected)) << threads;
      for (const InstructionSet set : SupportedSets()) {
        const ForcedSet forced(set);
        EXPECT_TRUE(SameBits(Gradients(c, 2), expected)) << InstructionSetName(set);
      }
    }
  }
}

TYPED_TEST(BitsTest, InstructionSetsAgree) {
  for (const ModelShape& shape : {OddShape(), SmallShape(), OddQwen2Shape(), TiedQwen3Shape()}) {
    const Case<TypeParam> c = MakeCase<TypeParam>(shape, 12, 10);
    const PositionScores<TypeParam> expected = ScoreAll(c, 2);
    for (const InstructionSet set : SupportedSets()) {
      const ForcedSet forced(set);
      const PositionScores<TypeParam> scores = ScoreAll(c, 2);
      EXPECT_TRUE(SameBits(scores.logprobs, expected.logprobs)) << InstructionSetName(set);
      EXPECT_TRUE(SameBits(scores.entropies, expected.entropies)) << InstructionSetName(set);
      const PositionScores<TypeParam> decoded = DecodeAll(c, 2, 5, 1);
      EXPECT_TRUE(SameBits(decoded.logprobs, expected.logprobs)) << InstructionSetName(set);
    }
  }
}

TYPED_TEST(BitsTest, ClearedCacheEqualsFreshCache) {
  const Case<TypeParam> c = MakeCase<TypeParam>(OddShape(), 1, 11);
  ParallelFor parallel(1);
  Transformer<TypeParam> model(c.shape, &parallel);
  KeyValueCache<TypeParam> cache(c.shape);
  std::vector<TypeParam> poisoned(c.flat.size(), std::numeric_limits<TypeParam>::quiet_NaN());
  std::vector<TypeParam> logits;
  // Fill a whole tile with nonsense first: what a cache held before must not leak into what it holds now.
  model.SetParameters(poisoned);
  const std::vector<int32_t> filler(32, 1);
  const SequenceChunk<TypeParam> fill{&cache, filler, true};
  ASSERT_TRUE(model.Decode(absl::MakeConstSpan(&fill, 1), &logits).ok());
  EXPECT_TRUE(std::isnan(logits[0]));
  const size_t bytes = cache.size_bytes();
  EXPECT_GT(bytes, 0u);
  cache.Clear();
  EXPECT_EQ(cache.length(), 0);
  EXPECT_EQ(cache.size_bytes(), bytes);
  model.SetParameters(c.flat);
  KeyValueCache<TypeParam> fresh(c.shape);
  std::vector<TypeParam> fresh_logits;
  for (const int32_t id : c.sequences.tokens) {
    const SequenceChunk<TypeParam> reused{&cache, absl::MakeConstSpan(&id, 1), true};
    const SequenceChunk<TypeParam> clean{&fresh, absl::MakeConstSpan(&id, 1), true};
    ASSERT_TRUE(model.Decode(absl::MakeConstSpan(&reused, 1), &logits).ok());
    ASSERT_TRUE(model.Decode(absl::MakeConstSpan(&clean, 1), &fresh_logits).ok());
    ASSERT_TRUE(SameBits(logits, fresh_logits));
  }
}

}  // namespace
}  // namespace leeway
