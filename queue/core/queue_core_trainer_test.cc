#include "queue/core/queue_core.h"

#include <algorithm>
#include <map>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "queue/core/queue_core_test_driver.h"
#include "queue/store/fake_queue_store.h"

namespace leeway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<uint64_t> Ids(const v1::AcquireTicketsResponse& response) {
  std::vector<uint64_t> ids;
  for (const v1::Ticket& ticket : response.tickets()) ids.push_back(ticket.id());
  return ids;
}

std::vector<uint64_t> Ids(const LeaseResult& lease) {
  std::vector<uint64_t> ids;
  for (const LeasedGroup& group : lease.groups) ids.push_back(group.ticket);
  return ids;
}

// ---- order and breach -----------------------------------------------------------------------------------------------

TEST(QueueCoreTest, TicketOrderWaitsForTheStraggler) {
  CoreDriver driver(DriverOptions(2, 1, 1, 10));
  const v1::WorkerIdentity worker = driver.Register("a");
  driver.StartTrainer();
  const v1::AcquireTicketsResponse tickets = driver.Acquire(worker, 4);
  for (int i : {3, 2, 1}) driver.Complete(worker, tickets.tickets(i));
  EXPECT_EQ(driver.Lease(1).cause, "waiting_for_groups");
  driver.Advance(absl::Seconds(2));
  v1::StatusResponse status;
  driver.core().FillStatus(driver.now(), &status);
  ASSERT_EQ(status.waits_size(), 1);
  EXPECT_EQ(status.waits(0).who(), "trainer");
  EXPECT_EQ(status.waits(0).seconds(), 2.0);
  EXPECT_EQ(status.waits(0).detail(), "ticket 1 running on a for 2s, 1 of 1 members missing");
  driver.Complete(worker, tickets.tickets(0));
  EXPECT_THAT(Ids(driver.Lease(1)), ElementsAre(1, 2));
}

TEST(QueueCoreTest, ReadyOrderTakesWhatIsThereAndDropsWhatIsTooOld) {
  QueueCoreOptions options = DriverOptions(1, 1, 1, 10);
  options.staleness.order = StalenessOrder::kReady;
  options.staleness.breach = StalenessBreach::kDrop;
  CoreDriver driver(options);
  const v1::WorkerIdentity worker = driver.Register("a");
  driver.StartTrainer();
  const v1::AcquireTicketsResponse first = driver.Acquire(worker, 2);
  ASSERT_THAT(Ids(first), ElementsAre(1, 2));
  driver.Complete(worker, first.tickets(1));
  EXPECT_THAT(driver.Train(1), ElementsAre(2));
  const v1::AcquireTicketsResponse second = driver.Acquire(worker, 1);
  ASSERT_THAT(Ids(second), ElementsAre(3));
  driver.Complete(worker, second.tickets(0));
  driver.Complete(worker, first.tickets(0));     // version 1 at step 2: still within S = 1
  EXPECT_THAT(driver.Train(2), ElementsAre(3));  // completed earlier
  EXPECT_EQ(driver.Lease(3).cause, "waiting_for_groups");
  EXPECT_EQ(driver.counts().stale(), 1u);  // ticket 1: lag 2 at step 3
  const v1::AcquireTicketsResponse third = driver.Acquire(worker, 9);
  EXPECT_THAT(Ids(third), ElementsAre(4, 5));  // the replacement is a new ticket
  driver.Complete(worker, third.tickets(1));
  EXPECT_THAT(driver.Train(3), ElementsAre(5));
}

TEST(QueueCoreTest, TooStaleIsSaidAtTheDoor) {
  QueueCoreOptions options = DriverOptions(1, 2, 1, 10);
  options.staleness.order = StalenessOrder::kOldest;
  options.staleness.breach = StalenessBreach::kDrop;
  CoreDriver driver(options);
  const v1::WorkerIdentity worker = driver.Register("a");
  driver.StartTrainer();
  const v1::Ticket slow = driver.Acquire(worker, 2).tickets(0);
  for (uint64_t step = 1; step <= 2; ++step) {
    const v1::AcquireTicketsResponse next = driver.Acquire(worker, 2);
    driver.Complete(worker, next.tickets(0));
    ASSERT_EQ(driver.Train(step).size(), 1u);
  }
  const v1::PushAnswer answer = driver.Push(worker, CoreDriver::Completed(slow, 0, 1.0));
  EXPECT_EQ(answer.result(), v1::TOO_STALE);
  EXPECT_EQ(driver.counts().stale(), 1u);
  EXPECT_EQ(driver.Push(worker, CoreDriver::Completed(slow, 1, 1.0)).result(), v1::GROUP_CLOSED);
}

TEST(QueueCoreTest, MaskTrainsOldGroupsAndTellsTheLimit) {
  QueueCoreOptions options = DriverOptions(1, 1, 1, 10);
  options.staleness.order = StalenessOrder::kReady;
  options.staleness.breach = StalenessBreach::kMask;
  CoreDriver driver(options);
  const v1::WorkerIdentity worker = driver.Register("a");
  driver.StartTrainer();
  const v1::Ticket slow = driver.Acquire(worker, 1).tickets(0);
  for (uint64_t step = 1; step <= 3; ++step) {
    driver.Complete(worker, driver.Acquire(worker, 1).tickets(0));
    ASSERT_EQ(driver.Train(step).size(), 1u);
  }
  driver.Complete(worker, slow);
  const LeaseResult lease = driver.Lease(4);
  EXPECT_THAT(Ids(lease), ElementsAre(slow.id()));
  EXPECT_EQ(lease.lag_limit, 1u);
  EXPECT_EQ(driver.counts().stale(), 0u);
}

