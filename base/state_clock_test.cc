#include "base/state_clock.h"

#include "base/fake_clock.h"
#include "gtest/gtest.h"

namespace leeway {
namespace {

TEST(StateClockTest, StatesPartitionTimeSinceConstruction) {
  FakeClock clock;
  StateClock states(&clock);
  clock.Advance(absl::Seconds(1));
  states.Enter("busy:train");
  clock.Advance(absl::Seconds(2));
  states.Enter("wait:waiting_for_groups");
  clock.Advance(absl::Seconds(4));
  states.Enter("busy:train");
  clock.Advance(absl::Seconds(8));
  const auto totals = states.Totals();
  EXPECT_EQ(totals.at("busy:start"), absl::Seconds(1));
  EXPECT_EQ(totals.at("busy:train"), absl::Seconds(10));
  EXPECT_EQ(totals.at("wait:waiting_for_groups"), absl::Seconds(4));
}

TEST(StateClockTest, ScopeReturnsToThePreviousState) {
  FakeClock clock;
  StateClock states(&clock, "busy:a");
  {
    ScopedState scope(&states, "wait:x");
    EXPECT_EQ(states.current(), "wait:x");
  }
  EXPECT_EQ(states.current(), "busy:a");
}

}  // namespace
}  // namespace leeway
