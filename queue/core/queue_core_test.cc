#include "queue/core/queue_core.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "queue/core/queue_core_test_driver.h"

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

// ---- options --------------------------------------------------------------------------------------------------------

TEST(QueueCoreOptionsTest, EverythingWrongIsListedAtOnce) {
  QueueCoreOptions options = DriverOptions(4, 2, 0, 10);
  options.max_groups = 3;
  options.max_bytes = 799;  // one batch: 4 * 2 * 100
  options.min_group_size = 3;
  options.train_seed = nullptr;
  const absl::Status refused = QueueCore::Create(options, std::make_unique<MemoryStore>()).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  for (const char* part : {"max_groups = 3", "max_bytes = 799", "= 800", "minimum group size 3", "seeds"}) {
    EXPECT_THAT(std::string(refused.message()), HasSubstr(part));
  }
}

// ---- tickets --------------------------------------------------------------------------------------------------------

TEST(QueueCoreTest, ATicketNamesItsTaskSeedMembersAndVersion) {
  CoreDriver driver(DriverOptions(2, 3, 0, 10));
  const v1::WorkerIdentity worker = driver.Register("rollout-0");
  EXPECT_EQ(driver.Acquire(worker, 1).cause(), "waiting_for_trainer");
  driver.StartTrainer();
  const v1::AcquireTicketsResponse response = driver.Acquire(worker, 6);
  ASSERT_EQ(response.tickets_size(), 2);
  const v1::Ticket& second = response.tickets(1);
  EXPECT_EQ(second.id(), 2u);
  EXPECT_EQ(second.issue(), 1u);
  EXPECT_EQ(second.task(), "sort5");
  EXPECT_EQ(second.task_index(), 1u);
  EXPECT_EQ(second.seed(), 1001u);
  EXPECT_EQ(second.member_count(), 3u);
  EXPECT_THAT(std::vector<uint32_t>(second.members().begin(), second.members().end()), ElementsAre(0, 1, 2));
  EXPECT_EQ(second.weights().version(), 1u);
  EXPECT_EQ(second.weights().lineage(), 1u);
  EXPECT_FALSE(second.evaluation());
  EXPECT_EQ(response.committed_digest(), "digest of 1");
  EXPECT_EQ(driver.Acquire(worker, 6).cause(), "waiting_for_version");
}

TEST(QueueCoreTest, PacingAdmitsBudgetPlusOneBatches) {
  for (uint64_t budget : {0, 1, 3}) {
    CoreDriver driver(DriverOptions(2, 1, budget, 100));
    const v1::WorkerIdentity worker = driver.Register("rollout-0");
    driver.StartTrainer();
    EXPECT_EQ(driver.RunAll(worker), static_cast<int>(2 * (budget + 1)));
    EXPECT_THAT(driver.Train(1), ElementsAre(1, 2));
    EXPECT_EQ(driver.RunAll(worker), 2);
  }
}

TEST(QueueCoreTest, NoTicketBeyondTheEndOfTheRun) {
  CoreDriver driver(DriverOptions(2, 1, 4, 3));
  const v1::WorkerIdentity worker = driver.Register("rollout-0");
  driver.StartTrainer();
  EXPECT_EQ(driver.RunAll(worker), 6);  // 3 steps of 2, although S = 4 would allow 10
  for (uint64_t step = 1; step <= 3; ++step) ASSERT_EQ(driver.Train(step).size(), 2u);
  // Its trainer may still die before the last checkpoint, and train the last step again.
  EXPECT_FALSE(driver.Acquire(worker, 1).run_complete());
  ASSERT_TRUE(driver.core().Settle(driver.lineage(), 3).ok());
  const v1::AcquireTicketsResponse end = driver.Acquire(worker, 1);
  EXPECT_EQ(end.cause(), "run_complete");
  EXPECT_TRUE(end.run_complete());
  EXPECT_FALSE(driver.core().Lease(driver.lineage(), 4, driver.now()).ok());
}

