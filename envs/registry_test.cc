#include "envs/registry.h"

#include <unistd.h>

#include "base/file_system.h"
#include "envs/fault_environment.h"
#include "envs/tasks/sort5.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace leeway {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::string Refusal(const TaskOptions& options) {
  const auto task = NewTask(options);
  EXPECT_FALSE(task.ok());
  return std::string(task.status().message());
}

TEST(NewTaskTest, MakesTheBuiltInTasks) {
  EXPECT_THAT(TaskNames(), AllOf(Contains("add2"), Contains("guess20"), Contains("lake4x4"), Contains("question_file"),
                                 Contains("reverse5"), Contains("sort5")));
  for (const char* name : {"add2", "guess20", "lake4x4", "reverse5", "sort5"}) {
    const auto task = NewTask({.name = name});
    ASSERT_TRUE(task.ok()) << task.status();
    EXPECT_EQ((*task)->name(), name);
  }
}

TEST(NewTaskTest, AnUnknownNameIsAnsweredWithTheNearest) {
  EXPECT_THAT(Refusal({.name = "sort_5"}),
              AllOf(HasSubstr("task.name: unknown task 'sort_5'; did you mean 'sort5'?"),
                    HasSubstr("Known: add2, guess20, lake4x4, question_file, reverse5, sort5")));
  EXPECT_THAT(Refusal({.name = "lake"}), HasSubstr("'lake4x4'"));
  EXPECT_THAT(Refusal({.name = "questionfile"}), HasSubstr("did you mean 'question_file'"));
}

TEST(NewTaskTest, AllFaultsOfTheOptionsAreToldAtOnce) {
  const std::string message = Refusal({.name = "sort6", .latency = "20ms", .faults = "often"});
  EXPECT_THAT(message, AllOf(HasSubstr("task.name: "), HasSubstr("task.latency: "), HasSubstr("task.faults: ")));
  const std::string file_message =
      Refusal({.name = "question_file", .match = "fuzzy", .max_answer_tokens = 0, .held_out_share = 1.0});
  EXPECT_THAT(file_message, AllOf(HasSubstr("task.file: required"), HasSubstr("task.match: unknown match 'fuzzy'"),
                                  HasSubstr("task.max_answer_tokens: 0 is below 1"),
                                  HasSubstr("task.held_out_share: 1 is not between 0 and 1")));
  EXPECT_THAT(Refusal({.name = "sort5", .file = "q.jsonl"}),
              HasSubstr("task.file: only question_file reads a file, not sort5"));
}

TEST(NewTaskTest, WrapsWithLatencyAndFaults) {
  const auto slow = *NewTask({.name = "lake4x4", .latency = "lognormal(median=3s, sigma=0)"});
  const auto environment = slow->NewEnvironmentFor({.ticket = 1});
  ASSERT_TRUE(environment->Reset(1).ok());
  EXPECT_EQ(environment->SimulatedLatency(), absl::Seconds(3));
  const auto broken = *NewTask({.name = "lake4x4", .faults = "faults(fail=1)"});
  EXPECT_EQ(broken->NewEnvironment()->Reset(1).status().code(), absl::StatusCode::kUnavailable);
  const auto both =
      *NewTask({.name = "lake4x4", .latency = "lognormal(median=3s, sigma=0)", .faults = "faults(hang=1)"});
  const auto hanging = both->NewEnvironment();
  ASSERT_TRUE(hanging->Reset(1).ok());
  EXPECT_EQ(hanging->SimulatedLatency(), kHangLatency);
}

TEST(NewTaskTest, ReadsTheQuestionFile) {
  const std::string path = testing::TempDir() + "/questions." + std::to_string(getpid()) + ".jsonl";
  ASSERT_TRUE(RealFileSystem()
                  ->WriteFileAtomically(
                      path, "{\"question\": \"1+1\", \"answer\": \"2\"}\n{\"question\": \"1+2\", \"answer\": \"3\"}\n")
                  .ok());
  const auto task = NewTask({.name = "question_file", .file = path, .match = "numeric"});
  ASSERT_TRUE(task.ok()) << task.status();
  EXPECT_EQ((*task)->train_size(), 1u);
  ASSERT_TRUE(RealFileSystem()->RemoveAll(path).ok());
  const auto gone = NewTask({.name = "question_file", .file = path});
  EXPECT_EQ(gone.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(gone.status().message()), HasSubstr(path));
}

TEST(RegisterTaskTest, AddsATaskUnderItsName) {
  const auto make = [](const TaskOptions& options) -> absl::StatusOr<std::unique_ptr<Task>> {
    if (options.max_answer_tokens > 100) return absl::InvalidArgumentError("too long for mine");
    return NewSort5Task();
  };
  EXPECT_THAT(TaskNames(), Not(Contains("mine")));
  ASSERT_TRUE(RegisterTask("mine", make).ok());
  EXPECT_EQ(TaskNames().back(), "mine");
  EXPECT_TRUE(NewTask({.name = "mine"}).ok());
  EXPECT_EQ(Refusal({.name = "mine", .max_answer_tokens = 101}), "too long for mine");
  EXPECT_THAT(Refusal({.name = "mime"}), HasSubstr("did you mean 'mine'"));
  EXPECT_EQ(RegisterTask("mine", make).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(RegisterTask("sort5", make).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(RegisterTask("", make).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace leeway
