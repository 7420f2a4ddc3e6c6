#include "envs/play.h"

#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace leeway {
namespace {

using ::testing::HasSubstr;

// Asks for as many answers as the seed says, each worth `reward`.
class CountingEnvironment : public Environment {
 public:
  explicit CountingEnvironment(Observation observation, std::optional<double> reward = 0.5)
      : observation_(std::move(observation)), reward_(reward) {}

  absl::StatusOr<Observation> Reset(uint64_t seed) override {
    turns_left_ = seed;
    return observation_;
  }
  absl::StatusOr<StepResult> Step(const std::string& answer) override {
    --turns_left_;
    return StepResult{observation_, turns_left_ == 0 ? EpisodeState::kTruncated : EpisodeState::kRunning, reward_};
  }

 private:
  const Observation observation_;
  const std::optional<double> reward_;
  uint64_t turns_left_ = 0;
};

const Observation kTwoDigits = {
    .text = "?", .legal_characters = "01", .end_of_text_is_legal = false, .max_answer_tokens = 2};

Policy Always(std::string answer) {
  return [answer](const Observation&) { return answer; };
}

TEST(PlayEpisodeTest, AddsUpRewardsAndWritesTheTranscript) {
  CountingEnvironment environment(kTwoDigits);
  const auto episode = PlayEpisode(environment, 3, Always("10"), 3);
  ASSERT_TRUE(episode.ok()) << episode.status();
  EXPECT_EQ(episode->reward, 1.5);
  EXPECT_EQ(episode->turns, 3);
  EXPECT_EQ(episode->state, EpisodeState::kTruncated);
  EXPECT_EQ(episode->transcript, "?10?10?10");
}

TEST(PlayEpisodeTest, AnEpisodeWithoutRewardsIsUnscored) {
  CountingEnvironment environment(kTwoDigits, std::nullopt);
  EXPECT_FALSE(PlayEpisode(environment, 2, Always("10"), 3)->reward.has_value());
}

TEST(PlayEpisodeTest, HoldsThePolicyToTheRules) {
  CountingEnvironment environment(kTwoDigits);
  const auto message = [&](const std::string& answer) {
    return std::string(PlayEpisode(environment, 1, Always(answer), 3).status().message());
  };
  EXPECT_THAT(message("101"), HasSubstr("longer than the 2 characters"));
  EXPECT_THAT(message("1x"), HasSubstr("not in the legal set '01'"));
  EXPECT_THAT(message("1"), HasSubstr("end-of-text is not legal"));
  CountingEnvironment free({.text = "?", .max_answer_tokens = 2});
  EXPECT_TRUE(PlayEpisode(free, 1, Always(""), 3).ok());
}

TEST(PlayEpisodeTest, HoldsTheEnvironmentToTheRules) {
  CountingEnvironment endless(kTwoDigits);
  EXPECT_EQ(PlayEpisode(endless, 4, Always("10"), 3).status().code(), absl::StatusCode::kDeadlineExceeded);
  CountingEnvironment not_a_number(kTwoDigits, std::numeric_limits<double>::quiet_NaN());
  EXPECT_THAT(std::string(PlayEpisode(not_a_number, 1, Always("10"), 3).status().message()),
              HasSubstr("reward of turn 1 is nan"));
  CountingEnvironment speechless({.text = "?", .max_answer_tokens = 0});
  EXPECT_THAT(std::string(PlayEpisode(speechless, 1, Always(""), 3).status().message()),
              HasSubstr("allows 0 answer tokens"));
}

TEST(CheckObservationTest, SomeAnswerMustBeLegal) {
  EXPECT_TRUE(CheckObservation({.text = ""}).ok());
  EXPECT_TRUE(CheckObservation({.legal_characters = "", .end_of_text_is_legal = true}).ok());
  EXPECT_FALSE(CheckObservation({.legal_characters = "", .end_of_text_is_legal = false}).ok());
  EXPECT_FALSE(CheckObservation({.max_answer_tokens = -1}).ok());
}

}  // namespace
}  // namespace leeway
