#include "trainer/loss/gradient_pass.h"

#include <algorithm>
#include <cmath>

#include "gtest/gtest.h"
#include "trainer/fake_rollout.h"

namespace leeway {
namespace {

constexpr int kGroups = 4;
constexpr int kMembers = 3;

// In double, on data recorded under other weights than those that are trained, so that every ratio differs from 1.
class GradientPassTest : public ::testing::Test {
 protected:
  GradientPassTest() : parallel_(1), rollout_(TinyShape(), &parallel_), model_(TinyShape(), &parallel_) {
    v1::WeightsVersion weights;
    weights.set_lineage(1);
    weights.set_version(1);
    rollout_.SetWeights(weights, RandomParameters(TinyShape(), 7));
    leased_ = rollout_.Batch(1, kGroups, kMembers);
    const std::vector<float> other = RandomParameters(TinyShape(), 7);
    parameters_.assign(other.begin(), other.end());
    for (size_t i = 0; i < parameters_.size(); ++i) parameters_[i] += 0.05 * std::sin(static_cast<double>(i));
  }

  TrainBatch Batch(int64_t micro_batch_tokens, const std::vector<BatchGroup>& groups) {
    TrainBatchOptions options;
    options.step = 1;
    options.vocabulary = 64;
    options.max_positions = 32;
    options.micro_batch_tokens = micro_batch_tokens;
    TrainBatch batch;
    std::vector<RefusedGroup> refused;
    EXPECT_TRUE(BuildTrainBatch(options, groups, &batch, &refused).ok());
    EXPECT_TRUE(refused.empty());
    return batch;
  }

  // Loss and gradient of one whole update.
  double Run(const ObjectiveOptions& options, const TrainBatch& batch, std::vector<double>* gradients) {
    model_.SetParameters(parameters_);
    GradientPass<double> pass(options, &model_);
    std::vector<double> theta;
    ObjectiveSums sums;
    gradients->assign(parameters_.size(), 0.0);
    EXPECT_TRUE(pass.Run(batch, batch.updates[0], {}, &theta, &sums, absl::MakeSpan(*gradients)).ok());
    return sums.loss;
  }

  static double Difference(const std::vector<double>& a, const std::vector<double>& b) {
    double largest = 0;
    for (size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
    return largest;
  }

  ParallelFor parallel_;
  FakeRollout rollout_;
  Transformer<double> model_;
  LeasedBatch leased_;
  std::vector<double> parameters_;
};

TEST_F(GradientPassTest, TheSplitIntoMicroBatchesChangesNothingInAnyAggregation) {
  for (const std::string& name : ObjectiveKindNames()) {
    for (const std::string& aggregation : AggregationKindNames()) {
      ObjectiveOptions options;
      options.kind = *ParseObjectiveKind(name);
      options.aggregation = *ParseAggregationKind(aggregation);
      options.entropy_coefficient = 0.01;
      options.max_tokens = 5;
      std::vector<double> whole, parts;
      const double loss = Run(options, Batch(1 << 20, leased_.groups), &whole);
      for (int64_t tokens : {1, 20, 50}) {
        EXPECT_NEAR(Run(options, Batch(tokens, leased_.groups), &parts), loss, 1e-12) << name << " " << aggregation;
        EXPECT_LT(Difference(whole, parts), 1e-12) << name << " " << aggregation << " " << tokens;
      }
    }
  }
}

TEST_F(GradientPassTest, TheOrderInWhichGroupsComeChangesNoBit) {
  std::vector<BatchGroup> reversed(leased_.groups.rbegin(), leased_.groups.rend());
  std::vector<double> a, b;
  EXPECT_EQ(Run(ObjectiveOptions(), Batch(40, leased_.groups), &a), Run(ObjectiveOptions(), Batch(40, reversed), &b));
  EXPECT_EQ(a, b);
}

// The whole chain against central differences of the loss. Reinforce has no clip in the way and no stop-gradient.
TEST_F(GradientPassTest, TheGradientIsThatOfTheLoss) {
  ObjectiveOptions options;
  options.kind = ObjectiveKind::kReinforce;
  options.entropy_coefficient = 0.1;
  const TrainBatch batch = Batch(1 << 20, leased_.groups);
  std::vector<double> gradient, ignored;
  Run(options, batch, &gradient);
  const double h = 1e-5;
  for (size_t i = 11; i < parameters_.size(); i += parameters_.size() / 23) {
    const double before = parameters_[i];
    parameters_[i] = before + h;
    const double up = Run(options, batch, &ignored);
    parameters_[i] = before - h;
    const double down = Run(options, batch, &ignored);
    parameters_[i] = before;
    EXPECT_NEAR(gradient[i], (up - down) / (2 * h), 1e-8) << i;
  }
}

TEST_F(GradientPassTest, AMaskedTokenHasNoInfluenceOnTheGradient) {
  TrainBatch batch = Batch(1 << 20, leased_.groups);
  batch.mask[2] = 0;
  batch.updates[0].normaliser.tokens -= 1;
  std::vector<double> a, b;
  Run(ObjectiveOptions(), batch, &a);
  batch.mu[2] = -1e9;
  Run(ObjectiveOptions(), batch, &b);
  EXPECT_EQ(a, b);
}

TEST_F(GradientPassTest, ScoresAloneAreThoseOfTheGradientPass) {
  const TrainBatch batch = Batch(30, leased_.groups);
  model_.SetParameters(parameters_);
  GradientPass<double> pass(ObjectiveOptions(), &model_);
  std::vector<double> alone, theta, gradients(parameters_.size());
  ObjectiveSums sums;
  ASSERT_TRUE(pass.Score(batch, &alone).ok());
  ASSERT_TRUE(pass.Run(batch, batch.updates[0], {}, &theta, &sums, absl::MakeSpan(gradients)).ok());
  EXPECT_EQ(alone, theta);
}

}  // namespace
}  // namespace leeway
