// Ranks as real processes: the suite, and what happens to the others when one dies or hangs.

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/clock.h"
#include "base/file_system.h"
#include "base/status_macros.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

extern char** environ;

namespace leeway {
namespace {

using ::testing::AnyOf;
using ::testing::Each;
using ::testing::EndsWith;
using ::testing::StartsWith;

class GlooProcessTest : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override { store_ = absl::StrCat(::testing::TempDir(), "/gloo_process_test-", getpid()); }
  void TearDown() override {
    for (const pid_t pid : processes_) {
      kill(pid, SIGKILL);
      waitpid(pid, nullptr, 0);
    }
    for (FILE* output : outputs_) fclose(output);
    EXPECT_TRUE(RealFileSystem()->RemoveAll(store_).ok());
  }

  void Start(int size, absl::Duration timeout, const std::string& mode) {
    const std::string milliseconds = absl::StrCat(absl::ToInt64Milliseconds(timeout));
    for (int rank = 0; rank < size; ++rank) {
      std::vector<std::string> words = {LEEWAY_GLOO_RANK,   store_,       "1", absl::StrCat(rank),
                                        absl::StrCat(size), milliseconds, mode};
      std::vector<char*> arguments;
      for (std::string& word : words) arguments.push_back(word.data());
      arguments.push_back(nullptr);
      int ends[2];
      ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
      posix_spawn_file_actions_t actions;
      posix_spawn_file_actions_init(&actions);
      posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
      pid_t pid = 0;
      ASSERT_EQ(posix_spawn(&pid, arguments[0], &actions, nullptr, arguments.data(), environ), 0);
      posix_spawn_file_actions_destroy(&actions);
      close(ends[1]);
      processes_.push_back(pid);
      outputs_.push_back(fdopen(ends[0], "r"));
    }
  }

  // The next line that a rank prints; empty at its end.
  std::string Line(int rank) {
    std::array<char, 4096> line;
    if (fgets(line.data(), line.size(), outputs_[static_cast<size_t>(rank)]) == nullptr) return "";
    return std::string(absl::StripSuffix(line.data(), "\n"));
  }

  void WaitUntilAllCommunicate() {
    for (int rank = 0; rank < static_cast<int>(outputs_.size()); ++rank) ASSERT_EQ(Line(rank), "ready");
  }

  void Signal(int rank, int signal) { ASSERT_EQ(kill(processes_[static_cast<size_t>(rank)], signal), 0); }

  std::string store_;
  std::vector<pid_t> processes_;
  std::vector<FILE*> outputs_;
};

TEST_P(GlooProcessTest, EveryCheckHolds) {
  Start(GetParam(), absl::Seconds(60), "suite");
  for (int rank = 0; rank < GetParam(); ++rank) {
    std::string line = Line(rank);
    EXPECT_EQ(line, "OK") << "rank " << rank;
    while (!(line = Line(rank)).empty()) ADD_FAILURE() << "rank " << rank << ": " << line;
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, GlooProcessTest, ::testing::Values(1, 2, 3, 4));

TEST_F(GlooProcessTest, AKilledRankIsNamedByAllTheOthersAtOnce) {
  for (const int victim : {0, 2, 3}) {
    SetUp();
    store_ += absl::StrCat("-", victim);
    Start(4, absl::Seconds(200), "whole");
    WaitUntilAllCommunicate();
    const Deadline soon = Deadline::After(absl::Seconds(30));
    Signal(victim, SIGKILL);
    std::vector<std::string> ends;
    for (int rank = 0; rank < 4; ++rank) {
      if (rank != victim) ends.push_back(Line(rank));
    }
    EXPECT_FALSE(soon.HasPassed());
    EXPECT_THAT(ends, Each(ends[0]));
    EXPECT_THAT(ends[0], StartsWith("UNAVAILABLE: ranks: "));
    EXPECT_THAT(ends[0], EndsWith(absl::StrCat("rank ", victim, " is gone")));
    TearDown();
    processes_.clear();
    outputs_.clear();
  }
}

TEST_F(GlooProcessTest, AKilledRankEndsAlsoThoseThatDoNotTalkToIt) {
  Start(4, absl::Seconds(200), "halves");
  WaitUntilAllCommunicate();
  Signal(3, SIGKILL);
  const std::vector<std::string> ends = {Line(0), Line(1), Line(2)};
  EXPECT_THAT(ends, Each(ends[0]));
  EXPECT_THAT(ends[0], AnyOf(StartsWith("UNAVAILABLE: half: all_reduce #"), "UNAVAILABLE: ranks: rank 3 is gone"));
  EXPECT_THAT(ends[0], EndsWith("rank 3 is gone"));
}

TEST_F(GlooProcessTest, AHangingRankIsNamedByAllAndLearnsOfItWhenItWakes) {
  Start(3, absl::Milliseconds(700), "whole");
  WaitUntilAllCommunicate();
  Signal(1, SIGSTOP);
  std::vector<std::string> ends = {Line(0), Line(2)};
  Signal(1, SIGCONT);
  ends.push_back(Line(1));
  EXPECT_THAT(ends, Each(ends[0]));
  EXPECT_THAT(ends[0], StartsWith("DEADLINE_EXCEEDED: ranks: all_reduce #"));
  EXPECT_THAT(ends[0], AnyOf(EndsWith(": rank 1 did not arrive within 700ms"),
                             // It may have sent the last step to one of the two only, which then outran the other.
                             EndsWith(": ranks 0 and 1 did not arrive within 700ms"),
                             EndsWith(": ranks 1 and 2 did not arrive within 700ms")));
}

}  // namespace
}  // namespace leeway
