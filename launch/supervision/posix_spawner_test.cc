#include "launch/supervision/posix_spawner.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace leeway {
namespace {

using ::testing::HasSubstr;

class PosixSpawnerTest : public ::testing::Test {
 protected:
  PosixSpawnerTest() {
    char name[] = "/tmp/leeway_spawner_XXXXXX";
    directory_ = mkdtemp(name);
    spawner_ = *PosixSpawner::Create();
  }
  ~PosixSpawnerTest() override { std::filesystem::remove_all(directory_); }

  ProcessCommand Shell(const std::string& script) { return {"/bin/sh", {"-c", script}, {}, log()}; }
  std::string log() const { return directory_ + "/log"; }
  static std::string Contents(const std::string& path) {
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }
  // Waits for the end of a child; fails the test after 20 s.
  ProcessExited WaitForExit() {
    for (int i = 0; i < 200; ++i) {
      const ProcessEvent event = spawner_->Wait(absl::Milliseconds(100));
      if (const auto* exited = std::get_if<ProcessExited>(&event)) return *exited;
    }
    ADD_FAILURE() << "no child ended";
    return {};
  }

  std::string directory_;
  std::unique_ptr<PosixSpawner> spawner_;
};

TEST_F(PosixSpawnerTest, ReportsExitCodeOutputAndCpuTime) {
  ProcessCommand command =
      Shell("echo out $COLOUR; echo err >&2; i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; exit 7");
  command.environment["COLOUR"] = "green";
  const absl::StatusOr<int> pid = spawner_->Spawn(command);
  ASSERT_TRUE(pid.ok()) << pid.status();
  const ProcessExited exited = WaitForExit();
  EXPECT_EQ(exited.pid, *pid);
  EXPECT_EQ(exited.exit.exit_code, 7);
  EXPECT_EQ(exited.exit.signal, 0);
  EXPECT_GT(exited.cpu_seconds, 0);
  EXPECT_EQ(Contents(log()), "out green\nerr\n");
}

TEST_F(PosixSpawnerTest, NoticesAKillAtOnce) {
  const absl::StatusOr<int> pid = spawner_->Spawn(Shell("exec sleep 100"));
  ASSERT_TRUE(pid.ok());
  const MonotonicTime before = RealClock()->Now();
  spawner_->Signal(*pid, SIGKILL);
  EXPECT_EQ(WaitForExit().exit.signal, SIGKILL);
  EXPECT_LT(RealClock()->Now() - before, absl::Seconds(5));
}

TEST_F(PosixSpawnerTest, EveryDeathOfManyIsReported) {
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(spawner_->Spawn(Shell("exit 0")).ok());
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(WaitForExit().exit.is_clean());
}

TEST_F(PosixSpawnerTest, ReportsInterrupts) {
  kill(getpid(), SIGTERM);
  const ProcessEvent event = spawner_->Wait(absl::Seconds(10));
  ASSERT_TRUE(std::holds_alternative<InterruptReceived>(event));
  EXPECT_EQ(std::get<InterruptReceived>(event).signal, SIGTERM);
}

TEST_F(PosixSpawnerTest, MissingProgramIsAnError) {
  const absl::StatusOr<int> pid = spawner_->Spawn({"/no/such/program", {}, {}, log()});
  EXPECT_EQ(pid.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(pid.status().message()), HasSubstr("/no/such/program"));
}

// A parent of its own spawns a child and is killed: the kernel must kill the child too.
TEST_F(PosixSpawnerTest, NoOrphanSurvivesAKilledParent) {
  int report[2];
  ASSERT_EQ(pipe(report), 0);
  const pid_t parent = fork();
  if (parent == 0) {
    auto spawner = PosixSpawner::Create();
    const absl::StatusOr<int> child = (*spawner)->Spawn(Shell("trap '' TERM INT HUP; while true; do sleep 1; done"));
    const int pid = child.ok() ? *child : -1;
    if (write(report[1], &pid, sizeof(pid)) != sizeof(pid)) _exit(1);
    pause();
    _exit(0);
  }
  int child = -1;
  ASSERT_EQ(read(report[0], &child, sizeof(child)), static_cast<ssize_t>(sizeof(child)));
  ASSERT_GT(child, 0);
  ASSERT_EQ(kill(child, 0), 0);
  kill(parent, SIGKILL);
  waitpid(parent, nullptr, 0);
  // Orphans go to init or to a reaper, which may be slow to reap: a zombie is dead too.
  const Deadline deadline = Deadline::After(absl::Seconds(10));
  const auto is_alive = [child] {
    if (kill(child, 0) != 0) return false;
    const std::string stat = Contents("/proc/" + std::to_string(child) + "/stat");
    return stat.find(") Z") == std::string::npos && !stat.empty();
  };
  while (is_alive() && !deadline.HasPassed()) spawner_->Wait(absl::Milliseconds(5));
  EXPECT_FALSE(is_alive());
  close(report[0]);
  close(report[1]);
}

}  // namespace
}  // namespace leeway
