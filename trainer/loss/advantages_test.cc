#include "trainer/loss/advantages.h"

#include <cmath>
#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace leeway {
namespace {

using Rewards = std::vector<std::vector<std::optional<double>>>;
using ::testing::HasSubstr;

std::vector<double> OneGroup(AdvantageKind kind, const std::vector<double>& rewards) {
  Rewards group(1);
  for (double reward : rewards) group[0].push_back(reward);
  const Rewards advantages = ComputeAdvantages(kind, group, {false});
  std::vector<double> values;
  for (const std::optional<double>& advantage : advantages[0]) values.push_back(advantage.value());
  return values;
}

// Rewards 1, 0, 0, 1: mean 1/2, unbiased variance 4 * (1/4) / 3 = 1/3.
TEST(AdvantagesTest, GrpoDividesByTheUnbiasedGroupStd) {
  const std::vector<double> advantages = OneGroup(AdvantageKind::kGrpo, {1, 0, 0, 1});
  const double expected = 0.5 / (std::sqrt(1.0 / 3.0) + 1e-6);
  EXPECT_NEAR(advantages[0], expected, 1e-15);
  EXPECT_NEAR(advantages[1], -expected, 1e-15);
  EXPECT_NEAR(advantages[3], expected, 1e-15);
}

TEST(AdvantagesTest, DrGrpoOnlySubtractsTheMean) {
  EXPECT_EQ(OneGroup(AdvantageKind::kDrGrpo, {3, 1, 2, 2}), (std::vector<double>{1, -1, 0, 0}));
}

// By its own definition: each reward minus the mean of the others.
TEST(AdvantagesTest, RlooIsTheRewardMinusTheMeanOfTheOthers) {
  const std::vector<double> advantages = OneGroup(AdvantageKind::kRloo, {4, 1, 1});
  EXPECT_NEAR(advantages[0], 4 - 1, 1e-15);
  EXPECT_NEAR(advantages[1], 1 - 2.5, 1e-15);
  EXPECT_NEAR(advantages[2], 1 - 2.5, 1e-15);
}

// Group baselines first: {1,0} -> {.5,-.5}, {4,0} -> {2,-2}. Batch mean 0, unbiased variance (2*.25 + 2*4)/3 = 17/6.
TEST(AdvantagesTest, ReinforcePlusPlusNormalisesOverTheBatchAfterTheGroupBaseline) {
  const auto advantages =
      ComputeAdvantages(AdvantageKind::kReinforcePlusPlusBaseline, Rewards{{1.0, 0.0}, {4.0, 0.0}}, {false, false});
  const double scale = 1.0 / (std::sqrt(17.0 / 6.0) + 1e-6);
  EXPECT_NEAR(*advantages[0][0], 0.5 * scale, 1e-15);
  EXPECT_NEAR(*advantages[0][1], -0.5 * scale, 1e-15);
  EXPECT_NEAR(*advantages[1][0], 2.0 * scale, 1e-15);
  EXPECT_NEAR(*advantages[1][1], -2.0 * scale, 1e-15);
}

TEST(AdvantagesTest, OneMemberOrEqualRewardsGiveExactlyZeroInEveryKind) {
  for (const std::string& name : AdvantageKindNames()) {
    const AdvantageKind kind = *ParseAdvantageKind(name);
    EXPECT_EQ(AdvantageKindName(kind), name);
    EXPECT_EQ(OneGroup(kind, {0.7}), std::vector<double>{0}) << name;
    // Seven times 0.1 sums to something that divided by seven is not 0.1.
    EXPECT_EQ(OneGroup(kind, std::vector<double>(7, 0.1)), std::vector<double>(7, 0)) << name;
  }
}

TEST(AdvantagesTest, MembersWithoutRewardEnterNoBaselineAndGetNothing) {
  const auto advantages =
      ComputeAdvantages(AdvantageKind::kDrGrpo, Rewards{{1.0, std::nullopt, 0.0}, {std::nullopt, 5.0}}, {false, false});
  EXPECT_DOUBLE_EQ(*advantages[0][0], 0.5);
  EXPECT_FALSE(advantages[0][1].has_value());
  EXPECT_DOUBLE_EQ(*advantages[0][2], -0.5);
  EXPECT_FALSE(advantages[1][0].has_value());
  EXPECT_EQ(*advantages[1][1], 0.0);
}

TEST(AdvantagesTest, AGroupMarkedZeroAdvantageIsZeroAndOutOfTheBatchStatistics) {
  const auto with = ComputeAdvantages(AdvantageKind::kReinforcePlusPlusBaseline,
                                      Rewards{{1.0, 0.0}, {4.0, 0.0}, {9.0, -100.0}}, {false, false, true});
  const auto without =
      ComputeAdvantages(AdvantageKind::kReinforcePlusPlusBaseline, Rewards{{1.0, 0.0}, {4.0, 0.0}}, {false, false});
  EXPECT_EQ(with[0], without[0]);
  EXPECT_EQ(with[1], without[1]);
  EXPECT_EQ(*with[2][0], 0.0);
  EXPECT_EQ(*with[2][1], 0.0);
}

TEST(AdvantagesTest, OnlyACompletedAndScoredEpisodeHasAReward) {
  v1::Trajectory trajectory;
  trajectory.set_outcome(v1::COMPLETED);
  EXPECT_FALSE(TrainableReward(trajectory).has_value());
  trajectory.mutable_score()->set_status(v1::Score::SCORED);
  trajectory.mutable_score()->set_reward(0.0);
  EXPECT_EQ(TrainableReward(trajectory), 0.0);
  trajectory.mutable_score()->set_status(v1::Score::UNSCORED);
  EXPECT_FALSE(TrainableReward(trajectory).has_value());
  trajectory.mutable_score()->set_status(v1::Score::SCORING_FAILED);
  EXPECT_FALSE(TrainableReward(trajectory).has_value());
  trajectory.mutable_score()->set_status(v1::Score::SCORED);
  trajectory.set_outcome(v1::FAILED);
  EXPECT_FALSE(TrainableReward(trajectory).has_value());
}

TEST(AdvantagesTest, AnUnknownNameIsAnsweredWithThePossibleOnes) {
  EXPECT_THAT(std::string(ParseAdvantageKind("gae").status().message()),
              AllOf(HasSubstr("gae"), HasSubstr("grpo, dr_grpo, rloo, reinforce_pp_baseline")));
}

}  // namespace
}  // namespace leeway
