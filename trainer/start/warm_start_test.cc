#include "trainer/start/warm_start.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/fake_rollout.h"

namespace leeway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Observation Ask(const std::string& text, int max_answer_tokens) {
  Observation observation;
  observation.text = text;
  observation.max_answer_tokens = max_answer_tokens;
  return observation;
}

// Answers one of three letters with the letter that follows it.
class NextLetterTask : public Task {
 public:
  std::string name() const override { return "next_letter"; }
  std::unique_ptr<Environment> NewEnvironment() const override { return nullptr; }
  uint64_t TrainSeed(uint64_t run_seed, uint64_t index) const override { return run_seed + index; }
  uint64_t EvaluationSeed(uint64_t, uint64_t index) const override { return index; }
  std::optional<Demonstration> Demonstrate(uint64_t seed) const override {
    if (!has_demonstrations) return std::nullopt;
    const char letter = static_cast<char>('a' + seed % 3);
    Demonstration demonstration;
    demonstration.turns.emplace_back(Ask(std::string(1, letter), 2), std::string(1, static_cast<char>(letter + 1)));
    return demonstration;
  }
  int max_turns() const override { return 1; }
  int max_episode_tokens() const override { return 4; }

  bool has_demonstrations = true;
};

class WarmStartTest : public ::testing::Test {
 protected:
  WarmStartTest() : tokenizer_(*NewTokenizer("character")), parallel_(1) {
    options_.model = TinyShape();
    options_.seed = 4;
    options_.warm_start.steps = 60;
    options_.warm_start.learning_rate = 2e-2;
    options_.warm_start.examples_per_step = 12;
  }

  int32_t Id(const std::string& letter) const { return tokenizer_->Encode(letter)->at(0); }

  std::unique_ptr<Tokenizer> tokenizer_;
  ParallelFor parallel_;
  NextLetterTask task_;
  TrainerOptions options_;
  std::atomic<bool> stop_{false};
};

TEST_F(WarmStartTest, AShortAnswerIsFollowedByEndOfTextAndAFullOneIsNot) {
  Demonstration demonstration;
  demonstration.turns.emplace_back(Ask("ab", 3), "c");
  demonstration.turns.emplace_back(Ask("d", 2), "ef");
  const auto sequence = MakeDemonstrationSequence(demonstration, *tokenizer_);
  ASSERT_TRUE(sequence.ok()) << sequence.status();
  const int32_t end = tokenizer_->end_of_text_id();
  // [beginning] a b (c end) d (e f): f is only a target.
  EXPECT_THAT(sequence->tokens,
              ElementsAre(tokenizer_->beginning_id(), Id("a"), Id("b"), Id("c"), end, Id("d"), Id("e")));
  std::vector<int64_t> rows;
  std::vector<int32_t> targets;
  for (const ScoredPosition& position : sequence->positions) {
    rows.push_back(position.row);
    targets.push_back(position.target);
  }
  EXPECT_THAT(rows, ElementsAre(2, 3, 5, 6));
  EXPECT_THAT(targets, ElementsAre(Id("c"), end, Id("e"), Id("f")));
}

TEST_F(WarmStartTest, LegalSetsApplyAndIllegalOrLongAnswersAreRefused) {
  Observation observation = Ask("a", 2);
  observation.legal_characters = "xy";
  observation.end_of_text_is_legal = false;
  Demonstration demonstration;
  demonstration.turns.emplace_back(observation, "x");
  auto sequence = MakeDemonstrationSequence(demonstration, *tokenizer_);
  ASSERT_TRUE(sequence.ok()) << sequence.status();
  // End-of-text is not legal here, so it is not answered.
  EXPECT_EQ(sequence->positions.size(), 1u);
  EXPECT_EQ(sequence->positions[0].legal_set, 0);
  EXPECT_EQ(sequence->legal_sets[0].size(), 2u);
  demonstration.turns[0].second = "z";
  EXPECT_THAT(std::string(MakeDemonstrationSequence(demonstration, *tokenizer_).status().message()),
              HasSubstr("not legal"));
  demonstration.turns[0].second = "xyx";
  EXPECT_THAT(std::string(MakeDemonstrationSequence(demonstration, *tokenizer_).status().message()),
              HasSubstr("allows 2"));
}

TEST_F(WarmStartTest, LearnsAndIsTheSameEveryTime) {
  std::vector<float> parameters = RandomParameters(options_.model, 4);
  const auto result = RunWarmStart(options_, task_, *tokenizer_, stop_, &parallel_, &parameters);
  ASSERT_TRUE(result.ok()) << result.status();
  // An untrained model is close to uniform over 64 symbols: ln 64 = 4.16.
  EXPECT_NEAR(result->first_loss, 4.16, 0.2);
  EXPECT_LT(result->last_loss, 0.2);
  std::vector<float> again = RandomParameters(options_.model, 4);
  options_.micro_batch_tokens = 1 << 20;
  ASSERT_TRUE(RunWarmStart(options_, task_, *tokenizer_, stop_, &parallel_, &again).ok());
  EXPECT_EQ(parameters, again);
}

TEST_F(WarmStartTest, ATaskWithoutDemonstrationsIsAnErrorWithTheRemedy) {
  task_.has_demonstrations = false;
  std::vector<float> parameters = RandomParameters(options_.model, 4);
  const absl::Status status = RunWarmStart(options_, task_, *tokenizer_, stop_, &parallel_, &parameters).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("next_letter"), HasSubstr("trainer.warm_start.steps")));
}

TEST_F(WarmStartTest, StopsWhenAsked) {
  stop_ = true;
  std::vector<float> parameters = RandomParameters(options_.model, 4);
  const auto result = RunWarmStart(options_, task_, *tokenizer_, stop_, &parallel_, &parameters);
  ASSERT_TRUE(result.ok());
  EXPECT_TRUE(result->was_stopped);
  EXPECT_EQ(parameters, RandomParameters(options_.model, 4));
}

}  // namespace
}  // namespace leeway
