#include "queue/fake_queue_client.h"

#include <thread>

#include "gtest/gtest.h"
#include "queue/fake_trajectory.h"

namespace leeway {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(20);

v1::Ticket Ticket(uint64_t id, uint32_t members) {
  v1::Ticket ticket;
  ticket.set_id(id);
  ticket.set_issue(1);
  for (uint32_t member = 0; member < members; ++member) ticket.add_members(member);
  return ticket;
}

TEST(FakeQueueWorkerClient, HandsOutTicketsUpToTheSlotsAsked) {
  FakeQueueWorkerClient queue;
  for (uint64_t id : {1, 2, 3}) queue.AddTicket(Ticket(id, 4));
  EXPECT_EQ(queue.AcquireTickets(8, {}, absl::ZeroDuration())->tickets_size(), 2);
  EXPECT_EQ(queue.tickets_left(), 1);
  // The first of an answer is given whole.
  EXPECT_EQ(queue.AcquireTickets(1, {}, absl::ZeroDuration())->tickets_size(), 1);
  queue.SetCause("queue_full");
  EXPECT_EQ(queue.AcquireTickets(8, {}, absl::ZeroDuration())->cause(), "queue_full");
  queue.SetRunComplete();
  EXPECT_TRUE(queue.AcquireTickets(8, {}, kPatience)->run_complete());
}

TEST(FakeQueueWorkerClient, AWaitEndsWhenATicketComes) {
  FakeQueueWorkerClient queue;
  std::thread other([&] { queue.AddTicket(Ticket(1, 1)); });
  EXPECT_EQ(queue.AcquireTickets(1, {}, kPatience)->tickets_size(), 1);
  other.join();
}

TEST(FakeQueueWorkerClient, PushesAreAnsweredInOrderAlsoWhenHeld) {
  FakeQueueWorkerClient queue;
  ASSERT_TRUE(queue.Register("rollout-0", "abc", kPatience).ok());
  queue.HoldAnswers();
  std::vector<uint64_t> answered;
  for (uint32_t member : {0, 1}) {
    queue.Push(FakeTrajectory(Ticket(1, 2), member),
               [&](absl::StatusOr<v1::PushAnswer> answer) { answered.push_back(answer->sequence()); });
  }
  EXPECT_EQ(queue.unanswered_pushes(), 2);
  EXPECT_TRUE(answered.empty());
  queue.ReleaseAnswers();
  EXPECT_EQ(answered, (std::vector<uint64_t>{1, 2}));
  EXPECT_EQ(queue.unanswered_pushes(), 0);
  EXPECT_EQ(queue.pushed()[1].key().member(), 1u);
  EXPECT_TRUE(queue.WaitForPushes(2, absl::ZeroDuration()));
  EXPECT_FALSE(queue.WaitForPushes(3, absl::ZeroDuration()));
}

TEST(FakeQueueWorkerClient, AFenceAbortsEverythingUntilRegister) {
  FakeQueueWorkerClient queue;
  queue.HoldAnswers();
  absl::Status held;
  queue.Push(FakeTrajectory(Ticket(1, 1), 0), [&](absl::StatusOr<v1::PushAnswer> answer) { held = answer.status(); });
  queue.Fence();
  EXPECT_TRUE(absl::IsAborted(held));
  EXPECT_TRUE(absl::IsAborted(queue.AcquireTickets(1, {}, kPatience).status()));
  EXPECT_TRUE(absl::IsAborted(queue.Heartbeat({}, kPatience).status()));
  EXPECT_EQ(queue.Register("rollout-0", "abc", kPatience)->identity().epoch(), 1u);
  queue.Abandon(5);
  EXPECT_EQ(queue.Heartbeat({}, kPatience)->abandon(0), 5u);
}

TEST(FakeQueueWorkerClient, FailsTheNextCallAsScripted) {
  FakeQueueWorkerClient queue;
  queue.FailNext("Heartbeat", absl::UnavailableError("gone"));
  EXPECT_TRUE(absl::IsUnavailable(queue.Heartbeat({}, kPatience).status()));
  EXPECT_TRUE(queue.Heartbeat({}, kPatience).ok());
}

TEST(FakeQueueTrainerClient, TheSameStepGivesTheSameBatch) {
  FakeQueueTrainerClient queue;
  const uint64_t lineage = queue.AllocateLineage(kPatience)->lineage();
  int made = 0;
  queue.SetBatchSource([&](uint64_t step) {
    LeasedBatch batch;
    batch.groups.push_back({.ticket = step * 10 + made++});
    return batch;
  });
  EXPECT_EQ(queue.LeaseBatch(lineage, 1, kPatience)->groups[0].ticket, 10u);
  EXPECT_EQ(queue.LeaseBatch(lineage, 1, kPatience)->groups[0].ticket, 10u);
  EXPECT_EQ(queue.LeaseBatch(lineage, 2, kPatience)->groups[0].ticket, 21u);
}

TEST(FakeQueueTrainerClient, WithoutABatchThereIsACause) {
  FakeQueueTrainerClient queue;
  const uint64_t lineage = queue.AllocateLineage(kPatience)->lineage();
  EXPECT_EQ(queue.LeaseBatch(lineage, 1, absl::ZeroDuration())->cause, "waiting_for_groups");
  std::thread other([&] {
    LeasedBatch batch;
    batch.groups.push_back({.ticket = 7});
    queue.AddBatch(1, std::move(batch));
  });
  EXPECT_EQ(queue.LeaseBatch(lineage, 1, kPatience)->groups.size(), 1u);
  other.join();
}

TEST(FakeQueueTrainerClient, VersionsFollowEachOtherAndOldLineagesAreFenced) {
  FakeQueueTrainerClient queue;
  v1::CommitRequest commit;
  commit.set_lineage(queue.AllocateLineage(kPatience)->lineage());
  commit.set_version(1);
  commit.set_initial(true);
  commit.set_digest("a");
  EXPECT_TRUE(queue.Commit(commit, kPatience).ok());
  EXPECT_TRUE(queue.Commit(commit, kPatience).ok());  // the same again
  commit.set_digest("b");
  EXPECT_TRUE(absl::IsFailedPrecondition(queue.Commit(commit, kPatience).status()));
  commit.set_initial(false);
  commit.set_version(3);
  EXPECT_TRUE(absl::IsFailedPrecondition(queue.Commit(commit, kPatience).status()));
  commit.set_version(2);
  EXPECT_TRUE(queue.Commit(commit, kPatience).ok());
  EXPECT_EQ(queue.commits().size(), 2u);
  EXPECT_EQ(queue.GetStatus(kPatience)->committed().version(), 2u);

  EXPECT_EQ(queue.AllocateLineage(kPatience)->committed().version(), 2u);
  EXPECT_TRUE(absl::IsAborted(queue.Settle(1, 1, kPatience).status()));
  EXPECT_TRUE(queue.Settle(2, 1, kPatience).ok());
  EXPECT_EQ(queue.settled(), std::vector<uint64_t>{1});
}

}  // namespace
}  // namespace leeway
