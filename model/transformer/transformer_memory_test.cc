// What saves memory changes no bit: activations computed again, parameters streamed unit by unit.

#include <algorithm>
#include <string>
#include <vector>

#include "base/status_macros.h"
#include "collective/in_process/run_ranks.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/memory.h"
#include "model/random_case.h"
#include "model/transformer/transformer.h"

namespace leeway {
namespace {

using internal::NextTokenPositions;
using internal::OddShape;
using internal::RandomSequences;
using internal::SameBits;
using internal::SmallShape;
using internal::SpreadParameters;
using ::testing::ElementsAre;

constexpr Recompute kAllRecomputes[] = {Recompute::kNone, Recompute::kSelective, Recompute::kFull};

ModelShape DeepShape(bool tied) {
  ModelShape shape = OddShape();
  shape.layers = 4;
  shape.key_value_heads = 4;
  shape.tied_head = tied;
  return shape;
}

// Every family, tied and untied.
std::vector<ModelShape> DeepShapes() {
  std::vector<ModelShape> shapes = {DeepShape(true), DeepShape(false), DeepShape(true), DeepShape(false)};
  shapes[2].family = ModelFamily::kQwen2;
  shapes[3].family = ModelFamily::kQwen3;
  return shapes;
}

struct Outcome {
  PositionScores<float> scores;
  std::vector<float> gradients;
  int64_t kept_bytes = 0;
  int64_t weight_bytes_forward = 0;
  int64_t weight_bytes = 0;
};

const std::vector<int64_t> kLengths = {5, 0, 33, 1, 16};

// Gathers what a pass delivers, and hands out parameters from one buffer that is overwritten each time.
class Units : public ParameterStream<float>, public GradientSink<float> {
 public:
  Units(const ModelShape& shape, absl::Span<const float> flat)
      : units_(ParameterUnits(shape)), flat_(flat), gradients_(flat.size(), 0.0f) {}

  absl::StatusOr<WeightSpan<float>> Acquire(int64_t unit, int64_t next) override {
    acquired.push_back(unit);
    EXPECT_TRUE(expected_next == -1 || unit == expected_next) << unit << " after " << expected_next << " was announced";
    expected_next = next;
    if (unit == fails_at) return absl::UnavailableError("rank 3 is gone");
    const ParameterUnit& range = units_[unit];
    lent_.assign(flat_.size(), -1e30f);  // whoever kept the last unit's values reads this
    std::copy_n(flat_.data() + range.begin, range.element_count(), lent_.begin());
    return WeightSpan<float>(absl::MakeConstSpan(lent_).first(range.element_count()));
  }

  absl::Status Add(int64_t unit, absl::Span<const float> gradient) override {
    added.push_back(unit);
    for (size_t i = 0; i < gradient.size(); ++i) gradients_[units_[unit].begin + i] += gradient[i];
    return absl::OkStatus();
  }

  const std::vector<float>& gradients() const { return gradients_; }

  std::vector<int64_t> acquired;
  std::vector<int64_t> added;
  int64_t expected_next = -1;
  int64_t fails_at = -1;

