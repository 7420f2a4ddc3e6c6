#include "envs/single_turn.h"

#include "gtest/gtest.h"

namespace leeway {
namespace {

std::shared_ptr<SingleTurnRules> Rules() {
  auto rules = std::make_shared<SingleTurnRules>();
  rules->exercise_of_seed = [](uint64_t seed) -> absl::StatusOr<Exercise> {
    if (seed == 13) return absl::InvalidArgumentError("no exercise 13");
    return Exercise{.prompt = std::to_string(seed) + "=", .solution = std::to_string(seed)};
  };
  rules->score = [](const Exercise& exercise, const std::string& answer) {
    return answer == exercise.solution ? 1.0 : 0.25;
  };
  rules->max_answer_tokens = 4;
  return rules;
}

TEST(SingleTurnEnvironmentTest, PlaysOneTurn) {
  SingleTurnEnvironment environment(Rules());
  EXPECT_EQ(environment.Step("1").status().code(), absl::StatusCode::kFailedPrecondition);
  const auto observation = environment.Reset(42);
  EXPECT_EQ(observation->text, "42=");
  EXPECT_EQ(observation->max_answer_tokens, 4);
  const auto result = environment.Step("42");
  EXPECT_EQ(result->state, EpisodeState::kTerminated);
  EXPECT_EQ(result->reward, 1.0);
  EXPECT_EQ(environment.Step("42").status().code(), absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(environment.Reset(7).ok());
  EXPECT_EQ(environment.Step("42")->reward, 0.25);
}

TEST(SingleTurnEnvironmentTest, PassesOnThatASeedHasNoExercise) {
  SingleTurnEnvironment environment(Rules());
  EXPECT_EQ(environment.Reset(13).status().message(), "no exercise 13");
  EXPECT_EQ(environment.Step("42").status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(ShareOfRightCharactersTest, CountsPlaces) {
  EXPECT_EQ(ShareOfRightCharacters("abcd", "abcd"), 1.0);
  EXPECT_EQ(ShareOfRightCharacters("abcd", "abxd"), 0.75);
  EXPECT_EQ(ShareOfRightCharacters("abcd", "bcd"), 0.0);
  EXPECT_EQ(ShareOfRightCharacters("abcd", "ab"), 0.5);
  EXPECT_EQ(ShareOfRightCharacters("abcd", "abcdefgh"), 1.0);
  EXPECT_EQ(ShareOfRightCharacters("abcd", ""), 0.0);
}

}  // namespace
}  // namespace leeway
