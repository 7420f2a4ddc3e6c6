// What every built-in task promises, checked for all of them over many seeds.

#include <map>
#include <set>

#include "base/random.h"
#include "envs/environment.h"
#include "envs/play.h"
#include "envs/tasks/add2.h"
#include "envs/tasks/guess20.h"
#include "envs/tasks/lake4x4.h"
#include "envs/tasks/question_file.h"
#include "envs/tasks/reverse5.h"
#include "envs/tasks/sort5.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tokenizer/tokenizer.h"

namespace leeway {
namespace {

constexpr uint64_t kRunSeed = 11;
constexpr uint64_t kSeeds = 1000;

std::unique_ptr<Task> NewSmallQuestionFile() {
  std::string text;
  for (int i = 0; i < 40; ++i) {
    text +=
        R"({"question": "what is )" + std::to_string(i) + R"( + 1?", "answer": ")" + std::to_string(i + 1) + "\"}\n";
  }
  return *NewQuestionFileTask(text, "small.jsonl", {.max_answer_tokens = 3});
}

struct Case {
  const char* name;
  std::unique_ptr<Task> (*make)();
  // Ids of the longest episode, counted by hand.
  int max_episode_tokens;
  // Whether the streams can be disjoint at all.
  bool is_split;
};

const Case kCases[] = {{"sort5", NewSort5Task, 1 + 6 + 5, true},
                       {"reverse5", NewReverse5Task, 1 + 6 + 5, true},
                       {"add2", NewAdd2Task, 1 + 6 + 3, true},
                       {"lake4x4", NewLake4x4Task, 1 + 18 + 10 + 9, true},
                       {"guess20", NewGuess20Task, 1 + 1 + 20 + 9, false},
                       {"question_file", NewSmallQuestionFile, 1 + 16 + 3, true}};

class BuiltInTaskTest : public ::testing::TestWithParam<Case> {
 protected:
  const std::unique_ptr<Task> task_ = GetParam().make();
};

// Random legal answers, any length that is allowed.
class RandomPolicy {
 public:
  RandomPolicy(uint64_t seed, const Tokenizer& tokenizer) : random_({.seed = seed}), tokenizer_(tokenizer) {}

  std::string operator()(const Observation& observation) {
    std::string answer;
    while (answer.size() < static_cast<size_t>(observation.max_answer_tokens)) {
      std::string text;
      if (observation.legal_characters.has_value()) {
        text = (*observation.legal_characters)[random_.NextBelow(observation.legal_characters->size())];
      } else {
        // Over all ids: a special one decodes to nothing and ends the answer here, as end-of-text would.
        text = *tokenizer_.Decode({static_cast<int32_t>(random_.NextBelow(tokenizer_.vocabulary_size()))});
        if (text.empty()) return answer;
      }
      answer += text;
    }
    return answer;
  }

