#include "trainer/optimizer/adamw.h"

#include <cmath>

#include "gtest/gtest.h"

namespace leeway {
namespace {

// A matrix of 2x2, a norm of 3, another matrix of 1x2.
std::vector<ParameterInfo> Layout() {
  return {{"a.weight", {2, 2}, 0, 4}, {"norm.weight", {3}, 4, 3}, {"b.weight", {1, 2}, 7, 2}};
}

std::vector<float> Ramp(int count, float scale) {
  std::vector<float> values(count);
  for (int i = 0; i < count; ++i) values[i] = scale * static_cast<float>((i * 37) % 19 - 9);
  return values;
}

TEST(AdamWTest, FollowsThePapersUpdateInDouble) {
  OptimizerOptions options;
  options.weight_decay = 0.1;
  options.beta1 = 0.8;
  options.beta2 = 0.95;
  options.epsilon = 1e-6;
  ParallelFor parallel(1);
  AdamW optimizer(options, Layout(), &parallel);
  std::vector<float> parameters = Ramp(9, 0.05f);
  std::vector<double> p(parameters.begin(), parameters.end()), m(9, 0), v(9, 0);
  for (int step = 1; step <= 5; ++step) {
    const std::vector<float> gradients = Ramp(9, 0.01f * static_cast<float>(step));
    const double lr = 0.02 / step, scale = 0.5;
    optimizer.Step(lr, scale, gradients, absl::MakeSpan(parameters));
    for (int i = 0; i < 9; ++i) {
      const double g = gradients[i] * scale;
      m[i] = 0.8 * m[i] + 0.2 * g;
      v[i] = 0.95 * v[i] + 0.05 * g * g;
      const double m_hat = m[i] / (1 - std::pow(0.8, step)), v_hat = v[i] / (1 - std::pow(0.95, step));
      const bool is_norm = i >= 4 && i < 7;
      p[i] -= is_norm ? 0 : lr * 0.1 * p[i];
      p[i] -= lr * m_hat / (std::sqrt(v_hat) + 1e-6);
      EXPECT_NEAR(parameters[i], p[i], 2e-6) << "step " << step << " element " << i;
    }
  }
  EXPECT_EQ(optimizer.state().updates, 5);
}

TEST(AdamWTest, WithoutGradientOnlyMatricesDecay) {
  OptimizerOptions options;
  options.weight_decay = 0.5;
  ParallelFor parallel(1);
  AdamW optimizer(options, Layout(), &parallel);
  std::vector<float> parameters(9, 1.0f);
  optimizer.Step(0.1, 1.0, std::vector<float>(9, 0.0f), absl::MakeSpan(parameters));
  EXPECT_EQ(parameters[0], static_cast<float>(1 - 0.1 * 0.5));
  EXPECT_EQ(parameters[5], 1.0f);
  EXPECT_EQ(parameters[8], static_cast<float>(1 - 0.1 * 0.5));
}

TEST(AdamWTest, ExportedStateContinuesToTheSameBits) {
  ParallelFor parallel(1);
  AdamW whole(OptimizerOptions(), Layout(), &parallel);
  std::vector<float> expected = Ramp(9, 0.05f);
  for (int step = 1; step <= 4; ++step) whole.Step(1e-2, 1.0, Ramp(9, 0.3f / step), absl::MakeSpan(expected));

  std::vector<float> actual = Ramp(9, 0.05f);
  AdamW first(OptimizerOptions(), Layout(), &parallel);
  for (int step = 1; step <= 2; ++step) first.Step(1e-2, 1.0, Ramp(9, 0.3f / step), absl::MakeSpan(actual));
  AdamW second(OptimizerOptions(), Layout(), &parallel);
  second.set_state(first.state());
  for (int step = 3; step <= 4; ++step) second.Step(1e-2, 1.0, Ramp(9, 0.3f / step), absl::MakeSpan(actual));
  EXPECT_EQ(actual, expected);
}

TEST(AdamWTest, ThreadsChangeNoBit) {
  const int count = 200'000;
  const std::vector<ParameterInfo> layout = {{"a", {count / 2, 1}, 0, count / 2},
                                             {"b", {count / 2}, count / 2, count / 2}};
  ParallelFor one(1), four(4);
  const std::vector<float> gradients = Ramp(count, 0.013f);
  EXPECT_EQ(GlobalNorm(gradients, &one), GlobalNorm(gradients, &four));
  AdamW a(OptimizerOptions(), layout, &one), b(OptimizerOptions(), layout, &four);
  std::vector<float> x = Ramp(count, 0.1f), y = x;
  a.Step(1e-3, 0.7, gradients, absl::MakeSpan(x));
  b.Step(1e-3, 0.7, gradients, absl::MakeSpan(y));
  EXPECT_EQ(x, y);
}

// Cutting parameters into parts, in any grouping of calls, is the same update to the bit.
template <typename Real>
void ExpectPartsEqualTheWhole() {
  OptimizerOptions options;
  options.weight_decay = 0.1;
  ParallelFor parallel(1);
  BasicAdamW<Real> whole(options, Layout(), &parallel);
  const std::vector<ParameterInfo> layout = Layout();
  const OptimizerPart parts[] = {{layout[0], 1, 2}, {layout[1], 0, 1}, {layout[2], 0, 0}};
  BasicAdamW<Real> shard(options, parts, &parallel);
  std::vector<Real> expected(9), actual;
  for (int i = 0; i < 9; ++i) expected[i] = Real{1} / (i + 3);
  actual = expected;
  for (int step = 1; step <= 3; ++step) {
    std::vector<Real> gradients(9);
    for (int i = 0; i < 9; ++i) gradients[i] = Real{1} / (i * step + 7) - Real{0.1};
    whole.Step(1e-2, 0.7, gradients, absl::MakeSpan(expected));
    shard.Begin(1e-2, 0.7);
    const PartUpdate<Real> last[] = {{2, nullptr, nullptr}, {1, gradients.data() + 4, actual.data() + 4}};
    const PartUpdate<Real> first[] = {{0, gradients.data() + 2, actual.data() + 2}};
    ASSERT_TRUE(shard.Update(last).ok());
    ASSERT_TRUE(shard.Update(first).ok());
  }
  for (int i : {2, 3, 4}) EXPECT_EQ(actual[i], expected[i]) << i;
  EXPECT_EQ(shard.state_bytes(), static_cast<int64_t>(6 * sizeof(Real)));
  const std::vector<PartState<Real>> states = shard.PartStates();
  ASSERT_EQ(states.size(), 6u);
  EXPECT_EQ(states[1].part, 0);
  EXPECT_EQ(std::string(states[1].name), "second_moment");
  EXPECT_EQ(states[1].values[1], whole.state().second_moment[3]);
  EXPECT_EQ(shard.updates(), 3);
}

TEST(AdamWTest, PartsEqualTheWholeToTheBit) {
  ExpectPartsEqualTheWhole<float>();
  ExpectPartsEqualTheWhole<double>();
}

}  // namespace
}  // namespace leeway
