// bf16 weights under float arithmetic: the bits of a float model of the same rounded weights.

#include <vector>

#include "base/status_macros.h"
#include "collective/in_process/run_ranks.h"
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
using internal::SpreadParameters;

const std::vector<int64_t> kLengths = {5, 0, 33, 1, 16};

// Every family, tied and untied, and a head of several blocks.
std::vector<ModelShape> Shapes() {
  std::vector<ModelShape> shapes(4, OddShape());
  for (ModelShape& shape : shapes) shape.key_value_heads = 4;
  shapes[0].tied_head = false;
  shapes[1].vocabulary = 2500;
  shapes[2].family = ModelFamily::kQwen2;
  shapes[3].family = ModelFamily::kQwen3;
  shapes[3].tied_head = false;
  return shapes;
}

std::vector<uint16_t> Rounded(absl::Span<const float> values) {
  std::vector<uint16_t> rounded;
  for (const float value : values) rounded.push_back(ToBf16(value));
  return rounded;
}

std::vector<float> Widened(absl::Span<const uint16_t> values) {
  std::vector<float> widened;
  for (const uint16_t value : values) widened.push_back(FromBf16(value));
  return widened;
}

// Lends bf16, and takes gradients.
class Bf16Units : public ParameterStream<float>, public GradientSink<float> {
 public:
  Bf16Units(const ModelShape& shape, std::vector<uint16_t> flat)
      : units_(ParameterUnits(shape)), flat_(std::move(flat)), gradients(flat_.size(), 0.0f) {}
  absl::StatusOr<WeightSpan<float>> Acquire(int64_t unit, int64_t) override {
    lent_.assign(flat_.begin() + units_[unit].begin, flat_.begin() + units_[unit].end);
    return WeightSpan<float>(absl::MakeConstSpan(lent_));
  }
  absl::Status Add(int64_t unit, absl::Span<const float> gradient) override {
    std::copy(gradient.begin(), gradient.end(), gradients.begin() + units_[unit].begin);
    return absl::OkStatus();
  }

 private:
  const std::vector<ParameterUnit> units_;
  const std::vector<uint16_t> flat_;
  std::vector<uint16_t> lent_;

 public:
  std::vector<float> gradients;
};

struct Outcome {
  PositionScores<float> scores;
  std::vector<float> gradients;
  int64_t weight_bytes = 0;
};

absl::StatusOr<Outcome> Pass(Transformer<float>* model, Bf16Units* units) {
  const PackedSequences sequences = RandomSequences(model->shape(), kLengths, 41);
  const std::vector<ScoredPosition> positions = NextTokenPositions(sequences);
  const std::vector<float> ones(positions.size(), 1.0f), tenths(positions.size(), 0.1f);
  Outcome outcome;
  LEEWAY_RETURN_IF_ERROR(model->Score(sequences, positions, {}, true, &outcome.scores));
  if (units != nullptr) {
    LEEWAY_RETURN_IF_ERROR(model->Backward(ones, tenths, units));
    outcome.gradients = units->gradients;
  } else {
    outcome.gradients.assign(static_cast<size_t>(model->shard().ParameterCount()), 0.0f);
    LEEWAY_RETURN_IF_ERROR(model->Backward(ones, tenths, absl::MakeSpan(outcome.gradients)));
  }
  outcome.weight_bytes = model->weight_bytes();
  return outcome;
}

void ExpectSame(const absl::StatusOr<Outcome>& outcome, const Outcome& expected) {
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_TRUE(SameBits(outcome->scores.logprobs, expected.scores.logprobs));
  EXPECT_TRUE(SameBits(outcome->scores.entropies, expected.scores.entropies));
  EXPECT_TRUE(SameBits(outcome->gradients, expected.gradients));
}

