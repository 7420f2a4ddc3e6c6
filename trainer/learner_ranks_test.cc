#include "trainer/learner_ranks.h"

#include <atomic>
#include <thread>

#include "collective/in_process/in_process_group.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace leeway {
namespace {

using ::testing::HasSubstr;

int64_t CommandsOf(const Communicator& commands) { return commands.counters().of(Collective::kBroadcast).calls / 2; }

TEST(LearnerRanksTest, ALeaderThatIsBusyElsewhereForLongerThanTheTimeoutIsNotTakenForHung) {
  InProcessGroup group(2, "commands", absl::Seconds(1));
  const std::unique_ptr<Communicator> leaders = group.Take(0);
  const std::unique_ptr<Communicator> followers = group.Take(1);
  absl::Status followed;
  std::atomic<bool> has_ended = false;
  std::thread follower([&] {
    followed = FollowLeader(nullptr, followers.get(), [](uint64_t) {});
    has_ended = true;
  });
  {
    LearnerLeader leader(nullptr, leaders.get());
    // More than a timeout holds.
    while (CommandsOf(*leaders) < 6 && !has_ended) std::this_thread::yield();
    EXPECT_TRUE(leader.Stop(absl::OkStatus()).ok());
  }
  follower.join();
  EXPECT_TRUE(followed.ok()) << followed;
}

TEST(LearnerRanksTest, AFollowerThatIsGoneIsNamedByTheNextCall) {
  InProcessGroup group(2, "commands", absl::Seconds(60));
  const std::unique_ptr<Communicator> leaders = group.Take(0);
  { const std::unique_ptr<Communicator> gone = group.Take(1); }
  LearnerLeader leader(nullptr, leaders.get());
  EXPECT_THAT(std::string(leader.Idle().message()), HasSubstr("rank 1"));
  EXPECT_THAT(std::string(leader.GatherState().status().message()), HasSubstr("rank 1"));
}

TEST(LearnerRanksTest, FollowersHearHowTheRunEnded) {
  InProcessGroup group(2, "commands", absl::Seconds(60));
  const std::unique_ptr<Communicator> leaders = group.Take(0);
  const std::unique_ptr<Communicator> followers = group.Take(1);
  absl::Status followed;
  std::thread follower([&] { followed = FollowLeader(nullptr, followers.get(), [](uint64_t) {}); });
  EXPECT_TRUE(LearnerLeader(nullptr, leaders.get()).Stop(absl::DataLossError("a bad batch")).ok());
  follower.join();
  EXPECT_EQ(followed.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(followed.message()), HasSubstr("a bad batch"));
}

}  // namespace
}  // namespace leeway