 private:
  RandomStream random_;
  const Tokenizer& tokenizer_;
};

TEST_P(BuiltInTaskTest, KnowsItselfAndItsLimits) {
  EXPECT_EQ(task_->name(), GetParam().name);
  EXPECT_EQ(task_->max_episode_tokens(), GetParam().max_episode_tokens);
  EXPECT_TRUE(NewTokenizer(task_->vocabulary()).ok());
}

TEST_P(BuiltInTaskTest, RandomEpisodesKeepTheRules) {
  const auto tokenizer = *NewTokenizer(task_->vocabulary());
  for (uint64_t i = 0; i < kSeeds; ++i) {
    const uint64_t seed = task_->TrainSeed(kRunSeed, i);
    const auto environment = task_->NewEnvironmentFor({.run_seed = kRunSeed, .ticket = i + 1});
    const auto episode = PlayEpisode(*environment, seed, RandomPolicy(i, *tokenizer), task_->max_turns());
    ASSERT_TRUE(episode.ok()) << episode.status();
    ASSERT_TRUE(episode->reward.has_value());
    EXPECT_GE(*episode->reward, 0.0);
    EXPECT_LE(*episode->reward, 1.0);
    const auto ids = tokenizer->Encode(episode->transcript);
    ASSERT_TRUE(ids.ok()) << ids.status();
    EXPECT_LE(ids->size() + 1, static_cast<size_t>(task_->max_episode_tokens()));
    // An episode is over once.
    EXPECT_EQ(environment->Step("0").status().code(), absl::StatusCode::kFailedPrecondition);
  }
}

TEST_P(BuiltInTaskTest, EnvironmentsOfOneSeedSayTheSame) {
  const auto tokenizer = *NewTokenizer(task_->vocabulary());
  const auto again = GetParam().make();
  const auto reused = task_->NewEnvironment();
  for (uint64_t i = 0; i < 200; ++i) {
    const uint64_t seed = task_->TrainSeed(kRunSeed, i);
    EXPECT_EQ(again->TrainSeed(kRunSeed, i), seed);
    EXPECT_EQ(again->EvaluationSeed(kRunSeed, i), task_->EvaluationSeed(kRunSeed, i));
    // Another object, another member, and one environment reset again and again.
    const auto other = again->NewEnvironmentFor({.run_seed = kRunSeed, .ticket = i + 1, .member = 3, .attempt = 2});
    const auto first = PlayEpisode(*reused, seed, RandomPolicy(i, *tokenizer), task_->max_turns());
    const auto second = PlayEpisode(*other, seed, RandomPolicy(i, *tokenizer), task_->max_turns());
    ASSERT_TRUE(first.ok() && second.ok());
    EXPECT_EQ(first->transcript, second->transcript);
    EXPECT_EQ(first->reward, second->reward);
  }
}

TEST_P(BuiltInTaskTest, DemonstrationsAreLegalAndMatchWhatTheEnvironmentSays) {
  const auto tokenizer = *NewTokenizer(task_->vocabulary());
  for (uint64_t i = 0; i < kSeeds; ++i) {
    const uint64_t seed = i % 2 == 0 ? task_->TrainSeed(kRunSeed, i) : task_->EvaluationSeed(kRunSeed, i);
    const auto demonstration = task_->Demonstrate(seed);
    ASSERT_TRUE(demonstration.has_value());
    size_t turn = 0;
    const auto scripted = [&](const Observation& observation) {
      const auto& [expected, answer] = demonstration->turns.at(turn++);
      EXPECT_EQ(observation.text, expected.text);
      EXPECT_EQ(observation.legal_characters, expected.legal_characters);
      EXPECT_EQ(observation.max_answer_tokens, expected.max_answer_tokens);
      EXPECT_EQ(observation.end_of_text_is_legal, expected.end_of_text_is_legal);
      return answer;
    };
    const auto episode = PlayEpisode(*task_->NewEnvironment(), seed, scripted, task_->max_turns());
    ASSERT_TRUE(episode.ok()) << episode.status();
    EXPECT_EQ(turn, demonstration->turns.size());
    EXPECT_EQ(episode->state, EpisodeState::kTerminated);
    // A guess costs 0.05; all else is perfect.
    EXPECT_DOUBLE_EQ(*episode->reward, 1.0 - (task_->name() == "guess20" ? 0.05 * (episode->turns - 1) : 0.0));
  }
}

TEST_P(BuiltInTaskTest, StreamsDifferByRunAndIndexAndAreKeptApart) {
  const auto first_observation = [&](uint64_t seed) { return task_->NewEnvironment()->Reset(seed)->text; };
  std::set<std::string> training, held_out;
  std::set<uint64_t> seeds;
  for (uint64_t run_seed : {0u, 1u, 2u}) {
    for (uint64_t i = 0; i < kSeeds; ++i) {
      seeds.insert(task_->TrainSeed(run_seed, i));
      training.insert(first_observation(task_->TrainSeed(run_seed, i)));
      held_out.insert(first_observation(task_->EvaluationSeed(run_seed, i)));
    }
  }
  if (task_->train_size() == 0) {
    EXPECT_EQ(seeds.size(), 3 * kSeeds);
  }
  if (!GetParam().is_split) return;
  EXPECT_GE(training.size(), task_->train_size() == 0 ? 500 : task_->train_size());
  for (const std::string& text : held_out) EXPECT_EQ(training.count(text), 0u) << text;
}

TEST_P(BuiltInTaskTest, EnvironmentsOutliveTheirTask) {
  auto task = GetParam().make();
  const uint64_t seed = task->TrainSeed(kRunSeed, 0);
  const auto environment = task->NewEnvironment();
  task.reset();
  EXPECT_TRUE(environment->Reset(seed).ok());
}

INSTANTIATE_TEST_SUITE_P(All, BuiltInTaskTest, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace leeway
