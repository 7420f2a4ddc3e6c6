#include "trainer/queue_patience.h"

#include <map>

#include "base/fake_clock.h"
#include "gtest/gtest.h"

namespace leeway {
namespace {

class QueuePatienceTest : public ::testing::Test {
 protected:
  // A call that takes `seconds` and gives `status`.
  absl::Status Call(double seconds, const absl::Status& status) {
    return patience_("Commit", [&] {
      clock_.Advance(absl::Seconds(seconds));
      return status;
    });
  }
  double SecondsIn(const std::string& state) {
    const std::map<std::string, absl::Duration> totals = states_.Totals();
    const auto found = totals.find(state);
    return found == totals.end() ? 0 : absl::ToDoubleSeconds(found->second);
  }

  FakeClock clock_;
  StateClock states_{&clock_};
  std::atomic<bool> stop_{false};
  QueuePatience patience_{absl::Seconds(10), &stop_, &states_, &clock_};
};

TEST_F(QueuePatienceTest, WaitingForAnAnswerIsAWaitAndEndsWithIt) {
  states_.Enter("busy:publish");
  clock_.Advance(absl::Seconds(1));
  EXPECT_TRUE(Call(2, absl::OkStatus()).ok());
  EXPECT_EQ(states_.current(), "busy:publish");
  EXPECT_EQ(SecondsIn("wait:queue_answer"), 2);
  EXPECT_EQ(SecondsIn("busy:publish"), 1);
}

TEST_F(QueuePatienceTest, CallerWhoSaidWhatItWaitsForKeepsItsWords) {
  states_.Enter("wait:waiting_for_groups");
  EXPECT_TRUE(Call(3, absl::OkStatus()).ok());
  EXPECT_EQ(SecondsIn("wait:waiting_for_groups"), 3);
  EXPECT_EQ(SecondsIn("wait:queue_answer"), 0);
}

TEST_F(QueuePatienceTest, OneSilentCallDoesNotEndThePatience) {
  int calls = 0;
  const absl::Status status = patience_("Commit", [&] {
    clock_.Advance(absl::Seconds(6));
    return ++calls < 2 ? absl::DeadlineExceededError("no answer") : absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(calls, 2);
}

TEST_F(QueuePatienceTest, EndsWithTheLastErrorOnceTheLimitHasPassed) {
  int calls = 0;
  const absl::Status status = patience_("Commit", [&] {
    clock_.Advance(absl::Seconds(6));
    ++calls;
    return absl::UnavailableError("nobody");
  });
  EXPECT_EQ(status, absl::UnavailableError("nobody"));
  EXPECT_EQ(calls, 2);
}

TEST_F(QueuePatienceTest, RefusalOutOfOrderMeansANewStart) {
  EXPECT_EQ(Call(1, absl::FailedPreconditionError("not leased")).code(), absl::StatusCode::kAborted);
}

}  // namespace
}  // namespace leeway
