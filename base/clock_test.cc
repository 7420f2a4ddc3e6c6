#include "base/clock.h"

#include "base/fake_clock.h"
#include "base/mutex.h"
#include "gtest/gtest.h"

namespace leeway {
namespace {

TEST(ClockTest, RealClockNeverGoesBack) {
  MonotonicTime last = RealClock()->Now();
  for (int i = 0; i < 1000; ++i) {
    const MonotonicTime now = RealClock()->Now();
    EXPECT_GE(now, last);
    last = now;
  }
}

TEST(DeadlineTest, PassesExactlyAtItsExpiry) {
  FakeClock clock;
  const Deadline deadline = Deadline::After(absl::Seconds(5), &clock);
  clock.Advance(absl::Seconds(5) - absl::Nanoseconds(1));
  EXPECT_FALSE(deadline.HasPassed());
  EXPECT_EQ(deadline.Remaining(), absl::Nanoseconds(1));
  clock.Advance(absl::Nanoseconds(1));
  EXPECT_TRUE(deadline.HasPassed());
  clock.Advance(absl::Seconds(1));
  EXPECT_EQ(deadline.Remaining(), absl::ZeroDuration());
}

TEST(DeadlineTest, InfiniteNeverPasses) {
  EXPECT_FALSE(Deadline::Infinite().HasPassed());
  EXPECT_EQ(Deadline::Infinite().Remaining(), absl::InfiniteDuration());
}

TEST(CondVarTest, WaitEndsWhenTimeIsUp) {
  Mutex mutex;
  CondVar never_notified;
  MutexLock lock(&mutex);
  const MonotonicTime before = RealClock()->Now();
  while (never_notified.WaitFor(&mutex, absl::Milliseconds(5))) {
  }
  EXPECT_GE(RealClock()->Now() - before, absl::Milliseconds(5));
}

}  // namespace
}  // namespace leeway