TEST(PrecisionTest, Bf16WeightsGiveTheBitsOfTheRoundedFloats) {
  for (const ModelShape& shape : Shapes()) {
    const std::vector<float> flat = SpreadParameters<float>(shape, 51);
    const std::vector<uint16_t> bf16 = Rounded(flat);
    for (const int threads : {1, 2}) {
      ParallelFor parallel(threads);
      Transformer<float> plain(shape, &parallel);
      plain.SetParameters(Widened(bf16));
      const Outcome expected = *Pass(&plain, nullptr);
      for (const WeightFormat format : {WeightFormat::kRoundedReal, WeightFormat::kBf16}) {
        Transformer<float> of_floats(shape, &parallel, {.weights = format});
        of_floats.SetParameters(flat);
        const absl::StatusOr<Outcome> outcome = Pass(&of_floats, nullptr);
        ExpectSame(outcome, expected);
        EXPECT_EQ(outcome->weight_bytes, PackedWeightBytes(shape, {}, false, true, sizeof(float), format));
        Transformer<float> of_bf16(shape, &parallel, {.weights = format});
        of_bf16.SetParameters(absl::MakeConstSpan(bf16));
        ExpectSame(Pass(&of_bf16, nullptr), expected);
        Bf16Units units(shape, bf16);
        Transformer<float> streamed(shape, &parallel, {.recompute = Recompute::kFull, .weights = format});
        streamed.StreamParameters(&units);
        const absl::StatusOr<Outcome> of_stream = Pass(&streamed, &units);
        ExpectSame(of_stream, expected);
        EXPECT_EQ(of_stream->weight_bytes, PackedWeightBytes(shape, {}, true, true, sizeof(float), format));
      }
    }
  }
}

TEST(PrecisionTest, DecodeGivesThemToo) {
  for (const ModelShape& shape : Shapes()) {
    const std::vector<float> flat = SpreadParameters<float>(shape, 52);
    ParallelFor parallel(2);
    std::vector<std::vector<float>> logits;
    for (const WeightFormat format : {WeightFormat::kReal, WeightFormat::kRoundedReal, WeightFormat::kBf16}) {
      Transformer<float> model(shape, &parallel, {.weights = format});
      model.SetParameters(format == WeightFormat::kReal ? Widened(Rounded(flat)) : flat);
      KeyValueCache<float> first(shape), second(shape);
      const std::vector<int32_t> prompt = {3, 1, 4, 1, 5}, other = {2, 7}, next = {6};
      logits.emplace_back();
      for (const auto& [one, two] : {std::pair{prompt, other}, std::pair{next, next}}) {
        const std::vector<SequenceChunk<float>> chunks = {{&first, one, true}, {&second, two, true}};
        ASSERT_TRUE(model.Decode(chunks, &logits.back()).ok());
      }
    }
    EXPECT_TRUE(SameBits(logits[1], logits[0]));
    EXPECT_TRUE(SameBits(logits[2], logits[0]));
  }
}

TEST(PrecisionTest, TensorParallelRanksGiveThemToo) {
  for (const ModelShape& shape : Shapes()) {
    const std::vector<float> flat = SpreadParameters<float>(shape, 53);
    ParallelFor parallel(1);
    Transformer<float> alone(shape, &parallel, {.weights = WeightFormat::kBf16});
    alone.SetParameters(flat);
    const Outcome whole = *Pass(&alone, nullptr);
    for (const int size : {2, 4}) {
      const absl::Status status =
          RunRanksToStatus(size, absl::Seconds(60), [&](int rank, Communicator* ranks) -> absl::Status {
            ParallelFor own(1);
            std::vector<float> shard(static_cast<size_t>(TensorShard(shape, rank, size).ParameterCount()));
            CopyToShard<float>(TensorShardSlices(shape, rank, size), flat, absl::MakeSpan(shard));
            const auto outcome_of = [&](WeightFormat format, bool sequence) {
              Transformer<float> model(shape, &own,
                                       {.tensor_parallel = {.ranks = ranks, .sequence = sequence}, .weights = format});
              model.SetParameters(shard);
              return Pass(&model, nullptr);
            };
            for (const bool sequence : {false, true}) {
              LEEWAY_ASSIGN_OR_RETURN(const Outcome expected, outcome_of(WeightFormat::kRoundedReal, sequence));
              const absl::StatusOr<Outcome> outcome = outcome_of(WeightFormat::kBf16, sequence);
              ExpectSame(outcome, expected);
              EXPECT_TRUE(SameBits(outcome->scores.logprobs, whole.scores.logprobs));
              EXPECT_EQ(outcome->weight_bytes, PackedWeightBytes(shape, {rank, size, sequence}, false, true,
                                                                 sizeof(float), WeightFormat::kBf16));
            }
            return absl::OkStatus();
          });
      EXPECT_TRUE(status.ok()) << status;
    }
  }
}

TEST(PrecisionTest, SmallModelsAreKeptAsFloats) {
  EXPECT_EQ(FormatOfBf16(OddShape()), WeightFormat::kRoundedReal);
  EXPECT_EQ(FormatOfBf16(internal::SmolShape()), WeightFormat::kBf16);
}

}  // namespace
}  // namespace leeway