// ---- lease, commit, settle ------------------------------------------------------------------------------------------

TEST(QueueCoreTest, ALeaseIsIdempotentPerStepAndCarriesThePayloads) {
  CoreDriver driver(DriverOptions(2, 2, 1, 10));
  const v1::WorkerIdentity worker = driver.Register("a");
  driver.StartTrainer();
  driver.RunAll(worker);
  const LeaseResult first = driver.Lease(1);
  const LeaseResult second = driver.Lease(1);
  EXPECT_THAT(Ids(first), ElementsAre(1, 2));
  EXPECT_THAT(Ids(second), ElementsAre(1, 2));
  EXPECT_EQ(second.groups[1].members[1].get(), first.groups[1].members[1].get());
  EXPECT_EQ(**first.groups[1].members[1]->Load(), "ticket 2 member 1");
  EXPECT_FALSE(driver.core().Lease(driver.lineage(), 2, driver.now()).ok());
  EXPECT_EQ(driver.counts().leased(), 2u);
}

TEST(QueueCoreTest, ACommitIsIdempotentAndRefusesWhatWasNotLeased) {
  CoreDriver driver(DriverOptions(2, 1, 1, 10));
  const v1::WorkerIdentity worker = driver.Register("a");
  driver.StartTrainer();
  driver.RunAll(worker);
  EXPECT_FALSE(driver.Commit(2, {1, 2}).ok());  // nothing is leased
  driver.Lease(1);
  EXPECT_FALSE(driver.Commit(2, {1}).ok());
  EXPECT_FALSE(driver.Commit(2, {1, 3}).ok());
  EXPECT_FALSE(driver.Commit(2, {1, 2, 2}).ok());
  EXPECT_FALSE(driver.Commit(3, {1, 2}).ok());
  EXPECT_FALSE(driver.Commit(2, {1, 2}, /*initial=*/true).ok());
  EXPECT_EQ(driver.counts().trained(), 0u);
  EXPECT_TRUE(driver.Commit(2, {2, 1}).ok());
  EXPECT_TRUE(driver.Commit(2, {2, 1}).ok());
  EXPECT_EQ(driver.counts().trained(), 2u);
  v1::CommitRequest other;
  other.set_lineage(driver.lineage());
  other.set_version(2);
  other.set_digest("something else");
  EXPECT_EQ(driver.core().Commit(other, driver.now()).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(driver.core().committed().version(), 2u);
}

TEST(QueueCoreTest, ADurableQueueGoesOnWithLowerBoundsThanItHolds) {
  QueueCoreOptions options = DriverOptions(1, 1, 3, 10);
  auto store = std::make_unique<FakeQueueStore>();
  store->MakeDurableAtOnce(true);
  auto core = *QueueCore::Create(options, std::move(store));
  v1::WeightsVersion committed;
  const uint64_t lineage = core->AllocateLineage(&committed);
  ASSERT_TRUE(core->Restore(lineage, 0, "", MonotonicTime()).ok());
  v1::CommitRequest commit;
  commit.set_lineage(lineage);
  commit.set_version(1);
  commit.set_digest("d");
  commit.set_initial(true);
  ASSERT_TRUE(core->Commit(commit, MonotonicTime()).ok());
  v1::AcquireTicketsRequest request;
  *request.mutable_identity() = core->RegisterWorker("a", MonotonicTime());
  request.set_sequence(1);
  request.set_max_members(4);
  ASSERT_TRUE(core->BeginAcquire(request, MonotonicTime()).ok());
  ASSERT_EQ(core->AcquireTickets(request.identity(), 1, MonotonicTime())->tickets_size(), 4);
  core->WriteChanges();

  options.max_groups = 2;
  options.max_bytes = 150;
  auto resumed = QueueCore::Create(options, static_cast<FakeQueueStore*>(core->store())->Crash());
  ASSERT_TRUE(resumed.ok()) << resumed.status();
  EXPECT_EQ((*resumed)->groups(), 4u);
  request.set_sequence(2);
  ASSERT_TRUE((*resumed)->BeginAcquire(request, MonotonicTime()).ok());
  const auto none = (*resumed)->AcquireTickets(request.identity(), 2, MonotonicTime());
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_EQ(none->tickets_size(), 0);
}

TEST(QueueCoreTest, ADamagedGroupIsGeneratedAgainUnderItsTicket) {
  CoreDriver driver(DriverOptions(2, 2, 1, 10));
  const v1::WorkerIdentity worker = driver.Register("a");
  driver.StartTrainer();
  driver.RunAll(worker);
  EXPECT_THAT(Ids(driver.Lease(1)), ElementsAre(1, 2));
  driver.core().RewindDamaged(2, 1);
  driver.core().RewindDamaged(2, 1);  // two streams met it
  driver.Check();
  EXPECT_EQ(driver.counts().rewound(), 1u);
  EXPECT_TRUE(driver.Lease(1).groups.empty());
  const v1::AcquireTicketsResponse again = driver.Acquire(worker, 2);
  ASSERT_EQ(again.tickets_size(), 1);
  EXPECT_EQ(again.tickets(0).id(), 2u);
  EXPECT_EQ(again.tickets(0).seed(), 1001u);
  driver.Complete(worker, again.tickets(0));
  EXPECT_THAT(Ids(driver.Lease(1)), ElementsAre(1, 2));
  driver.core().RewindDamaged(2, 1);  // late, of the issue before
  EXPECT_EQ(driver.counts().leased(), 2u);
  EXPECT_TRUE(driver.Commit(2, {1, 2}).ok());
}

TEST(QueueCoreTest, ARetiredGroupIsReplacedInItsBatch) {
  CoreDriver driver(DriverOptions(2, 2, 1, 10));
  const v1::WorkerIdentity worker = driver.Register("a");
  driver.StartTrainer();
  driver.RunAll(worker);
  driver.Lease(1);
  const auto payloads = driver.core().RetireGroup(driver.lineage(), 1, 2, "logprob_mismatch");
  ASSERT_TRUE(payloads.ok());
  ASSERT_EQ(payloads->size(), 2u);
  EXPECT_EQ(**(*payloads)[0]->Load(), "ticket 2 member 0");
  driver.Check();
  EXPECT_TRUE(driver.core().RetireGroup(driver.lineage(), 1, 2, "logprob_mismatch")->empty());  // its answer was lost
  EXPECT_FALSE(driver.core().RetireGroup(driver.lineage(), 1, 3, "logprob_mismatch").ok());
  EXPECT_THAT(Ids(driver.Lease(1)), ElementsAre(1, 3));
  EXPECT_TRUE(driver.Commit(2, {1, 3}).ok());
  EXPECT_EQ(driver.counts().failed(), 1u);
}

TEST(QueueCoreTest, SyncAdmitsABatchPerRequestAndItsReplacements) {
  QueueCoreOptions options = DriverOptions(2, 1, 3, 10);
  options.staleness.mode = StalenessMode::kSync;
  CoreDriver driver(options);
  const v1::WorkerIdentity worker = driver.Register("a");
  driver.StartTrainer();
  EXPECT_EQ(driver.Acquire(worker, 9).cause(), "waiting_for_trainer");
  const uint64_t changes = driver.core().changes();
  EXPECT_TRUE(driver.Lease(1).groups.empty());
  EXPECT_GT(driver.core().changes(), changes);
  const v1::AcquireTicketsResponse tickets = driver.Acquire(worker, 9);
  ASSERT_THAT(Ids(tickets), ElementsAre(1, 2));
  EXPECT_EQ(driver.Acquire(worker, 9).cause(), "waiting_for_version");
  driver.Push(worker, CoreDriver::Failed(tickets.tickets(0), 0, "reset_failed"));
  driver.Complete(worker, tickets.tickets(1));
  const v1::AcquireTicketsResponse replacement = driver.Acquire(worker, 9);
  ASSERT_THAT(Ids(replacement), ElementsAre(3));
  driver.Complete(worker, replacement.tickets(0));
  EXPECT_THAT(driver.Train(1), ElementsAre(2, 3));
  EXPECT_EQ(driver.Acquire(worker, 9).cause(), "waiting_for_trainer");
}

TEST(QueueCoreTest, SyncHandsNothingOutAgainBeforeTheRestoredTrainerAsks) {
  QueueCoreOptions options = DriverOptions(1, 1, 0, 10);
  options.staleness.mode = StalenessMode::kSync;
  CoreDriver driver(options);
  const v1::WorkerIdentity old = driver.Register("a");
  driver.StartTrainer();
  driver.Lease(1);
  ASSERT_EQ(driver.Acquire(old, 1).tickets_size(), 1);
  const v1::WorkerIdentity worker = driver.Register("a");
  driver.StartTrainer();
  EXPECT_EQ(driver.counts().issued(), 1u);
  EXPECT_EQ(driver.Acquire(worker, 1).cause(), "waiting_for_trainer");
  driver.Lease(1);
  EXPECT_THAT(Ids(driver.Acquire(worker, 1)), ElementsAre(1));
}

// ---- lineages and restores ------------------------------------------------------------------------------------------

TEST(QueueCoreTest, AnOlderLineageIsFenced) {
  CoreDriver driver(DriverOptions(1, 1, 0, 10));
  driver.StartTrainer();
  const uint64_t old = driver.lineage();
  v1::WeightsVersion committed;
  const uint64_t next = driver.core().AllocateLineage(&committed);
  EXPECT_EQ(next, old + 1);
  EXPECT_EQ(committed.version(), 1u);
  EXPECT_EQ(driver.core().Lease(old, 1, driver.now()).status().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(driver.Commit(2, {}).code(), absl::StatusCode::kAborted);
  EXPECT_EQ(driver.core().Settle(old, 0).code(), absl::StatusCode::kAborted);
  EXPECT_EQ(driver.core().Snapshot(old).status().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(driver.core().Restore(next + 1, 0, "", driver.now()).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(driver.core().Lease(next, 1, driver.now()).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(QueueCoreTest, AQueueThatStartedAgainRefusesATrainerThatHasNotRestored) {
  QueueCoreOptions options = DriverOptions(1, 1, 0, 10);
  options.last_lineage = 3;  // the trainer that lives has this one
  CoreDriver driver(options);
  QueueCore& core = driver.core();
  EXPECT_TRUE(absl::IsFailedPrecondition(core.Snapshot(3).status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(core.RetireGroup(3, 1, 1, "logprob_mismatch").status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(core.FenceWorker(3, driver.Register("a"), "stalled", driver.now())));
  v1::WeightsVersion committed;
  const uint64_t lineage = core.AllocateLineage(&committed);
  ASSERT_TRUE(core.Restore(lineage, 0, "", driver.now()).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(core.Snapshot(lineage).status()));
  // The first publish may fence already.
  EXPECT_TRUE(core.FenceWorker(lineage, driver.Register("a"), "stalled", driver.now()).ok());
}

TEST(QueueCoreTest, LineagesGoOnFromTheRecordOfTheRun) {
  QueueCoreOptions options = DriverOptions(1, 1, 0, 10);
  options.last_lineage = 6;
  CoreDriver driver(options);
  driver.StartTrainer();
  EXPECT_EQ(driver.lineage(), 7u);
}

TEST(QueueCoreTest, NothingIsIssuedBetweenARestoreAndItsInitialCommit) {
  CoreDriver driver(DriverOptions(1, 1, 0, 10));
  const v1::WorkerIdentity worker = driver.Register("a");
  driver.StartTrainer();
  v1::WeightsVersion committed;
  const uint64_t lineage = driver.core().AllocateLineage(&committed);
  EXPECT_EQ(driver.Acquire(worker, 1).cause(), "waiting_for_trainer");
  ASSERT_TRUE(driver.core().Restore(lineage, 0, "", driver.now()).ok());
  ASSERT_TRUE(driver.core().Restore(lineage, 0, "", driver.now()).ok());  // its answer was lost
  EXPECT_FALSE(driver.core().Restore(lineage, 1, "", driver.now()).ok());
  EXPECT_EQ(driver.Acquire(worker, 1).cause(), "waiting_for_trainer");
}

TEST(QueueCoreTest, ARestartedTrainerFindsItsBatchAgainAtBudgetZero) {
  CoreDriver driver(DriverOptions(2, 2, 0, 10));
  const v1::WorkerIdentity worker = driver.Register("a");
  driver.StartTrainer();
  driver.RunAll(worker);
  driver.Train(1);
  driver.RunAll(worker);
  driver.Train(2);
  driver.RunAll(worker);
  driver.Lease(3);
  // Dies in step 3; its checkpoint is of step 1. Step 2 was generated by version 2, which lineage 2 republishes: it
  // survives.
  driver.StartTrainer(1);
  EXPECT_EQ(driver.core().committed().lineage(), 2u);
  EXPECT_EQ(driver.counts().ready(), 2u);
  EXPECT_EQ(driver.counts().rewound(), 2u);
  EXPECT_THAT(driver.Train(2), ElementsAre(3, 4));
  const v1::AcquireTicketsResponse again = driver.Acquire(worker, 4);
  ASSERT_THAT(Ids(again), ElementsAre(5, 6));
  EXPECT_EQ(again.tickets(0).issue(), 2u);
  EXPECT_EQ(again.tickets(0).weights().lineage(), 2u);
  EXPECT_EQ(again.tickets(0).seed(), 1004u);
}

TEST(QueueCoreTest, ATrajectoryWithVoidTokensRewindsItsTicket) {
  CoreDriver driver(DriverOptions(1, 2, 2, 10));
  const v1::WorkerIdentity worker = driver.Register("a");
  driver.StartTrainer();
  const v1::AcquireTicketsResponse first = driver.Acquire(worker, 100);
  ASSERT_EQ(first.tickets_size(), 3);
  driver.Complete(worker, first.tickets(0));
  driver.Train(1);
  // Ticket 3 runs since version 1, and has tokens of version 2, which the restore of step 0 makes void.
  driver.StartTrainer(0);
  EXPECT_EQ(driver.counts().running(), 2u);
  const v1::PushAnswer answer = driver.Push(worker, CoreDriver::Completed(first.tickets(2), 0, 1.0, 2));
  EXPECT_EQ(answer.result(), v1::GROUP_CLOSED);
  EXPECT_EQ(answer.reason(), "void_version");
  EXPECT_EQ(driver.counts().rewound(), 1u);
  driver.Complete(worker, first.tickets(1));  // its tokens are of version 1 of lineage 1: they exist
  const v1::AcquireTicketsResponse again = driver.Acquire(worker, 100);
  ASSERT_THAT(Ids(again), ElementsAre(3));
  EXPECT_EQ(again.tickets(0).issue(), 2u);
}

TEST(QueueCoreTest, ARewoundTicketThatHasNoRoomTakesThatOfTheGroupsThatWaitForIt) {
  QueueCoreOptions options = DriverOptions(1, 2, 3, 10);
  options.max_groups = 4;
  options.max_bytes = 503;
  CoreDriver driver(options);
  const v1::WorkerIdentity worker = driver.Register("a");
  driver.StartTrainer();
  const auto push = [&](const v1::Ticket& ticket, uint32_t member, size_t bytes, uint64_t version = 1) {
    PushedTrajectory pushed = CoreDriver::Completed(ticket, member, 1.0, version);
    pushed.payload.assign(bytes, 'x');
    return driver.Push(worker, pushed).result();
  };
  const auto acquire = [&] { return driver.Acquire(worker, 2).tickets(0); };
  const v1::Ticket first = acquire();
  for (uint32_t member : {0, 1}) push(first, member, 1);
  const v1::Ticket second = acquire();
  push(second, 0, 1);
  for (uint64_t id : {3, 4}) {
    const v1::Ticket ticket = acquire();
    ASSERT_EQ(ticket.id(), id);
    for (uint32_t member : {0, 1}) push(ticket, member, 100);
  }
  ASSERT_THAT(driver.Train(1), ElementsAre(1));
  ASSERT_EQ(push(second, 1, 100, /*version=*/2), v1::ACCEPTED);
  driver.StartTrainer();
  EXPECT_EQ(driver.counts().rewound(), 1u);
  ASSERT_THAT(driver.Train(1), ElementsAre(1));
  ASSERT_TRUE(driver.core().Settle(driver.lineage(), 1).ok());
  // Groups 3 and 4 hold 400 of 503 bytes and wait for ticket 2, which needs 200.
  const v1::Ticket again = acquire();
  EXPECT_EQ(again.id(), 2u);
  EXPECT_EQ(driver.counts().ready(), 1u);
  driver.Complete(worker, again);
  EXPECT_EQ(driver.RunAll(worker), 2);  // 4, which gave way, and 5
  for (uint64_t step : {2, 3, 4}) EXPECT_THAT(driver.Train(step), ElementsAre(step));
}

TEST(QueueCoreTest, ANewQueueGoesOnFromTheSnapshotOfACheckpoint) {
  CoreDriver first(DriverOptions(2, 2, 1, 10));
  const v1::WorkerIdentity worker = first.Register("a");
  first.StartTrainer();
  ASSERT_EQ(first.Acquire(worker, 2).tickets_size(), 1);  // ticket 1 runs
  const v1::Ticket failed = first.Acquire(worker, 2).tickets(0);
  first.Push(worker, CoreDriver::Failed(failed, 0, "reset_failed"));  // ticket 2 fails
  const v1::WorkerIdentity renewed = first.Register("a");
  first.RunAll(renewed);
  EXPECT_THAT(first.Train(1), ElementsAre(1, 3));
  first.Acquire(renewed, 2);  // ticket 6 runs, 4 and 5 are ready
  const std::string snapshot = *first.core().Snapshot(first.lineage());

  QueueCoreOptions options = DriverOptions(2, 2, 1, 10);
  options.last_lineage = first.lineage();
  CoreDriver second(options);
  const v1::WorkerIdentity other = second.Register("b");
  second.StartTrainer(1, snapshot);
  EXPECT_EQ(second.lineage(), first.lineage() + 1);
  EXPECT_EQ(second.counts().trained(), 2u);
  EXPECT_EQ(second.counts().failed(), 1u);
  EXPECT_EQ(second.counts().rewound(), 3u);
  const v1::AcquireTicketsResponse again = second.Acquire(other, 100);
  EXPECT_THAT(Ids(again), ElementsAre(4, 5, 6, 7));
  for (const v1::Ticket& ticket : again.tickets()) second.Complete(other, ticket);
  EXPECT_THAT(second.Train(2), ElementsAre(4, 5));
}

TEST(QueueCoreTest, ASnapshotThatDoesNotFitIsRefusedWithReasons) {
  CoreDriver first(DriverOptions(2, 2, 1, 10));
  const v1::WorkerIdentity worker = first.Register("a");
  first.StartTrainer();
  first.RunAll(worker);
  first.Train(1);
  const std::string snapshot = *first.core().Snapshot(first.lineage());
  const auto restore = [&](QueueCoreOptions options, uint64_t step, const std::string& bytes) {
    options.last_lineage = std::max<uint64_t>(options.last_lineage, 1);
    CoreDriver driver(options);
    v1::WeightsVersion committed;
    const uint64_t lineage = driver.core().AllocateLineage(&committed);
    return driver.core().Restore(lineage, step, bytes, driver.now());
  };
  EXPECT_TRUE(restore(DriverOptions(2, 2, 1, 10), 1, snapshot).ok());
  EXPECT_TRUE(restore(DriverOptions(2, 2, 3, 20), 1, snapshot).ok());  // a larger budget, a longer run
  EXPECT_EQ(restore(DriverOptions(2, 2, 1, 10), 1, "").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(restore(DriverOptions(2, 2, 1, 10), 2, snapshot).code(), absl::StatusCode::kInvalidArgument);
  QueueCoreOptions other = DriverOptions(3, 2, 0, 10);
  other.task = "reverse5";
  other.staleness.order = StalenessOrder::kReady;
  other.staleness.breach = StalenessBreach::kDrop;
  const absl::Status refused = restore(other, 1, snapshot);
  for (const char* part : {"task is sort5", "groups_per_step is 2", "order is ticket", "budget is 1"}) {
    EXPECT_THAT(std::string(refused.message()), HasSubstr(part));
  }
  for (size_t at : {0ul, 31ul, 32ul, 60ul, snapshot.size() - 1}) {
    std::string damaged = snapshot;
    damaged[at] ^= 4;
    EXPECT_EQ(restore(DriverOptions(2, 2, 1, 10), 1, damaged).code(), absl::StatusCode::kDataLoss) << at;
  }
  EXPECT_EQ(restore(DriverOptions(2, 2, 1, 10), 1, snapshot.substr(0, snapshot.size() / 2)).code(),
            absl::StatusCode::kDataLoss);
  CoreDriver repeated(DriverOptions(2, 2, 1, 10));  // its record of lineages is lost: lineage 1 again
  v1::WeightsVersion committed;
  const uint64_t lineage = repeated.core().AllocateLineage(&committed);
  const absl::Status again = repeated.core().Restore(lineage, 1, snapshot, repeated.now());
  EXPECT_TRUE(absl::IsAborted(again)) << again;
  EXPECT_THAT(std::string(again.message()), HasSubstr("knows lineage 1 already"));
  // The trainer starts again, and is given one that the checkpoint does not know.
  EXPECT_EQ(repeated.core().AllocateLineage(&committed), 2u);
  EXPECT_TRUE(repeated.core().Restore(2, 1, snapshot, repeated.now()).ok());
}

TEST(QueueCoreTest, ACheckpointOfAnAbandonedHistoryIsRefused) {
  CoreDriver driver(DriverOptions(1, 1, 0, 20));
  const v1::WorkerIdentity worker = driver.Register("a");
  driver.StartTrainer();
  for (uint64_t step = 1; step <= 5; ++step) {
    driver.RunAll(worker);
    driver.Train(step);
  }
  const std::string at_five = *driver.core().Snapshot(driver.lineage());
  driver.StartTrainer(2);  // the checkpoint of step 5 could not be read
  driver.RunAll(worker);
  driver.Train(3);
  v1::WeightsVersion committed;
  uint64_t lineage = driver.core().AllocateLineage(&committed);
  EXPECT_EQ(driver.core().Restore(lineage, 5, at_five, driver.now()).code(), absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(driver.core().Restore(lineage, 3, "", driver.now()).ok());
}

TEST(QueueCoreTest, ARestoreBelowASettledStepIssuesThoseTicketsAgain) {
  CoreDriver driver(DriverOptions(2, 1, 0, 20));
  const v1::WorkerIdentity worker = driver.Register("a");
  driver.StartTrainer();
  std::string at_two;
  for (uint64_t step = 1; step <= 4; ++step) {
    driver.RunAll(worker);
    driver.Train(step);
    if (step == 2) at_two = *driver.core().Snapshot(driver.lineage());
  }
  ASSERT_TRUE(driver.core().Settle(driver.lineage(), 4).ok());
  v1::WeightsVersion committed;
  const uint64_t lineage = driver.core().AllocateLineage(&committed);
  EXPECT_EQ(driver.core().Restore(lineage, 2, "", driver.now()).code(), absl::StatusCode::kInvalidArgument);
  driver.StartTrainer(2, at_two);
  EXPECT_EQ(driver.counts().settled(), 4u);
  EXPECT_EQ(driver.counts().rewound(), 4u);
  EXPECT_THAT(Ids(driver.Acquire(worker, 9)), ElementsAre(5, 6));
}

// ---- filter ---------------------------------------------------------------------------------------------------------

QueueCoreOptions FilterOptions(double max_refills) {
  QueueCoreOptions options = DriverOptions(2, 2, 0, 10);
  options.filter_zero_variance = true;
  options.filter_max_refills = max_refills;
  return options;
}

void CompleteFlat(CoreDriver* driver, const v1::WorkerIdentity& worker, const v1::Ticket& ticket, double reward) {
  for (uint32_t member : ticket.members()) {
    ASSERT_EQ(driver->Push(worker, CoreDriver::Completed(ticket, member, reward)).result(), v1::ACCEPTED);
  }
}

TEST(QueueCoreFilterTest, GroupsWithoutVarianceAreReplacedUpToTheLimitThenTrainedWithoutAdvantage) {
  CoreDriver driver(FilterOptions(1.0));  // two a step
  const v1::WorkerIdentity worker = driver.Register("a");
  driver.StartTrainer();
  const v1::AcquireTicketsResponse first = driver.Acquire(worker, 4);
  CompleteFlat(&driver, worker, first.tickets(0), 1.0);
  CompleteFlat(&driver, worker, first.tickets(1), 0.0);
  EXPECT_EQ(driver.counts().filtered(), 2u);
  const v1::AcquireTicketsResponse second = driver.Acquire(worker, 4);
  ASSERT_THAT(Ids(second), ElementsAre(3, 4));
  CompleteFlat(&driver, worker, second.tickets(0), 0.5);
  driver.Complete(worker, second.tickets(1));
  const LeaseResult lease = driver.Lease(1);
  ASSERT_THAT(Ids(lease), ElementsAre(3, 4));
  EXPECT_TRUE(lease.groups[0].zero_advantage);
  EXPECT_FALSE(lease.groups[1].zero_advantage);
  ASSERT_TRUE(driver.Commit(2, {3, 4}).ok());
  v1::StatusResponse status;
  driver.core().FillStatus(driver.now(), &status);
  EXPECT_EQ(status.answers().at("zero_advantage_group"), 1u);
  // A step has its own allowance.
  const v1::AcquireTicketsResponse third = driver.Acquire(worker, 4);
  CompleteFlat(&driver, worker, third.tickets(0), 0.5);
  EXPECT_EQ(driver.counts().filtered(), 3u);
}

TEST(QueueCoreFilterTest, ARestoreKeepsTheAllowanceThatItsStepHasUsed) {
  CoreDriver driver(FilterOptions(0.5));  // one a step
  const v1::WorkerIdentity worker = driver.Register("a");
  driver.StartTrainer();
  driver.RunAll(worker);
  driver.Train(1);
  const v1::AcquireTicketsResponse second = driver.Acquire(worker, 4);
  ASSERT_THAT(Ids(second), ElementsAre(3, 4));
  CompleteFlat(&driver, worker, second.tickets(0), 0.0);
  EXPECT_EQ(driver.counts().filtered(), 1u);
  driver.StartTrainer(1);  // what version 2 generated survives, and so does the judgement
  EXPECT_EQ(driver.counts().filtered(), 1u);
  CompleteFlat(&driver, worker, second.tickets(1), 0.0);
  EXPECT_EQ(driver.counts().filtered(), 1u);
  driver.RunAll(worker);
  const LeaseResult lease = driver.Lease(2);
  ASSERT_THAT(Ids(lease), ElementsAre(4, 5));
  EXPECT_TRUE(lease.groups[0].zero_advantage);
}

TEST(QueueCoreFilterTest, ARetiredGroupLeavesItsPlaceToTheNextOne) {
  CoreDriver driver(FilterOptions(0.5));  // one a step
  const v1::WorkerIdentity worker = driver.Register("a");
  driver.StartTrainer();
  CompleteFlat(&driver, worker, driver.Acquire(worker, 2).tickets(0), 0.0);
  EXPECT_EQ(driver.counts().filtered(), 1u);
  driver.RunAll(worker);
  ASSERT_THAT(Ids(driver.Lease(1)), ElementsAre(2, 3));
  ASSERT_TRUE(driver.core().RetireGroup(driver.lineage(), 1, 2, "logprob_mismatch").ok());
  // Its replacement is judged for step 1, whose allowance is used up.
  CompleteFlat(&driver, worker, driver.Acquire(worker, 2).tickets(0), 0.0);
  EXPECT_EQ(driver.counts().filtered(), 1u);
  const LeaseResult lease = driver.Lease(1);
  ASSERT_THAT(Ids(lease), ElementsAre(3, 4));
  EXPECT_TRUE(lease.groups[1].zero_advantage);
}

TEST(QueueCoreFilterTest, OnlyScoredMembersAreCompared) {
  CoreDriver driver(FilterOptions(1.0));
  const v1::WorkerIdentity worker = driver.Register("a");
  driver.StartTrainer();
  const v1::AcquireTicketsResponse tickets = driver.Acquire(worker, 4);
  PushedTrajectory unscored = CoreDriver::Completed(tickets.tickets(0), 0, 0.0);
  unscored.summary.reward.reset();
  driver.Push(worker, unscored);
  driver.Push(worker, CoreDriver::Completed(tickets.tickets(0), 1, 1.0));
  EXPECT_EQ(driver.counts().filtered(), 1u);  // one score has no variance
  for (uint32_t member : {0, 1}) {
    unscored = CoreDriver::Completed(tickets.tickets(1), member, 0.0);
    unscored.summary.reward.reset();
    driver.Push(worker, unscored);
  }
  EXPECT_EQ(driver.counts().filtered(), 1u);  // nothing to judge
  EXPECT_EQ(driver.counts().ready(), 1u);
}

TEST(QueueCoreFilterTest, JudgementFollowsTicketOrderNotArrival) {
  CoreDriver driver(FilterOptions(0.5));  // one a step
  const v1::WorkerIdentity worker = driver.Register("a");
  driver.StartTrainer();
  const v1::AcquireTicketsResponse first = driver.Acquire(worker, 4);
  CompleteFlat(&driver, worker, first.tickets(1), 0.0);
  EXPECT_EQ(driver.counts().filtered(), 0u);  // ticket 1 has not been judged yet
  CompleteFlat(&driver, worker, first.tickets(0), 0.0);
  EXPECT_EQ(driver.counts().filtered(), 1u);
  driver.Complete(worker, driver.Acquire(worker, 4).tickets(0));
  const LeaseResult lease = driver.Lease(1);
  ASSERT_THAT(Ids(lease), ElementsAre(2, 3));
  EXPECT_TRUE(lease.groups[0].zero_advantage);
}

TEST(QueueCoreFilterTest, OtherOrdersAreJudgedWhenTheyAreWanted) {
  QueueCoreOptions options = FilterOptions(0.5);
  options.staleness.order = StalenessOrder::kReady;
  options.staleness.breach = StalenessBreach::kDrop;
  options.staleness.budget = 1;
  CoreDriver driver(options);
  const v1::WorkerIdentity worker = driver.Register("a");
  driver.StartTrainer();
  const v1::AcquireTicketsResponse first = driver.Acquire(worker, 8);
  ASSERT_EQ(first.tickets_size(), 4);
  CompleteFlat(&driver, worker, first.tickets(3), 0.0);
  CompleteFlat(&driver, worker, first.tickets(2), 0.0);
  EXPECT_EQ(driver.Lease(1).cause, "waiting_for_groups");
  EXPECT_EQ(driver.counts().filtered(), 1u);  // ticket 3: judged before 4
  driver.Complete(worker, first.tickets(1));
  const LeaseResult lease = driver.Lease(1);
  ASSERT_THAT(Ids(lease), ElementsAre(2, 4));
  EXPECT_TRUE(lease.groups[1].zero_advantage);
}

// ---- evaluation, drain, cancel --------------------------------------------------------------------------------------

TEST(QueueCoreTest, EvaluationTicketsComeFirstPinnedAndNeverTouchTheLedger) {
  QueueCoreOptions options = DriverOptions(1, 1, 0, 1);
  options.evaluation.every = 1;
  options.evaluation.episodes = 2;
  CoreDriver driver(options);
  const v1::WorkerIdentity worker = driver.Register("a");
  driver.StartTrainer();
  const v1::AcquireTicketsResponse response = driver.Acquire(worker, 8);
  ASSERT_EQ(response.tickets_size(), 3);
  for (int i : {0, 1}) {
    EXPECT_TRUE(response.tickets(i).evaluation());
    EXPECT_EQ(response.tickets(i).id(), i + 1u);
    EXPECT_EQ(response.tickets(i).seed(), 5000u + i);
    EXPECT_EQ(response.tickets(i).weights().version(), 1u);
  }
  EXPECT_FALSE(response.tickets(2).evaluation());
  EXPECT_EQ(driver.counts().issued_total(), 1u);
  driver.Complete(worker, response.tickets(2));
  ASSERT_EQ(driver.Push(worker, CoreDriver::Completed(response.tickets(0), 0, 1.0)).result(), v1::ACCEPTED);
  ASSERT_EQ(driver.Push(worker, CoreDriver::Failed(response.tickets(1), 0, "reset_failed")).result(), v1::ACCEPTED);
  driver.Train(1);
  // All steps are trained, but the last version is still to be evaluated.
  EXPECT_FALSE(driver.core().run_complete());
  const v1::AcquireTicketsResponse last = driver.Acquire(worker, 1);
  ASSERT_EQ(last.tickets_size(), 1);
  EXPECT_EQ(last.tickets(0).weights().version(), 2u);
  const v1::WorkerIdentity renewed = driver.Register("a");
  EXPECT_EQ(driver.RunAll(renewed), 2);
  EXPECT_FALSE(driver.core().run_complete()) << "no checkpoint covers the last step";
  ASSERT_TRUE(driver.core().Settle(driver.lineage(), 1).ok());
  EXPECT_TRUE(driver.core().run_complete());
  v1::StatusResponse status;
  driver.core().FillStatus(driver.now(), &status);
  ASSERT_EQ(status.evaluations_size(), 2);
  EXPECT_EQ(status.evaluations(0).reward_mean(), 1.0);
  EXPECT_EQ(status.evaluations(0).failed(), 1u);
  EXPECT_TRUE(status.evaluations(1).complete());
}

TEST(QueueCoreTest, ABatchWaitsUntilSomebodyHoldsTheVersionThatIsToBeEvaluated) {
  QueueCoreOptions options = DriverOptions(1, 1, 1, 3);
  options.evaluation.every = 1;
  options.evaluation.episodes = 1;
  CoreDriver driver(options);
  const v1::WorkerIdentity worker = driver.Register("a");
  driver.StartTrainer();
  ASSERT_GE(driver.RunAll(worker), 2);
  driver.Train(1);
  // A group for step 2 is ready, but the worker still holds version 1.
  EXPECT_EQ(driver.core().Lease(driver.lineage(), 2, driver.now())->cause, "waiting_for_evaluation");
  const uint64_t before = driver.core().changes();
  v1::HeartbeatRequest heartbeat;
  *heartbeat.mutable_identity() = worker;
  *heartbeat.mutable_holds() = driver.core().committed();
  ASSERT_TRUE(driver.core().Heartbeat(heartbeat, driver.now()).ok());
  EXPECT_GT(driver.core().changes(), before) << "the open call would not look again";
  EXPECT_EQ(driver.core().Lease(driver.lineage(), 2, driver.now())->groups.size(), 1u);
}

TEST(QueueCoreTest, DrainReturnsUnfinishedTicketsAndIssuesNothing) {
  CoreDriver driver(DriverOptions(2, 2, 0, 10));
  const v1::WorkerIdentity worker = driver.Register("a");
  driver.StartTrainer();
  const v1::AcquireTicketsResponse tickets = driver.Acquire(worker, 4);
  driver.Push(worker, CoreDriver::Completed(tickets.tickets(0), 0, 1.0));
  driver.core().Drain(driver.now());
  driver.Check();
  EXPECT_EQ(driver.counts().issued(), 2u);
  EXPECT_EQ(driver.Acquire(worker, 4).cause(), "draining");
  EXPECT_EQ(driver.Lease(1).cause, "draining");
  EXPECT_EQ(driver.Push(worker, CoreDriver::Completed(tickets.tickets(0), 1, 1.0)).result(), v1::GROUP_CLOSED);
}

TEST(QueueCoreTest, ACancelledTicketIsReplacedAndStaysCancelledInEveryHistory) {
  CoreDriver driver(DriverOptions(2, 1, 0, 10));
  const v1::WorkerIdentity worker = driver.Register("a");
  driver.StartTrainer();
  driver.RunAll(worker);
  driver.Train(1);
  const v1::AcquireTicketsResponse tickets = driver.Acquire(worker, 2);
  ASSERT_TRUE(driver.core().CancelTicket(3).ok());
  EXPECT_FALSE(driver.core().CancelTicket(3).ok());
  EXPECT_FALSE(driver.core().CancelTicket(1).ok());
  driver.Check();
  EXPECT_THAT(Ids(driver.Acquire(worker, 2)), ElementsAre(5));
  driver.StartTrainer(0);
  EXPECT_EQ(driver.counts().cancelled(), 1u);
}

TEST(QueueCoreTest, StatusTellsWorkersWaitsAndLengths) {
  CoreDriver driver(DriverOptions(1, 2, 0, 10));
  const v1::WorkerIdentity worker = driver.Register("a");
  driver.StartTrainer();
  EXPECT_EQ(driver.Lease(1).cause, "waiting_for_groups");
  driver.RunAll(worker);
  driver.Advance(absl::Seconds(3));
  v1::StatusResponse status;
  driver.core().FillStatus(driver.now(), &status);
  ASSERT_EQ(status.workers_size(), 1);
  EXPECT_EQ(status.workers(0).name(), "a");
  EXPECT_TRUE(status.workers(0).alive());
  EXPECT_EQ(status.workers(0).trajectories(), 2u);
  EXPECT_EQ(status.workers(0).seconds_since_heartbeat(), 3.0);
  EXPECT_EQ(status.groups(), 1u);
  EXPECT_EQ(status.next_ticket(), 2u);
  EXPECT_TRUE(status.conservation_holds());
  EXPECT_EQ(status.generated_tokens(), 10u);
  EXPECT_EQ(status.generated_length_mean(), 5.0);
  EXPECT_EQ(status.answers().at("ACCEPTED"), 2u);
  std::map<std::string, std::string> waits;
  for (const v1::OpenWait& wait : status.waits()) waits[wait.who()] = wait.cause();
  EXPECT_EQ(waits,
            (std::map<std::string, std::string>{{"a", "waiting_for_version"}, {"trainer", "waiting_for_groups"}}));
}

}  // namespace
}  // namespace leeway
