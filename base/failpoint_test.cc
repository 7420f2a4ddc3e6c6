#include "base/failpoint.h"

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <fstream>
#include <string>
#include <thread>

#include "base/status_macros.h"
#include "gtest/gtest.h"

namespace leeway {
namespace {

absl::Status Guarded() {
  LEEWAY_FAILPOINT_STATUS("failpoint_test_point");
  return absl::OkStatus();
}

class FailpointTest : public testing::Test {
 protected:
  void TearDown() override { FailpointDisarmAll(); }
};

TEST_F(FailpointTest, DoesNothingUnlessArmed) { EXPECT_TRUE(Guarded().ok()); }

TEST_F(FailpointTest, ErrorAtTheNamedHitOnly) {
  ASSERT_TRUE(FailpointArm("failpoint_test_point=error@2").ok());
  EXPECT_TRUE(Guarded().ok());
  EXPECT_EQ(Guarded().message(), "failpoint failpoint_test_point");
  EXPECT_TRUE(Guarded().ok());
  EXPECT_EQ(FailpointHits("failpoint_test_point"), 3);
}

TEST_F(FailpointTest, ANameMayStandSeveralTimes) {
  ASSERT_TRUE(
      FailpointArm("failpoint_test_point=error@2,failpoint_test_point=delay:0,failpoint_test_point=error@4").ok());
  EXPECT_TRUE(Guarded().ok());
  EXPECT_FALSE(Guarded().ok());
  EXPECT_TRUE(Guarded().ok());
  EXPECT_FALSE(Guarded().ok());
}

TEST_F(FailpointTest, KillEndsTheProcessWithSigkill) {
  ASSERT_TRUE(FailpointArm("failpoint_test_point=kill").ok());
  EXPECT_EXIT(static_cast<void>(Guarded()), testing::KilledBySignal(SIGKILL), "");
}

TEST_F(FailpointTest, WaitsUntilTheFileIsThere) {
  const std::string file = testing::TempDir() + "/failpoint_test_gate." + std::to_string(getpid());
  ASSERT_TRUE(FailpointArm("failpoint_test_point=wait_for:" + file + "@2").ok());
  EXPECT_TRUE(Guarded().ok());
  std::atomic<bool> is_open{false};
  std::atomic<bool> was_open_when_through{false};
  std::thread waiting([&] {
    static_cast<void>(Guarded());
    was_open_when_through = is_open.load();
  });
  while (FailpointHits("failpoint_test_point") < 2) std::this_thread::yield();
  // Long enough for a thread that does not wait to be through.
  for (int i = 0; i < 1000; ++i) std::this_thread::yield();
  is_open = true;
  std::ofstream(file).close();
  waiting.join();
  EXPECT_TRUE(was_open_when_through);
  std::remove(file.c_str());
}

TEST_F(FailpointTest, BadSpecificationsAreNamed) {
  for (const char* bad :
       {"x", "=kill", "a=explode", "a=delay:x", "a=wait_for", "a=wait_for:@1", "a=kill@0", "a=kill@1@2"}) {
    EXPECT_EQ(FailpointArm(bad).code(), absl::StatusCode::kInvalidArgument) << bad;
  }
}

}  // namespace
}  // namespace leeway