 private:
  const std::vector<ParameterUnit> units_;
  const absl::Span<const float> flat_;
  std::vector<float> lent_;
  std::vector<float> gradients_;
};

absl::StatusOr<Outcome> Compute(const ModelShape& shape, absl::Span<const float> flat,
                                const std::vector<int64_t>& lengths, const TransformerOptions& options, int threads,
                                Units* units = nullptr) {
  const PackedSequences sequences = RandomSequences(shape, lengths, 41);
  const std::vector<ScoredPosition> positions = NextTokenPositions(sequences);
  ParallelFor parallel(threads);
  Transformer<float> model(shape, &parallel, options);
  if (units == nullptr) {
    model.SetParameters(flat);
  } else {
    model.StreamParameters(units);
  }
  Outcome outcome;
  LEEWAY_RETURN_IF_ERROR(model.Score(sequences, positions, {}, true, &outcome.scores));
  outcome.kept_bytes = model.kept_bytes();
  outcome.weight_bytes_forward = model.weight_bytes();
  std::vector<float> for_logprobs, for_entropies;
  for (size_t i = 0; i < positions.size(); ++i) {
    for_logprobs.push_back(0.1f * static_cast<float>(i % 7) - 0.3f);
    for_entropies.push_back(0.05f * static_cast<float>(i % 3));
  }
  if (units != nullptr) {
    LEEWAY_RETURN_IF_ERROR(model.Backward(for_logprobs, for_entropies, units));
    outcome.gradients = units->gradients();
  } else {
    outcome.gradients.assign(flat.size(), 0.0f);
    LEEWAY_RETURN_IF_ERROR(model.Backward(for_logprobs, for_entropies, absl::MakeSpan(outcome.gradients)));
  }
  outcome.weight_bytes = model.weight_bytes();
  return outcome;
}

TEST(RecomputeTest, ChangesNoBitAndKeepsWhatTheFormulaSays) {
  for (const ModelShape& shape : DeepShapes()) {
    const std::vector<float> flat = SpreadParameters<float>(shape, 42);
    const Outcome expected = *Compute(shape, flat, kLengths, {}, 1);
    for (const Recompute recompute : kAllRecomputes) {
      const absl::StatusOr<Outcome> outcome = Compute(shape, flat, kLengths, {.recompute = recompute}, 2);
      ASSERT_TRUE(outcome.ok()) << outcome.status();
      EXPECT_TRUE(SameBits(outcome->scores.logprobs, expected.scores.logprobs));
      EXPECT_TRUE(SameBits(outcome->gradients, expected.gradients));
      EXPECT_EQ(outcome->kept_bytes, ActivationBytes(shape, {}, recompute, kLengths, sizeof(float)));
      EXPECT_EQ(outcome->weight_bytes_forward, PackedWeightBytes(shape, {}, false, false, sizeof(float)));
      EXPECT_EQ(outcome->weight_bytes, PackedWeightBytes(shape, {}, false, true, sizeof(float)));
    }
  }
}

TEST(RecomputeTest, ChangesNoBitOnRanksEither) {
  for (const ModelShape& shape : DeepShapes()) {
    const std::vector<float> flat = SpreadParameters<float>(shape, 43);
    for (const int size : {2, 4}) {
      for (const bool sequence : {false, true}) {
        std::vector<std::vector<float>> expected(static_cast<size_t>(size));
        for (const Recompute recompute : kAllRecomputes) {
          const absl::Status status =
              RunRanksToStatus(size, absl::Seconds(60), [&](int rank, Communicator* ranks) -> absl::Status {
                std::vector<float> shard(static_cast<size_t>(TensorShard(shape, rank, size).ParameterCount()));
                CopyToShard<float>(TensorShardSlices(shape, rank, size), flat, absl::MakeSpan(shard));
                LEEWAY_ASSIGN_OR_RETURN(
                    const Outcome outcome,
                    Compute(shape, shard, kLengths,
                            {.tensor_parallel = {.ranks = ranks, .sequence = sequence}, .recompute = recompute}, 1));
                if (recompute == Recompute::kNone) expected[rank] = outcome.gradients;
                EXPECT_TRUE(SameBits(outcome.gradients, expected[rank])) << "rank " << rank << " of " << size;
                EXPECT_EQ(outcome.kept_bytes, ActivationBytes(shape, {rank, size, sequence}, recompute, kLengths, 4));
                return absl::OkStatus();
              });
          EXPECT_TRUE(status.ok()) << status;
        }
      }
    }
  }
}

// The constants of the formula by hand, for SmolLM2-135M: 576 + 576 stream, (9 + 6) * 64 q k v, 9 * 64 attention, 2 *
// 1536 gate and up, 6 * 64 keys and values by tiles.
TEST(ActivationBytesTest, KnownFigures) {
  const ModelShape shape = internal::SmolShape();
  EXPECT_EQ(ActivationBytes(shape, {}, Recompute::kNone, {1024}, 4), 4 * 1024 * (576 + 30 * int64_t{6144}));
  EXPECT_EQ(ActivationBytes(shape, {}, Recompute::kSelective, {1024}, 4), 4 * 1024 * (576 + 30 * int64_t{3072} + 3072));
  EXPECT_EQ(ActivationBytes(shape, {}, Recompute::kFull, {1024}, 4), 4 * 1024 * (576 + 30 * int64_t{576} + 5568));
}

TEST(StreamTest, StreamedUnitsGiveTheSameBits) {
  for (const ModelShape& shape : DeepShapes()) {
    for (const int threads : {1, 2}) {
      const std::vector<float> flat = SpreadParameters<float>(shape, 44);
      for (const Recompute recompute : kAllRecomputes) {
        const Outcome expected = *Compute(shape, flat, kLengths, {.recompute = recompute}, threads);
        Units units(shape, flat);
        const absl::StatusOr<Outcome> outcome =
            Compute(shape, flat, kLengths, {.recompute = recompute}, threads, &units);
        ASSERT_TRUE(outcome.ok()) << outcome.status();
        EXPECT_TRUE(SameBits(outcome->scores.logprobs, expected.scores.logprobs));
        EXPECT_TRUE(SameBits(outcome->scores.entropies, expected.scores.entropies));
        EXPECT_EQ(outcome->weight_bytes, PackedWeightBytes(shape, {}, true, true, sizeof(float)));
        EXPECT_TRUE(SameBits(outcome->gradients, expected.gradients));
        // Embedding and head are not needed a second time.
        EXPECT_THAT(units.acquired, ElementsAre(0, 1, 2, 3, 4, 5, 4, 3, 2, 1));
        EXPECT_THAT(units.added, ElementsAre(5, 4, 3, 2, 1, 0));
      }
    }
  }
}

TEST(StreamTest, ABatchWithoutTokensTakesPart) {
  const ModelShape shape = DeepShape(false);
  const std::vector<float> flat = SpreadParameters<float>(shape, 45);
  Units units(shape, flat);
  const absl::StatusOr<Outcome> outcome = Compute(shape, flat, {}, {}, 2, &units);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_THAT(units.acquired, ElementsAre(0, 1, 2, 3, 4, 5, 4, 3, 2, 1));
  EXPECT_THAT(units.added, ElementsAre(5, 4, 3, 2, 1, 0));
  EXPECT_EQ(std::count(outcome->gradients.begin(), outcome->gradients.end(), 0.0f),
            static_cast<int64_t>(outcome->gradients.size()));
}

TEST(StreamTest, ErrorsOfTheStreamEndThePass) {
  const ModelShape shape = DeepShape(false);
  const std::vector<float> flat = SpreadParameters<float>(shape, 46);
  for (const int64_t unit : {0, 2, 5}) {
    Units units(shape, flat);
    units.fails_at = unit;
    EXPECT_EQ(Compute(shape, flat, kLengths, {}, 1, &units).status(), absl::UnavailableError("rank 3 is gone"));
    EXPECT_EQ(units.acquired.back(), unit);
  }
}

TEST(ParameterUnitsTest, CoverTheLayoutInOrder) {
  for (const ModelShape& shape : DeepShapes()) {
    const std::vector<ParameterUnit> units = ParameterUnits(shape);
    ASSERT_EQ(units.size(), 6u);
    int64_t next = 0;
    for (const ParameterUnit& unit : units) {
      EXPECT_EQ(unit.begin, next);
      next = unit.end;
    }
    EXPECT_EQ(next, shape.ParameterCount());
    for (const ParameterInfo& info : ParameterLayout(shape)) {
      int64_t expected = 5;
      if (info.name == "model.embed_tokens.weight") expected = 0;
      if (info.name.rfind("model.layers.", 0) == 0) expected = 1 + (info.name[13] - '0');
      EXPECT_GE(info.offset, units[expected].begin) << info.name;
      EXPECT_LE(info.offset + info.element_count, units[expected].end) << info.name;
    }
  }
}

}  // namespace
}  // namespace leeway
