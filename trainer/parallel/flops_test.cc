#include "trainer/parallel/flops.h"

#include "gtest/gtest.h"

namespace leeway {
namespace {

ModelShape Llama8B() {
  return {.vocabulary = 128256,
          .hidden = 4096,
          .layers = 32,
          .heads = 32,
          .key_value_heads = 8,
          .head_dim = 128,
          .intermediate = 14336,
          .max_positions = 131072,
          .tied_head = false};
}

// Plain GPT widths in this family's words: 4h of plain feed-forward are 8h/3 of SwiGLU.
ModelShape GptWidths() {
  return {.vocabulary = 51200,
          .hidden = 1536,
          .layers = 5,
          .heads = 12,
          .key_value_heads = 12,
          .head_dim = 128,
          .intermediate = 4096,
          .max_positions = 2048,
          .tied_head = true};
}

SequenceWork Batch(int64_t sequences, int64_t length) {
  SequenceWork work;
  for (int64_t i = 0; i < sequences; ++i) work.Add(length, length);
  return work;
}

// Published figures for 8,192 tokens of context.
TEST(FlopsTest, Llama8BPerToken) {
  const ModelShape shape = Llama8B();
  EXPECT_EQ(shape.ParameterCount(), 8'030'261'248);
  const SequenceWork work = Batch(1, 8192);
  const double full = ModelFlops(shape, work, AttentionCount::kFull) / 8192;
  const double causal = ModelFlops(shape, work, AttentionCount::kCausal) / 8192;
  EXPECT_NEAR(full, 5.791e10, 0.5e7);
  EXPECT_NEAR(causal, 5.147e10, 0.5e7);
  // 5,762 tokens a second on a device of 989e12.
  EXPECT_NEAR(5762 * full / 989e12, 0.337, 5e-4);
  EXPECT_NEAR(5762 * causal / 989e12, 0.300, 5e-4);
  EXPECT_NEAR(6667 * full / 989e12, 0.390, 5e-4);
  EXPECT_NEAR(6667 * causal / 989e12, 0.347, 5e-4);
}

// 72BLsh^2(1 + s/6h + V/12hL) and, with full recomputation, 96BLsh^2(1 + s/6h + V/16hL).
TEST(FlopsTest, ThePapersClosedForms) {
  const ModelShape shape = GptWidths();
  const double b = 3, l = 5, s = 640, h = 1536, v = 51200;
  const SequenceWork work = Batch(3, 640);
  const double base = b * l * s * h * h;
  const double model = 72 * base * (1 + s / (6 * h) + v / (12 * h * l));
  EXPECT_NEAR(ModelFlops(shape, work, AttentionCount::kFull) / model, 1, 1e-14);
  const auto hardware = [&](Recompute recompute) {
    return HardwareFlops(shape, work, AttentionCount::kFull, recompute);
  };
  EXPECT_NEAR(hardware(Recompute::kNone), model, 1e-9 * model);
  // 4hf a token and layer, of the forward pass's 6hf.
  EXPECT_NEAR(hardware(Recompute::kSelective) - model, 4.0 * b * l * s * h * 4096, 1e-9 * model);
  // The formula repeats the product behind the activation too, another 2hf.
  const double full = 96 * base * (1 + s / (6 * h) + v / (16 * h * l));
  EXPECT_NEAR(hardware(Recompute::kFull), full - 2.0 * b * l * s * h * 4096, 1e-9 * model);
}

TEST(FlopsTest, SumsOverSequencesAreAllThatMatters) {
  const ModelShape shape = Llama8B();
  SequenceWork work;
  work.Add(100, 40);
  work.Add(7, 0);
  work.Add(1, 1);
  EXPECT_EQ(work.tokens, 108);
  EXPECT_EQ(work.squared_lengths, 10'050);
  EXPECT_EQ(work.scored, 41);
  const ForwardFlops causal = CountForward(shape, work, AttentionCount::kCausal);
  const ForwardFlops full = CountForward(shape, work, AttentionCount::kFull);
  EXPECT_EQ(full.attention, 2 * causal.attention);
  EXPECT_EQ(full.attention, 32.0 * 4 * 4096 * 10'050);
  EXPECT_EQ(causal.linear, 32.0 * 108 * (4.0 * 4096 * 4096 * 1.25 + 6.0 * 4096 * 14336));
  EXPECT_EQ(causal.head, 2.0 * 4096 * 128256 * 41);
}

TEST(FlopsTest, CostOfLengthIsTheForwardPass) {
  const LengthCost cost = CostOfLength(Llama8B());
  SequenceWork work;
  work.Add(321, 321);
  EXPECT_NEAR(cost.Of(321) / CountForward(Llama8B(), work, AttentionCount::kCausal).total(), 1, 1e-14);
}

TEST(RecomputeTest, Names) {
  for (const std::string& name : RecomputeNames()) EXPECT_TRUE(ParseRecompute(name).ok()) << name;
  EXPECT_EQ(ParseRecompute("some").status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace leeway
