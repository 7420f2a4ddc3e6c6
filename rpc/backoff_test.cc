#include "rpc/backoff.h"

#include <vector>

#include "base/fake_clock.h"
#include "gtest/gtest.h"

namespace leeway {
namespace {

TEST(Backoff, GrowsToItsMaximumAndStartsOver) {
  Backoff backoff({absl::Milliseconds(10), absl::Milliseconds(60), 2.0, /*jitter=*/0.0}, /*seed=*/1);
  for (int expected_ms : {10, 20, 40, 60, 60}) EXPECT_EQ(backoff.Next(), absl::Milliseconds(expected_ms));
  EXPECT_EQ(backoff.failures(), 5);
  for (int i = 0; i < 10'000; ++i) EXPECT_EQ(backoff.Next(), absl::Milliseconds(60));
  backoff.Reset();
  EXPECT_EQ(backoff.Next(), absl::Milliseconds(10));
}

TEST(Backoff, JitterStaysWithinItsShareAndDiffersBySeed) {
  Backoff first({absl::Milliseconds(100), absl::Milliseconds(100), 2.0, 0.2}, 1);
  Backoff second({absl::Milliseconds(100), absl::Milliseconds(100), 2.0, 0.2}, 2);
  int equal = 0;
  absl::Duration sum;
  for (int i = 0; i < 1000; ++i) {
    const absl::Duration delay = first.Next();
    EXPECT_GE(delay, absl::Milliseconds(80));
    EXPECT_LE(delay, absl::Milliseconds(120));
    sum += delay;
    if (delay == second.Next()) ++equal;
  }
  EXPECT_LT(equal, 5);
  // Uniform on +-20 ms has a standard error of 0.37 ms over 1000 draws.
  EXPECT_NEAR(absl::ToDoubleMilliseconds(sum / 1000), 100.0, 2.0);
}

class RetryTest : public ::testing::Test {
 protected:
  absl::Status Retry(std::vector<absl::Status> answers, absl::Duration limit) {
    tries_ = 0;
    return RetryWithBackoff(
        {absl::Milliseconds(10), absl::Seconds(1), 2.0, 0.0}, 1, Deadline::After(limit, &clock_),
        [this](absl::Duration delay) {
          clock_.Advance(delay);
          return !cancelled_;
        },
        [&] { return answers[std::min<size_t>(tries_++, answers.size() - 1)]; });
  }

  FakeClock clock_;
  size_t tries_ = 0;
  bool cancelled_ = false;
};

TEST_F(RetryTest, GoesOnUntilItWorks) {
  EXPECT_TRUE(Retry({absl::UnavailableError(""), absl::UnavailableError(""), absl::OkStatus()}, absl::Seconds(1)).ok());
  EXPECT_EQ(tries_, 3u);
}

TEST_F(RetryTest, StopsAtWhatIsNotRetryable) {
  EXPECT_TRUE(absl::IsAborted(Retry({absl::UnavailableError(""), absl::AbortedError("fenced")}, absl::Seconds(1))));
  EXPECT_EQ(tries_, 2u);
}

TEST_F(RetryTest, StopsBeforeItsDeadline) {
  const MonotonicTime start = clock_.Now();
  EXPECT_TRUE(absl::IsUnavailable(Retry({absl::UnavailableError("")}, absl::Milliseconds(100))));
  // After 10 + 20 + 40 ms the next wait, 80 ms, would pass 100 ms.
  EXPECT_EQ(tries_, 4u);
  EXPECT_EQ(clock_.Now() - start, absl::Milliseconds(70));
}

TEST_F(RetryTest, StopsWhenCancelled) {
  cancelled_ = true;
  EXPECT_TRUE(absl::IsUnavailable(Retry({absl::UnavailableError("")}, absl::Seconds(1))));
  EXPECT_EQ(tries_, 1u);
}

}  // namespace
}  // namespace leeway
