#include "envs/tasks/reverse5.h"

#include <set>

#include "gtest/gtest.h"

namespace leeway {
namespace {

TEST(Reverse5Test, AsksForFiveLettersBackwards) {
  const auto task = NewReverse5Task();
  std::set<char> letters;
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    const auto environment = task->NewEnvironment();
    const auto observation = environment->Reset(seed);
    ASSERT_TRUE(observation.ok());
    const std::string& text = observation->text;
    ASSERT_EQ(text.size(), 6u);
    EXPECT_EQ(text[5], '>');
    for (int i = 0; i < 5; ++i) {
      EXPECT_TRUE(text[i] >= 'a' && text[i] <= 'z');
      letters.insert(text[i]);
    }
    const std::string right = {text[4], text[3], text[2], text[1], text[0]};
    EXPECT_EQ(task->Demonstrate(seed)->turns.at(0).second, right);
    EXPECT_EQ(*environment->Step(right)->reward, 1.0);
  }
  EXPECT_EQ(letters.size(), 26u);
}

TEST(Reverse5Test, RewardIsTheShareOfRightPlaces) {
  const auto task = NewReverse5Task();
  const std::string right = task->Demonstrate(9)->turns.at(0).second;
  for (size_t length = 0; length <= 5; ++length) {
    const auto environment = task->NewEnvironment();
    ASSERT_TRUE(environment->Reset(9).ok());
    EXPECT_EQ(*environment->Step(right.substr(0, length))->reward, static_cast<double>(length) / 5.0);
  }
}

}  // namespace
}  // namespace leeway