TEST(QueueCoreTest, BoundsInGroupsAndBytesHoldWithACause) {
  QueueCoreOptions options = DriverOptions(2, 2, 9, 100);
  options.max_groups = 3;
  CoreDriver by_groups(options);
  const v1::WorkerIdentity worker = by_groups.Register("rollout-0");
  by_groups.StartTrainer();
  EXPECT_EQ(by_groups.RunAll(worker), 3);
  EXPECT_EQ(by_groups.Acquire(worker, 1).cause(), "queue_full");
  ASSERT_EQ(by_groups.Train(1).size(), 2u);
  EXPECT_EQ(by_groups.RunAll(worker), 2);

  options.max_groups = 100;
  options.max_bytes = 1000;  // five groups of 2 * 100 reserved
  CoreDriver by_bytes(options);
  const v1::WorkerIdentity other = by_bytes.Register("rollout-0");
  by_bytes.StartTrainer();
  EXPECT_EQ(by_bytes.Acquire(other, 100).tickets_size(), 5);
  EXPECT_EQ(by_bytes.Acquire(other, 100).cause(), "queue_full");
}

TEST(QueueCoreTest, KnownSizesGiveTheReservationBack) {
  QueueCoreOptions options = DriverOptions(2, 2, 9, 100);
  options.max_bytes = 400;  // two groups reserved
  CoreDriver driver(options);
  const v1::WorkerIdentity worker = driver.Register("rollout-0");
  driver.StartTrainer();
  const v1::AcquireTicketsResponse first = driver.Acquire(worker, 100);
  ASSERT_EQ(first.tickets_size(), 2);
  EXPECT_EQ(driver.core().bytes(), 400u);
  driver.Complete(worker, first.tickets(0));
  EXPECT_EQ(driver.core().bytes(), 200u + 2 * 17);  // "ticket 1 member 0" is 17 bytes
  EXPECT_EQ(driver.Acquire(worker, 100).cause(), "queue_full");
  driver.Complete(worker, first.tickets(1));
  EXPECT_EQ(driver.core().bytes(), 4 * 17u);
  EXPECT_EQ(driver.Acquire(worker, 100).tickets_size(), 1);
}

TEST(QueueCoreTest, TrainedPayloadsAskForACheckpointWhenTheyFillTheQueue) {
  QueueCoreOptions options = DriverOptions(1, 1, 0, 1000);
  options.max_trajectory_bytes = 20;
  options.max_bytes = 100;
  CoreDriver driver(options);
  const v1::WorkerIdentity worker = driver.Register("rollout-0");
  driver.StartTrainer();
  uint64_t step = 1;
  while (driver.RunAll(worker) == 1) driver.Train(step++);
  // 17 bytes a step and 20 to be reserved: the sixth group does not fit into 100.
  EXPECT_EQ(step, 6u);
  EXPECT_TRUE(driver.core().checkpoint_wanted());
  EXPECT_EQ(driver.Lease(step).cause, "queue_needs_checkpoint");
  ASSERT_TRUE(driver.core().Settle(driver.lineage(), 3).ok());
  driver.Check();
  EXPECT_EQ(driver.core().bytes(), 2 * 17u);
  EXPECT_FALSE(driver.core().Settle(driver.lineage(), 6).ok());
  EXPECT_EQ(driver.RunAll(worker), 1);
}

