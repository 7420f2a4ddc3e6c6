#include "envs/tasks/sort5.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/random.h"
#include "gtest/gtest.h"
#include "tokenizer/character_tokenizer.h"

namespace leeway {
namespace {

double RewardOf(const Task& task, uint64_t seed, const std::string& answer) {
  const auto environment = task.NewEnvironment();
  EXPECT_TRUE(environment->Reset(seed).ok());
  const auto result = environment->Step(answer);
  EXPECT_EQ(result->state, EpisodeState::kTerminated);
  return *result->reward;
}

TEST(Sort5Test, AsksForFiveDigitsInOrder) {
  const auto task = NewSort5Task();
  std::map<char, int> digit_count;
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    const auto observation = task->NewEnvironment()->Reset(seed);
    ASSERT_TRUE(observation.ok());
    EXPECT_EQ(observation->max_answer_tokens, 5);
    EXPECT_TRUE(observation->end_of_text_is_legal);
    EXPECT_FALSE(observation->legal_characters.has_value());
    ASSERT_EQ(observation->text.size(), 6u);
    EXPECT_EQ(observation->text[5], '>');
    std::string digits = observation->text.substr(0, 5);
    for (const char digit : digits) ++digit_count[digit];
    std::sort(digits.begin(), digits.end());
    EXPECT_EQ(task->Demonstrate(seed)->turns.at(0).second, digits);
  }
  // 5,000 digits: each near 500, six standard deviations (21) allowed.
  EXPECT_EQ(digit_count.size(), 10u);
  for (const auto& [digit, count] : digit_count) EXPECT_NEAR(count, 500, 130) << digit;
}

TEST(Sort5Test, RewardIsTheShareOfRightPlaces) {
  const auto task = NewSort5Task();
  const std::string right = task->Demonstrate(5)->turns.at(0).second;
  EXPECT_EQ(RewardOf(*task, 5, right), 1.0);
  EXPECT_EQ(RewardOf(*task, 5, ""), 0.0);
  EXPECT_EQ(RewardOf(*task, 5, right.substr(0, 3)), 3.0 / 5);
  EXPECT_EQ(RewardOf(*task, 5, "x" + right.substr(1)), 4.0 / 5);
  EXPECT_EQ(RewardOf(*task, 5, "xxxxx"), 0.0);
}

TEST(Sort5Test, ARandomPolicyEarnsAlmostNothing) {
  const auto task = NewSort5Task();
  const CharacterTokenizer tokenizer;
  RandomStream random({.seed = 3});
  double sum = 0.0;
  const int episodes = 20'000;
  for (int i = 0; i < episodes; ++i) {
    std::string answer;
    for (int32_t id = 1; id != 0 && answer.size() < 5;) {
      id = static_cast<int32_t>(random.NextBelow(64));
      // The beginning id has no text; give it a place, as the length limit does.
      answer += id == 1 ? "?" : *tokenizer.Decode({id});
    }
    sum += RewardOf(*task, static_cast<uint64_t>(i), answer);
  }
  // Place k is reached with probability (63/64)^k and right with 1/64.
  double expected = 0.0;
  for (int k = 0; k < 5; ++k) expected += std::pow(63.0 / 64.0, k) / 64.0 / 5.0;
  // Standard error: at most sqrt(0.0156 / 5 / 20000) = 0.0004.
  EXPECT_NEAR(sum / episodes, expected, 0.0016);
}

}  // namespace
}  // namespace leeway
