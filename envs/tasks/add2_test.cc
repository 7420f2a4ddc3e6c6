#include "envs/tasks/add2.h"

#include <map>

#include "gtest/gtest.h"

namespace leeway {
namespace {

TEST(Add2Test, AsksForSumsOfTwoDigitNumbersWithThreeDigits) {
  const auto task = NewAdd2Task();
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    const auto environment = task->NewEnvironment();
    const auto observation = environment->Reset(seed);
    ASSERT_TRUE(observation.ok());
    const std::string& text = observation->text;
    ASSERT_EQ(text.size(), 6u) << text;
    EXPECT_EQ(text[2], '+');
    EXPECT_EQ(text[5], '=');
    const int first = std::stoi(text.substr(0, 2));
    const int second = std::stoi(text.substr(3, 2));
    EXPECT_GE(first, 10);
    EXPECT_GE(second, 10);
    const int sum = first + second;
    const std::string right = {static_cast<char>('0' + sum / 100), static_cast<char>('0' + sum / 10 % 10),
                               static_cast<char>('0' + sum % 10)};
    EXPECT_EQ(task->Demonstrate(seed)->turns.at(0).second, right);
    EXPECT_EQ(*environment->Step(right)->reward, 1.0);
  }
}

TEST(Add2Test, RewardIsTheShareOfRightDigits) {
  const auto task = NewAdd2Task();
  const std::string right = task->Demonstrate(1)->turns.at(0).second;
  const auto reward_of = [&](const std::string& answer) {
    const auto environment = task->NewEnvironment();
    EXPECT_TRUE(environment->Reset(1).ok());
    return *environment->Step(answer)->reward;
  };
  EXPECT_EQ(reward_of(""), 0.0);
  EXPECT_EQ(reward_of(right.substr(0, 2)), 2.0 / 3);
  EXPECT_EQ(reward_of("x" + right.substr(1)), 2.0 / 3);
  EXPECT_EQ(reward_of("xx" + right.substr(2)), 1.0 / 3);
}

TEST(Add2Test, ASumAndItsMirrorLieOnOneSide) {
  const auto task = NewAdd2Task();
  // Unordered pair -> seen in training, seen held out.
  std::map<std::pair<int, int>, std::pair<bool, bool>> seen;
  const auto pair_of = [&](uint64_t seed) {
    const std::string text = task->NewEnvironment()->Reset(seed)->text;
    const int first = std::stoi(text.substr(0, 2)), second = std::stoi(text.substr(3, 2));
    return std::pair(std::min(first, second), std::max(first, second));
  };
  for (uint64_t i = 0; i < 5000; ++i) {
    seen[pair_of(task->TrainSeed(1, i))].first = true;
    seen[pair_of(task->EvaluationSeed(1, i))].second = true;
  }
  int held_out = 0;
  for (const auto& [pair, sides] : seen) {
    EXPECT_FALSE(sides.first && sides.second) << pair.first << "+" << pair.second;
    held_out += sides.second ? 1 : 0;
  }
  // An eighth of 4,095 pairs is 512, six standard deviations (21) allowed; nearly all of them come up in 5,000 draws.
  EXPECT_NEAR(held_out, 512, 130);
}

}  // namespace
}  // namespace leeway