TEST(QueueCoreTest, TwoWorkersShareABatchThatEitherCouldHold) {
  CoreDriver driver(DriverOptions(8, 4, 0, 10));
  const v1::WorkerIdentity a = driver.Register("a");
  const v1::WorkerIdentity b = driver.Register("b");
  driver.StartTrainer();
  EXPECT_THAT(Ids(driver.Acquire(a, 64)), ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(driver.Acquire(a, 48).cause(), "waiting_for_share");
  EXPECT_THAT(Ids(driver.Acquire(b, 64)), ElementsAre(5, 6, 7, 8));
  EXPECT_EQ(driver.Acquire(b, 48).cause(), "waiting_for_version");
}

TEST(QueueCoreTest, SharesFollowTheSlots) {
  CoreDriver driver(DriverOptions(9, 1, 0, 10));
  const v1::WorkerIdentity small = driver.Register("small");
  const v1::WorkerIdentity large = driver.Register("large");
  driver.StartTrainer();
  // Nobody knows the large one's slots yet: half. Then 9 groups are divided 1 : 8.
  EXPECT_EQ(driver.Acquire(small, 2).tickets_size(), 2);
  EXPECT_EQ(driver.Acquire(large, 16).tickets_size(), 7);
}

TEST(QueueCoreTest, TheShareOfAWorkerThatDoesNotComeIsKeptForAMomentOnly) {
  CoreDriver driver(DriverOptions(8, 4, 0, 10));
  const v1::WorkerIdentity a = driver.Register("a");
  driver.Register("b");
  driver.StartTrainer();
  ASSERT_EQ(driver.Acquire(a, 64).tickets_size(), 4);
  EXPECT_EQ(driver.Acquire(a, 48).cause(), "waiting_for_share");
  EXPECT_EQ(driver.core().NextEvent(), driver.now() + absl::Milliseconds(100));
  driver.Advance(absl::Milliseconds(100));
  const uint64_t changes = driver.core().changes();
  EXPECT_THAT(driver.core().Tick(driver.now()), IsEmpty());
  EXPECT_GT(driver.core().changes(), changes);
  EXPECT_EQ(driver.Acquire(a, 48).tickets_size(), 4);
}

TEST(QueueCoreTest, AWorkerWithOneFreeSlotGetsAWholeTicket) {
  CoreDriver driver(DriverOptions(2, 8, 0, 10));
  const v1::WorkerIdentity worker = driver.Register("a");
  driver.StartTrainer();
  EXPECT_EQ(driver.Acquire(worker, 1).tickets_size(), 1);
  v1::AcquireTicketsRequest request;
  *request.mutable_identity() = worker;
  request.set_sequence(2);
  EXPECT_TRUE(absl::IsInvalidArgument(driver.core().BeginAcquire(request, driver.now())));
}

// ---- identity and sequence ------------------------------------------------------------------------------------------

TEST(QueueCoreTest, RegisteringAgainFencesTheOldEpochAndKeepsAcknowledgedMembers) {
  CoreDriver driver(DriverOptions(1, 3, 0, 10));
  const v1::WorkerIdentity old = driver.Register("a");
  driver.StartTrainer();
  const v1::Ticket ticket = driver.Acquire(old, 8).tickets(0);
  ASSERT_EQ(driver.Push(old, CoreDriver::Completed(ticket, 1, 0.5)).result(), v1::ACCEPTED);
  const v1::WorkerIdentity renewed = driver.Register("a");
  EXPECT_EQ(renewed.producer_id(), old.producer_id());
  EXPECT_EQ(renewed.epoch(), old.epoch() + 1);
  EXPECT_EQ(driver.counts().issued(), 1u);
  EXPECT_EQ(driver.core().CheckIdentity(old).code(), absl::StatusCode::kAborted);
  PushedTrajectory late = CoreDriver::Completed(ticket, 0, 0.5);
  EXPECT_EQ(driver.core().Push(old, 2, &late, driver.now()).status().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(driver.core().AcquireTickets(old, 1, driver.now()).status().code(), absl::StatusCode::kAborted);

  const v1::Ticket again = driver.Acquire(renewed, 8).tickets(0);
  EXPECT_EQ(again.id(), ticket.id());
  EXPECT_EQ(again.issue(), 2u);
  EXPECT_EQ(again.seed(), ticket.seed());
  EXPECT_THAT(std::vector<uint32_t>(again.members().begin(), again.members().end()), ElementsAre(0, 2));
  // The same member again, from whatever issue, is a duplicate; another member of the old issue comes too late.
  EXPECT_EQ(driver.Push(renewed, CoreDriver::Completed(ticket, 1, 0.5)).result(), v1::DUPLICATE);
  EXPECT_EQ(driver.Push(renewed, CoreDriver::Completed(ticket, 2, 0.5)).result(), v1::GROUP_CLOSED);
  driver.Complete(renewed, again);
  EXPECT_EQ(driver.counts().ready(), 1u);
  EXPECT_EQ(driver.counts().issued_total(), 1u);
}

TEST(QueueCoreTest, ASequenceNumberIsAnsweredOnceAndVerbatim) {
  CoreDriver driver(DriverOptions(2, 2, 0, 10));
  const v1::WorkerIdentity worker = driver.Register("a");
  driver.StartTrainer();
  const v1::Ticket ticket = driver.Acquire(worker, 2).tickets(0);
  QueueCore& core = driver.core();
  PushedTrajectory first = CoreDriver::Completed(ticket, 0, 0.5);
  const v1::PushAnswer answer = *core.Push(worker, 1, &first, driver.now());
  EXPECT_EQ(answer.result(), v1::ACCEPTED);
  EXPECT_EQ(answer.sequence(), 1u);
  PushedTrajectory gap = CoreDriver::Completed(ticket, 1, 0.5);
  const absl::Status refused = core.Push(worker, 3, &gap, driver.now()).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("2 is expected"));
  EXPECT_EQ(core.Push(worker, 0, &gap, driver.now()).status().code(), absl::StatusCode::kInvalidArgument);
  // Number 1 again, carrying something else: the answer of then, and nothing happens.
  EXPECT_EQ(core.Push(worker, 1, &gap, driver.now())->SerializeAsString(), answer.SerializeAsString());
  EXPECT_EQ(core.RememberedAnswer(worker, 1)->SerializeAsString(), answer.SerializeAsString());
  EXPECT_FALSE(core.RememberedAnswer(worker, 2).has_value());
  EXPECT_EQ(driver.counts().ready(), 0u);
  EXPECT_EQ(core.Push(worker, 2, &gap, driver.now())->result(), v1::ACCEPTED);
  EXPECT_EQ(driver.counts().ready(), 1u);
}

TEST(QueueCoreTest, AnswersAreForgottenAfterAWhile) {
  CoreDriver driver(DriverOptions(1, 1, 0, 10));
  const v1::WorkerIdentity worker = driver.Register("a");
  driver.StartTrainer();
  const v1::Ticket ticket = driver.Acquire(worker, 1).tickets(0);
  for (int i = 0; i <= QueueCore::kRememberedAnswers; ++i) {
    PushedTrajectory pushed = CoreDriver::Completed(ticket, 0, 0.5);
    ASSERT_TRUE(driver.core().Push(worker, i + 1, &pushed, driver.now()).ok());
  }
  PushedTrajectory repeated = CoreDriver::Completed(ticket, 0, 0.5);
  EXPECT_EQ(driver.core().Push(worker, 1, &repeated, driver.now()).status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(driver.core().Push(worker, 2, &repeated, driver.now())->result(), v1::DUPLICATE);
}

// A disk that is full when told so.
class FullStore : public MemoryStore {
 public:
  explicit FullStore(const bool* is_full) : is_full_(is_full) {}
  absl::Status Put(const PayloadKey& key, Payload payload) override {
    if (*is_full_) return absl::ResourceExhaustedError("no space left");
    return MemoryStore::Put(key, std::move(payload));
  }

 private:
  const bool* is_full_;
};

TEST(QueueCoreTest, FullConsumesNoSequenceNumberAndKeepsNothing) {
  bool is_full = true;
  auto core = *QueueCore::Create(DriverOptions(1, 1, 0, 10), std::make_unique<FullStore>(&is_full));
  const MonotonicTime now{absl::Seconds(5)};
  const v1::WorkerIdentity worker = core->RegisterWorker("a", now);
  v1::WeightsVersion committed;
  const uint64_t lineage = core->AllocateLineage(&committed);
  ASSERT_TRUE(core->Restore(lineage, 0, "", now).ok());
  v1::CommitRequest initial;
  initial.set_lineage(lineage);
  initial.set_version(1);
  initial.set_digest("d");
  initial.set_initial(true);
  ASSERT_TRUE(core->Commit(initial, now).ok());
  v1::AcquireTicketsRequest acquire;
  *acquire.mutable_identity() = worker;
  acquire.set_sequence(1);
  acquire.set_max_members(1);
  ASSERT_TRUE(core->BeginAcquire(acquire, now).ok());
  const v1::Ticket ticket = core->AcquireTickets(worker, 1, now)->tickets(0);
  PushedTrajectory pushed = CoreDriver::Completed(ticket, 0, 0.5);
  const std::string payload = pushed.payload;
  const v1::PushAnswer full = *core->Push(worker, 1, &pushed, now);
  EXPECT_EQ(full.result(), v1::FULL);
  EXPECT_GT(full.retry_after_ms(), 0u);
  EXPECT_EQ(pushed.payload, payload);
  ASSERT_TRUE(core->CheckInvariants().ok());
  is_full = false;
  EXPECT_EQ(core->Push(worker, 1, &pushed, now)->result(), v1::ACCEPTED);
  EXPECT_EQ(core->counts().ready(), 1u);
}

TEST(QueueCoreTest, AFencedWorkerLosesItsTicketsAtOnce) {
  CoreDriver driver(DriverOptions(1, 1, 0, 10));
  const v1::WorkerIdentity worker = driver.Register("a");
  driver.StartTrainer();
  ASSERT_EQ(driver.Acquire(worker, 1).tickets_size(), 1);
  v1::WorkerIdentity older = worker;
  older.set_epoch(worker.epoch() - 1);
  ASSERT_TRUE(driver.core().FenceWorker(driver.lineage(), older, "receiver stalled", driver.now()).ok());
  EXPECT_EQ(driver.counts().running(), 1u);
  ASSERT_TRUE(driver.core().FenceWorker(driver.lineage(), worker, "receiver stalled", driver.now()).ok());
  driver.Check();
  EXPECT_EQ(driver.counts().issued(), 1u);
  EXPECT_THAT(std::string(driver.core().CheckIdentity(worker).message()), HasSubstr("receiver stalled"));
}

TEST(QueueCoreTest, TicketsOfALostAnswerAreGivenAgain) {
  QueueCoreOptions options = DriverOptions(3, 1, 0, 10);
  options.evaluation.every = 1;
  options.evaluation.episodes = 1;
  CoreDriver driver(options);
  QueueCore& core = driver.core();
  const v1::WorkerIdentity worker = driver.Register("a");
  driver.StartTrainer();
  v1::AcquireTicketsRequest request;
  *request.mutable_identity() = worker;
  request.set_max_members(2);
  const auto ask = [&](uint64_t sequence) {
    request.set_sequence(sequence);
    const absl::Status begun = core.BeginAcquire(request, driver.now());
    return begun.ok() ? core.AcquireTickets(worker, sequence, driver.now()) : begun;
  };
  const v1::AcquireTicketsResponse first = *ask(1);
  ASSERT_EQ(first.tickets_size(), 2);
  EXPECT_TRUE(first.tickets(0).evaluation());
  EXPECT_EQ(ask(1)->SerializeAsString(), first.SerializeAsString());
  driver.Check();
  EXPECT_EQ(driver.counts().running(), 1u);
  const v1::AcquireTicketsResponse second = *ask(2);
  EXPECT_THAT(Ids(second), ElementsAre(2, 3));
  EXPECT_TRUE(absl::IsFailedPrecondition(ask(1).status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(core.AcquireTickets(worker, 1, driver.now()).status()));
  // Between trainers too, but not once all tickets were taken back.
  v1::WeightsVersion committed;
  core.AllocateLineage(&committed);
  EXPECT_THAT(Ids(*ask(2)), ElementsAre(2, 3));
  core.Drain(driver.now());
  EXPECT_EQ(ask(2)->cause(), "draining");
}

TEST(QueueCoreTest, AnIdentityOfTheQueuesEarlierLifeIsUnknown) {
  QueueCoreOptions options = DriverOptions(1, 1, 0, 10);
  options.first_epoch = 1000;
  CoreDriver earlier(options);
  const v1::WorkerIdentity old = earlier.Register("a");
  EXPECT_EQ(earlier.Register("a").epoch(), 1001u);
  options.first_epoch = 2000;
  CoreDriver later(options);
  later.Register("b");
  EXPECT_TRUE(absl::IsAborted(later.core().CheckIdentity(old)));
}

TEST(QueueCoreTest, ChangesMoveWithWhatMayHelpWhoWaits) {
  // Room for one group and 50 bytes: a member's 10 bytes in the place of 100 make room for another.
  QueueCoreOptions options = DriverOptions(1, 1, 9, 10);
  options.max_bytes = 150;
  options.evaluation.every = 1;
  options.evaluation.episodes = 1;
  options.short_group = ShortGroupPolicy::kTrainShort;
  options.group_size = 2;
  options.max_bytes = 350;
  CoreDriver driver(options);
  QueueCore& core = driver.core();
  const v1::WorkerIdentity worker = driver.Register("a");
  driver.StartTrainer();
  const v1::AcquireTicketsResponse tickets = driver.Acquire(worker, 9);
  ASSERT_EQ(tickets.tickets_size(), 2);
  EXPECT_EQ(driver.Acquire(worker, 9).cause(), "queue_full");
  uint64_t changes = core.changes();
  driver.Push(worker, CoreDriver::Completed(tickets.tickets(1), 0, 1.0));
  EXPECT_GT(core.changes(), changes);
  EXPECT_THAT(Ids(driver.Acquire(worker, 9)), ElementsAre(2));

  changes = core.changes();
  driver.Push(worker, CoreDriver::Failed(tickets.tickets(0), 0, "version_gone"));
  EXPECT_GT(core.changes(), changes);
  changes = core.changes();
  v1::HeartbeatRequest beat;
  *beat.mutable_identity() = worker;
  *beat.mutable_holds() = core.committed();
  beat.mutable_holds()->set_version(7);
  ASSERT_TRUE(core.Heartbeat(beat, driver.now()).ok());
  EXPECT_GT(core.changes(), changes);
}

// ---- heartbeats and deadlines ---------------------------------------------------------------------------------------

TEST(QueueCoreTest, AWorkerWithoutASignOfLifeIsLostAndItsTicketsGoToOthers) {
  CoreDriver driver(DriverOptions(2, 2, 0, 10));
  const v1::WorkerIdentity a = driver.Register("a");
  const v1::WorkerIdentity b = driver.Register("b");
  driver.StartTrainer();
  const v1::Ticket lost = driver.Acquire(a, 2).tickets(0);
  ASSERT_EQ(driver.Push(a, CoreDriver::Completed(lost, 0, 1.0)).result(), v1::ACCEPTED);
  driver.Advance(absl::Seconds(6));
  v1::HeartbeatRequest beat;
  *beat.mutable_identity() = b;
  beat.add_tickets(lost.id());
  const v1::HeartbeatResponse response = *driver.core().Heartbeat(beat, driver.now());
  EXPECT_THAT(std::vector<uint64_t>(response.abandon().begin(), response.abandon().end()), ElementsAre(lost.id()));
  EXPECT_EQ(driver.core().NextEvent(), driver.now() + absl::Seconds(4));
  driver.Advance(absl::Seconds(4));
  const std::vector<std::string> events = driver.core().Tick(driver.now());
  driver.Check();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_THAT(events[0], HasSubstr("worker a lost"));
  EXPECT_EQ(driver.core().CheckIdentity(a).code(), absl::StatusCode::kAborted);
  const v1::Ticket again = driver.Acquire(b, 2).tickets(0);
  EXPECT_EQ(again.id(), lost.id());
  EXPECT_THAT(std::vector<uint32_t>(again.members().begin(), again.members().end()), ElementsAre(1));
}

TEST(QueueCoreTest, APauseOfTheQueueIsNotItsWorkersSilence) {
  QueueCoreOptions options = DriverOptions(1, 2, 0, 10);
  options.ticket_deadline = absl::Seconds(20);
  options.evaluation.every = 1;
  options.evaluation.episodes = 1;
  options.evaluation.deadline = absl::Seconds(20);
  CoreDriver driver(options);
  const v1::WorkerIdentity worker = driver.Register("a");
  driver.StartTrainer();
  ASSERT_EQ(driver.Acquire(worker, 3).tickets_size(), 2);
  driver.Advance(absl::Seconds(60));
  driver.core().ForgiveSilence(absl::Seconds(60), driver.now());
  EXPECT_THAT(driver.core().Tick(driver.now()), ElementsAre());
  driver.Check();
  EXPECT_EQ(driver.core().NextEvent(), driver.now() + absl::Seconds(10));
  driver.Advance(absl::Seconds(10));
  EXPECT_EQ(driver.core().Tick(driver.now()).size(), 1u);
}

TEST(QueueCoreTest, AnEvaluationThatNobodyCanReachIsDueAtOnce) {
  QueueCoreOptions options = DriverOptions(1, 1, 0, 10);
  options.evaluation.every = 2;
  options.evaluation.episodes = 2;
  CoreDriver driver(options);
  const v1::WorkerIdentity worker = driver.Register("a");
  driver.StartTrainer();
  const v1::AcquireTicketsResponse tickets = driver.Acquire(worker, 1);
  ASSERT_TRUE(tickets.tickets(0).evaluation());
  driver.Complete(worker, driver.Acquire(worker, 2).tickets(1));
  driver.Train(1);
  driver.core().Tick(driver.now());
  EXPECT_GT(driver.core().NextEvent(), driver.now());
  // Its only holder is lost.
  ASSERT_TRUE(driver.core().FenceWorker(driver.lineage(), worker, "stalled", driver.now()).ok());
  EXPECT_LE(driver.core().NextEvent(), driver.now());
  EXPECT_THAT(driver.core().Tick(driver.now()), ElementsAre(HasSubstr("no worker holds it any more")));
  EXPECT_EQ(driver.core().NextEvent(), MonotonicTime::InfiniteFuture());
}

TEST(QueueCoreTest, ADeadlineFailsTheMissingMembersAndReplacesTheTicket) {
  QueueCoreOptions options = DriverOptions(1, 3, 0, 10);
  options.ticket_deadline = absl::Seconds(5);
  CoreDriver driver(options);
  const v1::WorkerIdentity worker = driver.Register("a");
  driver.StartTrainer();
  const v1::Ticket slow = driver.Acquire(worker, 3).tickets(0);
  ASSERT_EQ(driver.Push(worker, CoreDriver::Completed(slow, 0, 1.0)).result(), v1::ACCEPTED);
  driver.Advance(absl::Seconds(5));
  const std::vector<std::string> events = driver.core().Tick(driver.now());
  driver.Check();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_THAT(events[0], HasSubstr("ticket 1 issue 1 passed its deadline on a with 2 of 3 members missing"));
  EXPECT_EQ(driver.counts().failed(), 1u);
  v1::StatusResponse status;
  driver.core().FillStatus(driver.now(), &status);
  EXPECT_EQ(status.episode_failures().at("deadline"), 2u);
  EXPECT_EQ(driver.Push(worker, CoreDriver::Completed(slow, 1, 1.0)).result(), v1::GROUP_CLOSED);
  EXPECT_THAT(Ids(driver.Acquire(worker, 3)), ElementsAre(2));
}

TEST(QueueCoreTest, APoisonTicketFailsOnceItsWorkersDiedWhileOthersFinished) {
  QueueCoreOptions options = DriverOptions(2, 1, 0, 10);
  options.poison_losses = 3;
  CoreDriver driver(options);
  v1::WorkerIdentity a = driver.Register("a");
  driver.StartTrainer();
  ASSERT_THAT(Ids(driver.Acquire(a, 2)), ElementsAre(1, 2));
  for (int death = 1; death <= 4; ++death) {
    a = driver.Register("a");
    // Nothing else has finished: the machine may be at fault.
    EXPECT_EQ(driver.counts().failed(), 0u);
    ASSERT_EQ(driver.Acquire(a, 2).tickets_size(), 2);
  }
  v1::Ticket second;
  second.set_id(2);
  second.set_issue(5);
  second.mutable_weights()->set_lineage(1);
  second.mutable_weights()->set_version(1);
  ASSERT_EQ(driver.Push(a, CoreDriver::Completed(second, 0, 0.5)).result(), v1::ACCEPTED);
  driver.Register("a");
  EXPECT_EQ(driver.counts().failed(), 1u);
  v1::StatusResponse status;
  driver.core().FillStatus(driver.now(), &status);
  EXPECT_EQ(status.episode_failures().at("suspected_poison"), 1u);
}

// ---- failures and short groups --------------------------------------------------------------------------------------

TEST(QueueCoreTest, RefillFailsTheTicketWithItsFirstFailedMember) {
  CoreDriver driver(DriverOptions(2, 3, 0, 10));
  const v1::WorkerIdentity worker = driver.Register("a");
  driver.StartTrainer();
  const v1::AcquireTicketsResponse tickets = driver.Acquire(worker, 6);
  ASSERT_EQ(driver.Push(worker, CoreDriver::Completed(tickets.tickets(0), 0, 1.0)).result(), v1::ACCEPTED);
  EXPECT_EQ(driver.Push(worker, CoreDriver::Failed(tickets.tickets(0), 1, "step_timeout")).result(), v1::ACCEPTED);
  EXPECT_EQ(driver.Push(worker, CoreDriver::Completed(tickets.tickets(0), 2, 1.0)).result(), v1::GROUP_CLOSED);
  EXPECT_EQ(driver.counts().failed(), 1u);
  driver.Complete(worker, tickets.tickets(1));
  const v1::AcquireTicketsResponse refill = driver.Acquire(worker, 6);
  ASSERT_THAT(Ids(refill), ElementsAre(3));
  driver.Complete(worker, refill.tickets(0));
  EXPECT_THAT(driver.Train(1), ElementsAre(2, 3));
}

TEST(QueueCoreTest, ShortGroupsAreTrainedDownToTheirMinimum) {
  QueueCoreOptions options = DriverOptions(1, 4, 0, 10);
  options.short_group = ShortGroupPolicy::kTrainShort;
  options.min_group_size = 2;
  CoreDriver driver(options);
  const v1::WorkerIdentity worker = driver.Register("a");
  driver.StartTrainer();
  const v1::Ticket first = driver.Acquire(worker, 4).tickets(0);
  ASSERT_EQ(driver.Push(worker, CoreDriver::Failed(first, 0, "reset_failed")).result(), v1::ACCEPTED);
  EXPECT_EQ(driver.Push(worker, CoreDriver::Completed(first, 0, 1.0)).reason(), "member_failed");
  ASSERT_EQ(driver.Push(worker, CoreDriver::Completed(first, 3, 1.0)).result(), v1::ACCEPTED);
  ASSERT_EQ(driver.Push(worker, CoreDriver::Completed(first, 1, 0.0)).result(), v1::ACCEPTED);
  EXPECT_EQ(driver.counts().ready(), 0u);
  PushedTrajectory unscored = CoreDriver::Completed(first, 2, 0.0);
  unscored.summary.reward.reset();  // no failure: what it is worth is the trainer's business
  EXPECT_EQ(driver.Push(worker, unscored).result(), v1::ACCEPTED);
  const LeaseResult lease = driver.Lease(1);
  ASSERT_EQ(lease.groups.size(), 1u);
  ASSERT_EQ(lease.groups[0].members.size(), 3u);
  EXPECT_EQ(**lease.groups[0].members[0]->Load(), "ticket 1 member 1");
  EXPECT_EQ(**lease.groups[0].members[1]->Load(), "ticket 1 member 2");
  EXPECT_EQ(**lease.groups[0].members[2]->Load(), "ticket 1 member 3");
  ASSERT_TRUE(driver.Commit(2, {1}).ok());

  const v1::Ticket second = driver.Acquire(worker, 4).tickets(0);
  for (uint32_t member = 0; member < 3; ++member)
    driver.Push(worker, CoreDriver::Failed(second, member, "reset_failed"));
  EXPECT_EQ(driver.counts().failed(), 1u);
}

TEST(QueueCoreTest, ARejectedTrajectoryHasFailedForGoodAndStaysWithTheCaller) {
  CoreDriver driver(DriverOptions(3, 1, 0, 10));
  const v1::WorkerIdentity worker = driver.Register("a");
  driver.StartTrainer();
  const v1::AcquireTicketsResponse tickets = driver.Acquire(worker, 3);
  PushedTrajectory bad = CoreDriver::Completed(tickets.tickets(0), 0, 1.0);
  bad.reject_reason = "non_finite_logprob: span 2";
  EXPECT_EQ(driver.Push(worker, bad).reason(), "non_finite_logprob: span 2");
  PushedTrajectory large = CoreDriver::Completed(tickets.tickets(1), 0, 1.0);
  large.payload.assign(101, 'x');
  EXPECT_THAT(driver.Push(worker, large).reason(), HasSubstr("too_large: 101"));
  EXPECT_THAT(driver.Push(worker, CoreDriver::Completed(tickets.tickets(2), 0, 1.0, /*version=*/2)).reason(),
              HasSubstr("unknown_version"));
  PushedTrajectory nobody;
  nobody.reject_reason = "unparseable";
  EXPECT_EQ(driver.Push(worker, nobody).result(), v1::REJECTED);
  PushedTrajectory stranger = CoreDriver::Completed(tickets.tickets(0), 0, 1.0);
  stranger.summary.key.set_ticket(77);
  EXPECT_THAT(driver.Push(worker, stranger).reason(), HasSubstr("unknown_ticket"));
  EXPECT_EQ(driver.counts().failed(), 3u);
  v1::StatusResponse status;
  driver.core().FillStatus(driver.now(), &status);
  EXPECT_EQ(status.answers().at("REJECTED"), 5u);
  EXPECT_EQ(status.answers().at("non_finite_logprob"), 1u);
  EXPECT_EQ(status.episode_failures().at("rejected"), 3u);
}

TEST(QueueCoreTest, FailureCodesWithoutEndAreCountedTogether) {
  CoreDriver driver(DriverOptions(1, 1, 0, 10));
  const v1::WorkerIdentity worker = driver.Register("a");
  driver.StartTrainer();
  for (int i = 0; i < 1000; ++i) {
    const v1::Ticket ticket = driver.Acquire(worker, 1).tickets(0);
    driver.Push(worker, CoreDriver::Failed(ticket, 0, "code_" + std::to_string(i)));
  }
  v1::StatusResponse status;
  driver.core().FillStatus(driver.now(), &status);
  EXPECT_EQ(status.episode_failures().at("code_7"), 1u);
  EXPECT_LE(status.episode_failures_size(), 65);
  EXPECT_EQ(status.episode_failures().at("other"), 1000u - 64);
}

TEST(QueueCoreTest, TokensOlderThanTheTicketAreRefused) {
  CoreDriver driver(DriverOptions(1, 1, 2, 10));
  const v1::WorkerIdentity worker = driver.Register("a");
  driver.StartTrainer();
  ASSERT_EQ(driver.RunAll(worker), 3);
  driver.Train(1);
  const v1::Ticket ticket = driver.Acquire(worker, 1).tickets(0);
  ASSERT_EQ(ticket.weights().version(), 2u);
  EXPECT_THAT(driver.Push(worker, CoreDriver::Completed(ticket, 0, 1.0, /*version=*/1)).reason(),
              HasSubstr("version_before_ticket"));
}

}  // namespace
}  // namespace leeway
