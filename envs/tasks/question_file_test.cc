#include "envs/tasks/question_file.h"

#include <map>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace leeway {
namespace {

using ::testing::HasSubstr;

std::string FileOf(int count) {
  std::string text;
  for (int i = 0; i < count; ++i)
    text += "{\"question\": \"" + std::to_string(i) + "?\", \"answer\": \"" + std::to_string(i) + "\"}\n";
  return text;
}

TEST(QuestionFileTest, AsksTheQuestionAndJudgesTheAnswer) {
  const auto task = *NewQuestionFileTask(FileOf(10), "q.jsonl", {.max_answer_tokens = 4});
  EXPECT_EQ(task->name(), "question_file");
  EXPECT_EQ(task->vocabulary(), "byte");
  EXPECT_EQ(task->max_turns(), 1);
  EXPECT_EQ(task->max_episode_tokens(), 1 + 3 + 4);
  const auto environment = task->NewEnvironment();
  const auto observation = environment->Reset(7);
  EXPECT_EQ(observation->text, "7?\n");
  EXPECT_EQ(observation->max_answer_tokens, 4);
  EXPECT_FALSE(observation->legal_characters.has_value());
  const auto right = environment->Step(" 7 ");
  EXPECT_EQ(right->state, EpisodeState::kTerminated);
  EXPECT_EQ(*right->reward, 1.0);
  ASSERT_TRUE(environment->Reset(7).ok());
  EXPECT_EQ(*environment->Step("77")->reward, 0.0);
}

TEST(QuestionFileTest, ASeedBeyondTheFileIsAnError) {
  const auto task = *NewQuestionFileTask(FileOf(10), "q.jsonl", {});
  const auto observation = task->NewEnvironment()->Reset(10);
  EXPECT_EQ(observation.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(observation.status().message()), HasSubstr("seed 10 names no question: the file has 10"));
  EXPECT_FALSE(task->Demonstrate(10).has_value());
}

TEST(QuestionFileTest, EachEpochAsksEveryTrainingQuestionOnceInItsOwnOrder) {
  for (const int count : {2, 3, 17, 64, 65, 500}) {
    const auto task = *NewQuestionFileTask(FileOf(count), "q.jsonl", {});
    const uint64_t size = task->train_size();
    ASSERT_GE(size, 1u);
    std::set<uint64_t> held_out;
    for (uint64_t i = 0; i < static_cast<uint64_t>(count); ++i) held_out.insert(task->EvaluationSeed(1, i));
    EXPECT_EQ(held_out.size() + size, static_cast<uint64_t>(count));
    std::vector<std::vector<uint64_t>> orders;
    for (uint64_t epoch = 0; epoch < 3; ++epoch) {
      std::vector<uint64_t> order;
      for (uint64_t i = 0; i < size; ++i) order.push_back(task->TrainSeed(1, epoch * size + i));
      const std::set<uint64_t> asked(order.begin(), order.end());
      EXPECT_EQ(asked.size(), size);
      for (const uint64_t seed : asked) EXPECT_EQ(held_out.count(seed), 0u);
      orders.push_back(order);
    }
    if (count >= 64) {
      EXPECT_NE(orders[0], orders[1]);
      EXPECT_NE(task->TrainSeed(1, 0) * 1000 + task->TrainSeed(1, 1),
                task->TrainSeed(2, 0) * 1000 + task->TrainSeed(2, 1));
    }
  }
}

TEST(QuestionFileTest, OrderIsWellMixed) {
  const auto task = *NewQuestionFileTask(FileOf(400), "q.jsonl", {});
  // Mean position in the file of the first eighth of an epoch, over epochs: a shuffle puts it in the middle.
  const uint64_t size = task->train_size();
  double sum = 0.0;
  const uint64_t epochs = 100, first = size / 8;
  for (uint64_t epoch = 0; epoch < epochs; ++epoch) {
    for (uint64_t i = 0; i < first; ++i) sum += static_cast<double>(task->TrainSeed(5, epoch * size + i));
  }
  // Standard error: 115 / sqrt(100 * 40) = 1.8.
  EXPECT_NEAR(sum / static_cast<double>(epochs * first), 199.5, 15.0);
}

TEST(QuestionFileTest, DemonstratesTheFilesAnswersWhereTheyAreAnswers) {
  const std::string text = "{\"question\": \"a\", \"answer\": \" 7 \"}\n{\"question\": \"b\", \"answer\": \"8\"}\n";
  for (const AnswerMatch match : {AnswerMatch::kExact, AnswerMatch::kNumeric}) {
    const auto task = *NewQuestionFileTask(text, "q.jsonl", {.match = match});
    const auto demonstration = task->Demonstrate(0);
    ASSERT_TRUE(demonstration.has_value());
    EXPECT_EQ(demonstration->turns.at(0).first.text, "a\n");
    EXPECT_EQ(demonstration->turns.at(0).second, "7");
  }
  EXPECT_FALSE((*NewQuestionFileTask(text, "q.jsonl", {.match = AnswerMatch::kRegex}))->Demonstrate(0).has_value());
}

TEST(QuestionFileTest, BadFilesNameTheirPath) {
  EXPECT_THAT(std::string(NewQuestionFileTask("{}", "some/q.jsonl", {}).status().message()),
              HasSubstr("some/q.jsonl:1: "));
  EXPECT_THAT(std::string(NewQuestionFileTask(FileOf(1), "some/q.jsonl", {}).status().message()),
              HasSubstr("some/q.jsonl: at least two different questions"));
}

}  // namespace
}  // namespace leeway
