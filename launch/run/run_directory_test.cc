#include "launch/run/run_directory.h"

#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "launch/run/exit_code.h"

namespace leeway {
namespace {

using ::testing::HasSubstr;

class RunDirectoryTest : public ::testing::Test {
 protected:
  RunDirectoryTest() {
    char name[] = "/tmp/leeway_run_XXXXXX";
    parent_ = mkdtemp(name);
    config_.Set("task.name", std::string("sort5"), Place{"a.toml", 1, 1});
  }
  ~RunDirectoryTest() override { std::filesystem::remove_all(parent_); }

  std::string parent_;
  Config config_;
};

TEST_F(RunDirectoryTest, NewRunHasItsConfigLogsAndSockets) {
  const absl::StatusOr<RunDirectory> run = RunDirectory::Open(parent_ + "/new", config_);
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_FALSE(run->is_resume());
  EXPECT_TRUE(std::filesystem::is_directory(run->paths().logs()));
  EXPECT_TRUE(std::filesystem::is_directory(run->paths().sockets()));
  EXPECT_EQ(ReadRunConfig(run->paths())->GetString("task.name"), "sort5");
}

TEST_F(RunDirectoryTest, TwoLaunchersNeverShareARun) {
  const absl::StatusOr<RunDirectory> first = RunDirectory::Open(parent_ + "/shared", config_);
  ASSERT_TRUE(first.ok());
  const absl::StatusOr<RunDirectory> second = RunDirectory::Open(parent_ + "/shared", config_);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr("pid " + std::to_string(getpid())));
}

TEST_F(RunDirectoryTest, ResumeKnowsWhatChanged) {
  { ASSERT_TRUE(RunDirectory::Open(parent_ + "/again", config_).ok()); }
  config_.Set("trainer.steps", int64_t{7}, Place{});
  const absl::StatusOr<RunDirectory> run = RunDirectory::Open(parent_ + "/again", config_);
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_TRUE(run->is_resume());
  ASSERT_EQ(run->changes().size(), 1);
  EXPECT_EQ(run->changes()[0].key, "trainer.steps");
  EXPECT_EQ(ReadRunConfig(run->paths())->GetInteger("trainer.steps"), 7);
}

TEST_F(RunDirectoryTest, LongPathsGetShortSockets) {
  const RunPaths paths(parent_ + "/" + std::string(120, 'x'));
  EXPECT_LE((paths.sockets() + "/weights.sock").size(), 107u);
  EXPECT_EQ(RunPaths("/runs/a").sockets(), "/runs/a/sockets");
}

TEST_F(RunDirectoryTest, FolderWithoutARunIsNotFound) {
  EXPECT_EQ(ReadRunConfig(RunPaths(parent_)).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(RunDirectoryTest, DamagedConfigIsNamedWithItsPlace) {
  std::ofstream(parent_ + "/config.toml") << "seed = \"x\"\n[task]\nname = \"sort5\"\n";
  const absl::Status status = ReadRunConfig(RunPaths(parent_)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("config.toml:1:8: seed: expected an integer >= 0, got the text \"x\""));
}

TEST(ExitCodeTest, FollowsTheCause) {
  EXPECT_EQ(ExitCodeOf(absl::OkStatus()), ExitCode::kDone);
  EXPECT_EQ(ExitCodeOf(absl::InvalidArgumentError("")), ExitCode::kConfiguration);
  EXPECT_EQ(ExitCodeOf(absl::NotFoundError("")), ExitCode::kEnvironment);
  EXPECT_EQ(ExitCodeOf(absl::AlreadyExistsError("")), ExitCode::kEnvironment);
  EXPECT_EQ(ExitCodeOf(absl::AbortedError("")), ExitCode::kPeerLost);
  EXPECT_EQ(ExitCodeOf(absl::UnavailableError("")), ExitCode::kPeerLost);
  EXPECT_EQ(ExitCodeOf(absl::DeadlineExceededError("")), ExitCode::kStalled);
  EXPECT_EQ(ExitCodeOf(absl::DataLossError("")), ExitCode::kDataRefused);
  EXPECT_EQ(ExitCodeOf(absl::InternalError("")), ExitCode::kOther);
  EXPECT_EQ(Describe(ExitCode::kStalled), "5 (stalled)");
}

}  // namespace
}  // namespace leeway
