#include "envs/tasks/guess20.h"

#include <cmath>
#include <map>

#include "base/random.h"
#include "envs/play.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace leeway {
namespace {

using ::testing::HasSubstr;

int SecretOf(const Task& task, uint64_t seed) { return std::stoi(task.Demonstrate(seed)->turns.back().second); }

// A seed with this secret.
uint64_t SeedOf(const Task& task, int secret) {
  uint64_t seed = 0;
  while (SecretOf(task, seed) != secret) ++seed;
  return seed;
}

TEST(Guess20Test, HintsAndRewardsAreAsWritten) {
  const auto task = NewGuess20Task();
  const auto environment = task->NewEnvironment();
  const auto first = environment->Reset(SeedOf(*task, 13));
  EXPECT_EQ(first->text, ">");
  EXPECT_EQ(first->legal_characters, "0123456789");
  EXPECT_FALSE(first->end_of_text_is_legal);
  EXPECT_EQ(first->max_answer_tokens, 2);
  const auto low = environment->Step("10");
  EXPECT_EQ(low->next.text, "h");
  EXPECT_EQ(low->state, EpisodeState::kRunning);
  EXPECT_FALSE(low->reward.has_value());
  EXPECT_EQ(environment->Step("99")->next.text, "l");
  EXPECT_EQ(environment->Step("00")->next.text, "h");
  const auto found = environment->Step("13");
  EXPECT_EQ(found->state, EpisodeState::kTerminated);
  EXPECT_DOUBLE_EQ(*found->reward, 0.85);
}

TEST(Guess20Test, TenWrongGuessesAreTruncatedWithRewardZero) {
  const auto task = NewGuess20Task();
  const auto environment = task->NewEnvironment();
  ASSERT_TRUE(environment->Reset(SeedOf(*task, 2)).ok());
  for (int turn = 1; turn < 10; ++turn) EXPECT_EQ(environment->Step("01")->state, EpisodeState::kRunning);
  const auto last = environment->Step("01");
  EXPECT_EQ(last->state, EpisodeState::kTruncated);
  EXPECT_EQ(*last->reward, 0.0);
}

TEST(Guess20Test, TheTenthGuessMayStillBeRight) {
  const auto task = NewGuess20Task();
  const auto environment = task->NewEnvironment();
  ASSERT_TRUE(environment->Reset(SeedOf(*task, 2)).ok());
  for (int turn = 1; turn < 10; ++turn) ASSERT_TRUE(environment->Step("01").ok());
  const auto last = environment->Step("02");
  EXPECT_EQ(last->state, EpisodeState::kTerminated);
  EXPECT_DOUBLE_EQ(*last->reward, 0.55);
}

TEST(Guess20Test, OtherAnswersAreErrors) {
  const auto task = NewGuess20Task();
  const auto environment = task->NewEnvironment();
  EXPECT_EQ(environment->Step("10").status().code(), absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(environment->Reset(1).ok());
  for (const char* answer : {"", "1", "1x", "123"}) {
    EXPECT_EQ(environment->Step(answer).status().code(), absl::StatusCode::kInvalidArgument) << answer;
  }
  EXPECT_THAT(std::string(environment->Step("a\n").status().message()), HasSubstr("'a\\n' is not a guess"));
}

TEST(Guess20Test, SecretsAreEvenlySpreadAndBinarySearchEarnsItsOptimum) {
  const auto task = NewGuess20Task();
  std::map<int, int> count;
  std::map<int, double> reward;
  for (uint64_t i = 0; i < 4000; ++i) {
    const uint64_t seed = task->TrainSeed(7, i);
    const auto demonstration = task->Demonstrate(seed);
    const int secret = std::stoi(demonstration->turns.back().second);
    ++count[secret];
    reward[secret] = 1.0 - 0.05 * (static_cast<double>(demonstration->turns.size()) - 1.0);
  }
  ASSERT_EQ(count.size(), 20u);
  double sum = 0.0;
  for (int secret = 1; secret <= 20; ++secret) {
    // 200 each, six standard deviations (14) allowed.
    EXPECT_NEAR(count[secret], 200, 84) << secret;
    sum += reward[secret];
  }
  // A balanced tree over 20 numbers: 1, 2, 4, 8 and 5 of them are found at guess 1, 2, 3, 4 and 5: 74 guesses in all.
  EXPECT_DOUBLE_EQ(sum / 20, 1.0 - 0.05 * (74.0 / 20 - 1.0));
}

TEST(Guess20Test, ARandomPolicyEarnsWhatTheSeriesSays) {
  const auto task = NewGuess20Task();
  const auto environment = task->NewEnvironment();
  RandomStream random({.seed = 1});
  double sum = 0.0;
  const int episodes = 10'000;
  for (int i = 0; i < episodes; ++i) {
    const auto policy = [&](const Observation&) {
      return std::string{static_cast<char>('0' + random.NextBelow(10)), static_cast<char>('0' + random.NextBelow(10))};
    };
    sum += *PlayEpisode(*environment, task->TrainSeed(2, static_cast<uint64_t>(i)), policy, 10)->reward;
  }
  // Each guess hits with probability 1/100.
  double expected = 0.0;
  for (int turn = 1; turn <= 10; ++turn) expected += std::pow(0.99, turn - 1) * 0.01 * (1.0 - 0.05 * (turn - 1));
  // Standard error: sqrt(0.095 * 0.6) / 100 = 0.0024.
  EXPECT_NEAR(sum / episodes, expected, 0.01);
}

}  // namespace
}  // namespace leeway
