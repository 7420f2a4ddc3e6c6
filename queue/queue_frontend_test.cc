#include "queue/queue_frontend.h"

#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/fake_clock.h"
#include "base/fake_file_system.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "queue/core/queue_core_test_driver.h"
#include "queue/fake_trajectory.h"
#include "queue/store/memory_store.h"
#include "queue/synchronous_frontend.h"
#include "rpc/fake_chunks.h"

namespace leeway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint32_t kGroupSize = 2;

// A store whose disk is full when the test says so.
class FillableStore : public MemoryStore {
 public:
  explicit FillableStore(const bool* full) : full_(full) {}
  absl::Status Put(const PayloadKey& key, Payload payload) override {
    return *full_ ? absl::ResourceExhaustedError("disk") : MemoryStore::Put(key, std::move(payload));
  }

 private:
  const bool* const full_;
};

class QueueFrontendTest : public ::testing::Test {
 protected:
  QueueFrontendTest() {
    char folder[] = "/tmp/leeway-frontend-XXXXXX";
    folder_ = mkdtemp(folder);
    Make(DriverOptions(/*groups_per_step=*/2, kGroupSize, /*budget=*/0, /*steps=*/3));
  }
  ~QueueFrontendTest() override { RealFileSystem()->RemoveAll(folder_).IgnoreError(); }

  void Make(QueueCoreOptions core_options) {
    core_options.max_trajectory_bytes = 4000;
    core_options.max_bytes = 100'000'000;
    QueueFrontendOptions options;
    options.limits = {kFakeVocabulary, kGroupSize};
    options.max_trajectory_bytes = 4000;
    options.max_chunk_bytes = 1000;
    options.run_fingerprint = "abc";
    options.lineage_path = folder_ + "/lineage";
    absl::StatusOr<std::unique_ptr<QueueCore>> core =
        QueueCore::Create(std::move(core_options), std::make_unique<FillableStore>(&disk_full_));
    ASSERT_TRUE(core.ok()) << core.status();
    frontend_ = std::make_unique<SynchronousFrontend>(options, *std::move(core), &quarantine_, file_system_, &clock_,
                                                      [this] { ++due_earlier_; });
  }

  v1::WorkerIdentity Register(const std::string& name) {
    v1::RegisterRequest request;
    request.set_name(name);
    request.set_run_fingerprint("abc");
    return frontend_->Register(request)->identity();
  }
  // Allocates, restores the beginning and publishes version 1.
  void StartTrainer() {
    lineage_ = frontend_->AllocateLineage({})->lineage();
    v1::RestoreRequest restore;
    restore.set_lineage(lineage_);
    ASSERT_TRUE(frontend_->Restore(restore).ok());
    ASSERT_TRUE(Commit(1, {}, true).ok());
  }
  absl::Status Commit(uint64_t version, const std::vector<uint64_t>& tickets, bool initial = false) {
    v1::CommitRequest request;
    request.set_lineage(lineage_);
    request.set_version(version);
    request.set_digest("d");
    request.set_initial(initial);
    for (uint64_t ticket : tickets) request.add_tickets(ticket);
    return frontend_->Commit(request).status();
  }

  // A long poll whose answer appears when there is one.
  struct Poll {
    QueueFrontend::WaitId id = 0;
    std::optional<absl::StatusOr<v1::AcquireTicketsResponse>> tickets;
    std::optional<absl::StatusOr<LeaseResult>> lease;
  };
  std::unique_ptr<Poll> Acquire(const v1::WorkerIdentity& identity, uint64_t wait_ms, uint32_t members = 4) {
    auto poll = std::make_unique<Poll>();
    v1::AcquireTicketsRequest request;
    *request.mutable_identity() = identity;
    request.set_sequence(++acquires_);
    request.set_max_members(members);
    request.set_wait_ms(wait_ms);
    poll->id = frontend_->AcquireTickets(
        request, [raw = poll.get()](auto answer) { EXPECT_FALSE(std::exchange(raw->tickets, answer).has_value()); });
    return poll;
  }
  std::unique_ptr<Poll> Lease(uint64_t step, uint64_t wait_ms) {
    auto poll = std::make_unique<Poll>();
    v1::LeaseBatchRequest request;
    request.set_lineage(lineage_);
    request.set_step(step);
    request.set_wait_ms(wait_ms);
    poll->id = frontend_->LeaseBatch(
        request, [raw = poll.get()](auto answer) { EXPECT_FALSE(std::exchange(raw->lease, answer).has_value()); });
    return poll;
  }

  static void AddChunk(uint64_t sequence, const std::string& payload, v1::PushRequest* request) {
    v1::PushChunk* chunk = request->add_chunks();
    chunk->set_sequence(sequence);
    chunk->set_total_bytes(payload.size());
    chunk->set_data(payload);
    chunk->set_last(true);
  }
  // Pushes one trajectory in one chunk; "ACCEPTED", "REJECTED temperature: ...", or the status.
  std::string Push(QueueFrontend::PushSession* session, const v1::WorkerIdentity& identity, uint64_t sequence,
                   const v1::Trajectory& trajectory) {
    v1::PushRequest request;
    *request.mutable_identity() = identity;
    AddChunk(sequence, trajectory.SerializeAsString(), &request);
    return Handle(session, &request);
  }
  static std::string Handle(QueueFrontend::PushSession* session, v1::PushRequest* request) {
    v1::PushResponse response;
    absl::Status status = absl::InternalError("not answered");
    session->Handle(request, [&](v1::PushResponse answers, const absl::Status& end) {
      response = std::move(answers);
      status = end;
    });
    std::string text;
    for (const v1::PushAnswer& answer : response.answers()) {
      if (!text.empty()) text += ", ";
      absl::StrAppend(&text, answer.sequence(), " ", v1::PushResult_Name(answer.result()),
                      answer.reason().empty() ? "" : " ", answer.reason());
    }
    if (!status.ok()) absl::StrAppend(&text, text.empty() ? "" : ", ", status.ToString());
    return text;
  }

  std::string folder_;
  FakeClock clock_;
  FaultyFileSystem faulty_{[this](absl::string_view, const std::string&) { return disk_error_; }};
  absl::Status disk_error_;
  bool disk_full_ = false;
  FileSystem* file_system_ = &faulty_;
  Quarantine quarantine_{RealFileSystem(), "", 0};
  std::unique_ptr<SynchronousFrontend> frontend_;
  uint64_t lineage_ = 0;
  int due_earlier_ = 0;
  // The number of the last request for tickets, of any worker.
  uint64_t acquires_ = 0;
};

// ---- long polls ----

TEST_F(QueueFrontendTest, AnAnswerThatIsThereIsGivenAtOnce) {
  StartTrainer();
  const v1::WorkerIdentity worker = Register("rollout-0");
  const auto poll = Acquire(worker, 1000);
  ASSERT_TRUE(poll->tickets.has_value());
  EXPECT_EQ((*poll->tickets)->tickets_size(), 2);
  EXPECT_FALSE(frontend_->Cancel(poll->id));
}

TEST_F(QueueFrontendTest, AWaitEndsWithItsCauseAtItsDeadline) {
  const v1::WorkerIdentity worker = Register("rollout-0");
  const int before = due_earlier_;
  const auto poll = Acquire(worker, 1000);
  EXPECT_FALSE(poll->tickets.has_value());
  EXPECT_GT(due_earlier_, before);
  EXPECT_LE(frontend_->NextDue() - clock_.Now(), absl::Seconds(1));
  clock_.Advance(absl::Milliseconds(999));
  frontend_->RunDue();
  EXPECT_FALSE(poll->tickets.has_value());
  clock_.Advance(absl::Milliseconds(1));
  frontend_->RunDue();
  ASSERT_TRUE(poll->tickets.has_value());
  EXPECT_EQ((*poll->tickets)->cause(), "waiting_for_trainer");
}

TEST_F(QueueFrontendTest, TheDriverHearsOfEveryDeadlineBeforeTheOneItSleepsFor) {
  const v1::WorkerIdentity worker = Register("rollout-0");
  const auto gone = Acquire(worker, 100);
  EXPECT_EQ(frontend_->NextDue() - clock_.Now(), absl::Milliseconds(100));
  ASSERT_TRUE(frontend_->Cancel(gone->id));
  clock_.Advance(absl::Milliseconds(100));
  // The driver wakes, finds nothing, and sleeps until the worker's lease ends.
  ASSERT_GT(frontend_->NextDue() - clock_.Now(), absl::Seconds(5));
  const int before = due_earlier_;
  Acquire(worker, 200);
  EXPECT_EQ(due_earlier_, before + 1);
  EXPECT_EQ(frontend_->NextDue() - clock_.Now(), absl::Milliseconds(200));
}

TEST_F(QueueFrontendTest, ShutdownHooksRunOnce) {
  int ended = 0, removed = 0, late = 0;
  frontend_->AddShutdownHook([&] { ++ended; });
  frontend_->RemoveShutdownHook(frontend_->AddShutdownHook([&] { ++removed; }));
  frontend_->Shutdown();
  frontend_->Shutdown();
  frontend_->AddShutdownHook([&] { ++late; });
  EXPECT_EQ(ended, 1);
  EXPECT_EQ(removed, 0);
  EXPECT_EQ(late, 1);
}

TEST_F(QueueFrontendTest, APollWithoutAWaitIsAnsweredAtOnce) {
  const auto poll = Acquire(Register("rollout-0"), 0);
  ASSERT_TRUE(poll->tickets.has_value());
  EXPECT_EQ((*poll->tickets)->tickets_size(), 0);
  EXPECT_EQ((*poll->tickets)->cause(), "waiting_for_trainer");
}

TEST_F(QueueFrontendTest, ACommitWakesThoseWhoWaitForItsVersion) {
  StartTrainer();
  const v1::WorkerIdentity worker = Register("rollout-0");
  const auto first = Acquire(worker, 1000, 4);
  ASSERT_EQ((*first->tickets)->tickets_size(), 2);
  const auto second = Acquire(worker, 1000, 4);
  EXPECT_FALSE(second->tickets.has_value());  // budget 0: nothing before version 2
  const auto lease = Lease(1, 60'000);
  EXPECT_FALSE(lease->lease.has_value());

  const std::unique_ptr<QueueFrontend::PushSession> session = frontend_->NewPushSession();
  uint64_t sequence = 0;
  for (const v1::Ticket& ticket : (*first->tickets)->tickets()) {
    for (uint32_t member = 0; member < kGroupSize; ++member) {
      EXPECT_FALSE(lease->lease.has_value());
      ++sequence;
      EXPECT_EQ(Push(session.get(), worker, sequence, FakeTrajectory(ticket, member)),
                absl::StrCat(sequence, " ACCEPTED"));
    }
  }
  // The last push completed the batch.
  ASSERT_TRUE(lease->lease.has_value());
  ASSERT_EQ((*lease->lease)->groups.size(), 2u);
  EXPECT_EQ((*lease->lease)->groups[0].members.size(), 2u);
  EXPECT_FALSE(second->tickets.has_value());
  ASSERT_TRUE(Commit(2, {1, 2}).ok());
  ASSERT_TRUE(second->tickets.has_value());
  EXPECT_EQ((*second->tickets)->tickets_size(), 2);
  EXPECT_EQ((*second->tickets)->tickets(0).weights().version(), 2u);
}

TEST_F(QueueFrontendTest, ThoseWhoCameFirstAreServedFirst) {
  const v1::WorkerIdentity first = Register("rollout-0"), second = Register("rollout-1");
  const auto one = Acquire(first, 1000, 2), two = Acquire(second, 1000, 2),
             three = Acquire(Register("rollout-2"), 1000, 2);
  StartTrainer();
  ASSERT_TRUE(one->tickets.has_value());
  ASSERT_TRUE(two->tickets.has_value());
  EXPECT_EQ((*one->tickets)->tickets(0).id(), 1u);
  EXPECT_EQ((*two->tickets)->tickets(0).id(), 2u);
  EXPECT_FALSE(three->tickets.has_value());
}

TEST_F(QueueFrontendTest, ACancelledWaitGivesNothingOut) {
  const v1::WorkerIdentity worker = Register("rollout-0");
  const auto gone = Acquire(worker, 1000);
  EXPECT_TRUE(frontend_->Cancel(gone->id));
  EXPECT_FALSE(frontend_->Cancel(gone->id));
  StartTrainer();
  EXPECT_FALSE(gone->tickets.has_value());
  EXPECT_EQ(frontend_->Status().counts().running(), 0u);
}

TEST_F(QueueFrontendTest, AFencedWorkersWaitIsAborted) {
  const v1::WorkerIdentity old = Register("rollout-0");
  const auto poll = Acquire(old, 60'000);
  Register("rollout-0");
  frontend_->RunDue();
  ASSERT_TRUE(poll->tickets.has_value());
  EXPECT_TRUE(absl::IsAborted(poll->tickets->status())) << poll->tickets->status();
}

TEST_F(QueueFrontendTest, DrainAndCompletionEndWaitsAtOnce) {
  StartTrainer();
  const v1::WorkerIdentity worker = Register("rollout-0");
  const auto acquired = Acquire(worker, 60'000);
  const auto tickets = Acquire(worker, 60'000);
  const auto lease = Lease(1, 60'000);
  EXPECT_FALSE(tickets->tickets.has_value());
  EXPECT_EQ(frontend_->Drain().counts().issued(), 2u);
  ASSERT_TRUE(tickets->tickets.has_value());
  EXPECT_EQ((*tickets->tickets)->cause(), "draining");
  ASSERT_TRUE(lease->lease.has_value());
  EXPECT_EQ((*lease->lease)->cause, "draining");
}

TEST_F(QueueFrontendTest, ShutdownAnswersEveryWaitAndLaterOnes) {
  const v1::WorkerIdentity worker = Register("rollout-0");
  const auto poll = Acquire(worker, 60'000);
  frontend_->Shutdown();
  ASSERT_TRUE(poll->tickets.has_value());
  EXPECT_TRUE(absl::IsUnavailable(poll->tickets->status()));
  const auto late = Lease(1, 60'000);
  ASSERT_TRUE(late->lease.has_value());
  EXPECT_TRUE(absl::IsUnavailable(late->lease->status()));
}

TEST_F(QueueFrontendTest, NoWaitIsLongerThanTheQueuesLimit) {
  const auto poll = Acquire(Register("rollout-0"), UINT64_MAX);
  clock_.Advance(absl::Seconds(60));
  frontend_->RunDue();
  EXPECT_TRUE(poll->tickets.has_value());
}

TEST_F(QueueFrontendTest, ALostWorkersTicketsGoToAnotherWaiter) {
  StartTrainer();
  const v1::WorkerIdentity lost = Register("rollout-0");
  ASSERT_EQ((*Acquire(lost, 0)->tickets)->tickets_size(), 2);
  const v1::WorkerIdentity other = Register("rollout-1");
  const auto poll = Acquire(other, 60'000);
  EXPECT_FALSE(poll->tickets.has_value());
  // The default lease is ten seconds; the other one keeps alive.
  for (int i = 0; i < 11; ++i) {
    clock_.Advance(absl::Seconds(1));
    v1::HeartbeatRequest alive;
    *alive.mutable_identity() = other;
    ASSERT_TRUE(frontend_->Heartbeat(alive).ok());
    if (frontend_->NextDue() <= clock_.Now()) frontend_->RunDue();
  }
  ASSERT_TRUE(poll->tickets.has_value());
  ASSERT_EQ((*poll->tickets)->tickets_size(), 2);
  EXPECT_EQ((*poll->tickets)->tickets(0).issue(), 2u);
}

TEST_F(QueueFrontendTest, AskingAgainForALongPollIsNoSignOfLifeAndKnowsNothingNew) {
  StartTrainer();
  ASSERT_EQ((*Acquire(Register("rollout-0"), 0)->tickets)->tickets_size(), 2);
  const v1::WorkerIdentity silent = Register("rollout-1");
  const auto poll = Acquire(silent, 60'000);
  v1::HeartbeatRequest beat;
  *beat.mutable_identity() = silent;
  beat.mutable_holds()->set_lineage(lineage_);
  beat.mutable_holds()->set_version(1);
  ASSERT_TRUE(frontend_->Heartbeat(beat).ok());
  for (int i = 0; i < 11; ++i) {
    clock_.Advance(absl::Seconds(1));
    Register(absl::StrCat("another-", i));  // every wait is attempted again
    if (i == 5) {
      EXPECT_EQ(frontend_->Status().workers(1).holds().version(), 1u);
    }
    if (frontend_->NextDue() <= clock_.Now()) frontend_->RunDue();
  }
  ASSERT_TRUE(poll->tickets.has_value());
  EXPECT_TRUE(absl::IsAborted(poll->tickets->status())) << poll->tickets->status();
}

TEST_F(QueueFrontendTest, AnOlderRequestOfAWorkerGetsNothingOnceThereIsANewerOne) {
  const v1::WorkerIdentity worker = Register("rollout-0");
  const auto older = Acquire(worker, 60'000), newer = Acquire(worker, 60'000);
  StartTrainer();
  ASSERT_TRUE(older->tickets.has_value() && newer->tickets.has_value());
  EXPECT_TRUE(absl::IsFailedPrecondition(older->tickets->status())) << older->tickets->status();
  EXPECT_EQ((*newer->tickets)->tickets_size(), 2);
}

TEST_F(QueueFrontendTest, StatusNamesTheOpenWaits) {
  StartTrainer();
  const v1::WorkerIdentity worker = Register("rollout-0");
  ASSERT_EQ((*Acquire(worker, 0)->tickets)->tickets_size(), 2);
  const auto lease = Lease(1, 60'000);
  clock_.Advance(absl::Seconds(5));
  const v1::StatusResponse status = frontend_->Status();
  EXPECT_TRUE(status.conservation_holds());
  bool trainer_waits = false;
  for (const v1::OpenWait& wait : status.waits()) {
    if (wait.who() != "trainer") continue;
    trainer_waits = true;
    EXPECT_EQ(wait.cause(), "waiting_for_groups");
    EXPECT_NEAR(wait.seconds(), 5.0, 0.01);
    EXPECT_THAT(wait.detail(), HasSubstr("rollout-0"));
  }
  EXPECT_TRUE(trainer_waits) << status.DebugString();
}

// ---- pushes ----

class PushSessionTest : public QueueFrontendTest {
 protected:
  PushSessionTest() {
    StartTrainer();
    worker_ = Register("rollout-0");
    const auto poll = Acquire(worker_, 0);
    for (const v1::Ticket& ticket : (*poll->tickets)->tickets()) tickets_.push_back(ticket);
    session_ = frontend_->NewPushSession();
  }
  std::string Push(uint64_t sequence, const v1::Trajectory& trajectory) {
    return QueueFrontendTest::Push(session_.get(), worker_, sequence, trajectory);
  }

  v1::WorkerIdentity worker_;
  std::vector<v1::Ticket> tickets_;
  std::unique_ptr<QueueFrontend::PushSession> session_;
};

TEST_F(PushSessionTest, ManyInOneMessageAreAnsweredInOneInOrder) {
  v1::PushRequest request;
  *request.mutable_identity() = worker_;
  uint64_t sequence = 0;
  for (const v1::Ticket& ticket : tickets_) {
    for (uint32_t member : {0, 1}) AddChunk(++sequence, FakeTrajectory(ticket, member).SerializeAsString(), &request);
  }
  AddChunk(5, FakeTrajectory(tickets_[0], 1).SerializeAsString(), &request);
  EXPECT_EQ(Handle(session_.get(), &request),
            "1 ACCEPTED, 2 ACCEPTED, 3 ACCEPTED, 4 ACCEPTED, 5 DUPLICATE delivered before");
}

TEST_F(PushSessionTest, APushInPiecesIsConsumedWhenItIsWhole) {
  const std::string payload = FakeTrajectory(tickets_[0], 0, 300).SerializeAsString();
  ASSERT_GT(payload.size(), 1000u);
  std::string answers;
  uint64_t offset = 0;
  while (offset < payload.size()) {
    EXPECT_EQ(answers, "");
    v1::PushRequest request;
    *request.mutable_identity() = worker_;
    v1::PushChunk* chunk = request.add_chunks();
    chunk->set_sequence(1);
    CutChunk(payload, 1000, &offset, chunk);
    answers = Handle(session_.get(), &request);
  }
  EXPECT_EQ(answers, "1 ACCEPTED");
}

TEST_F(PushSessionTest, TheSameSequenceGetsTheSameAnswerAlsoOnANewStream) {
  EXPECT_EQ(Push(1, FakeTrajectory(tickets_[0], 0)), "1 ACCEPTED");
  EXPECT_EQ(Push(1, FakeTrajectory(tickets_[0], 0)), "1 ACCEPTED");
  session_ = frontend_->NewPushSession();
  EXPECT_EQ(Push(1, FakeTrajectory(tickets_[0], 0)), "1 ACCEPTED");
  EXPECT_EQ(Push(2, FakeTrajectory(tickets_[0], 0)), "2 DUPLICATE delivered before");
}

TEST_F(PushSessionTest, AGapEndsTheStreamAfterWhatCameBefore) {
  v1::PushRequest request;
  *request.mutable_identity() = worker_;
  AddChunk(1, FakeTrajectory(tickets_[0], 0).SerializeAsString(), &request);
  AddChunk(3, FakeTrajectory(tickets_[0], 1).SerializeAsString(), &request);
  const std::string answers = Handle(session_.get(), &request);
  EXPECT_THAT(answers, HasSubstr("1 ACCEPTED, FAILED_PRECONDITION"));
  EXPECT_THAT(answers, HasSubstr("2 is expected"));
}

TEST_F(PushSessionTest, NamesAndReasonsOfPeersAreNotTakenAsTheyCome) {
  for (const std::string& name : {std::string("a b"), std::string("\n"), std::string(65, 'a'), std::string()}) {
    v1::RegisterRequest request;
    request.set_name(name);
    request.set_run_fingerprint("abc");
    EXPECT_TRUE(absl::IsInvalidArgument(frontend_->Register(request).status())) << name;
  }
  v1::RetireGroupRequest retire;
  retire.set_lineage(lineage_);
  retire.set_reason("no code");
  EXPECT_TRUE(absl::IsInvalidArgument(frontend_->RetireGroup(retire).status()));
  v1::FenceWorkerRequest fence;
  fence.set_lineage(lineage_);
  *fence.mutable_identity() = worker_;
  fence.set_reason(std::string(100'000, 'x'));
  ASSERT_TRUE(frontend_->FenceWorker(fence).ok());
  EXPECT_LT(Push(1, FakeTrajectory(tickets_[0], 0)).size(), 1000u);
}

TEST_F(PushSessionTest, AFencedEpochIsAborted) {
  EXPECT_EQ(Push(1, FakeTrajectory(tickets_[0], 0)), "1 ACCEPTED");
  Register("rollout-0");
  EXPECT_THAT(Push(2, FakeTrajectory(tickets_[0], 1)), HasSubstr("ABORTED"));
  session_ = frontend_->NewPushSession();
  EXPECT_THAT(Push(2, FakeTrajectory(tickets_[0], 1)), HasSubstr("ABORTED"));
  worker_.set_producer_id(99);
  session_ = frontend_->NewPushSession();
  EXPECT_THAT(Push(1, FakeTrajectory(tickets_[0], 1)), HasSubstr("ABORTED"));
}

TEST_F(PushSessionTest, AnIdentityCannotChangeOnAStream) {
  EXPECT_EQ(Push(1, FakeTrajectory(tickets_[0], 0)), "1 ACCEPTED");
  worker_.set_epoch(7);
  EXPECT_THAT(Push(2, FakeTrajectory(tickets_[0], 1)), HasSubstr("INVALID_ARGUMENT: identity changed on the way"));
}

TEST_F(PushSessionTest, ARefusedTrajectoryGoesToTheQuarantineOnce) {
  v1::Trajectory poison = FakeTrajectory(tickets_[0], 0);
  poison.mutable_spans(1)->set_temperature(0);
  const std::string answer = "1 REJECTED temperature: spans[1].temperature: 0 is not greater than 0";
  EXPECT_EQ(Push(1, poison), answer);
  EXPECT_EQ(Push(1, poison), answer);
  EXPECT_EQ(quarantine_.kept(), 1u);
  // Versions are the core's to judge; the verdict is the same kind.
  v1::Trajectory future = FakeTrajectory(tickets_[1], 0);
  future.mutable_spans(1)->mutable_versions(0)->mutable_weights()->set_version(9);
  EXPECT_THAT(Push(2, future), HasSubstr("2 REJECTED unknown_version"));
  EXPECT_EQ(quarantine_.kept(), 2u);
}

TEST_F(PushSessionTest, BytesThatAreNoTrajectoryAreRefused) {
  v1::PushRequest request;
  *request.mutable_identity() = worker_;
  AddChunk(1, "\xff\xff\xff", &request);
  EXPECT_EQ(Handle(session_.get(), &request), "1 REJECTED malformed: the bytes are no Trajectory");
  EXPECT_EQ(quarantine_.kept(), 1u);
}

TEST_F(PushSessionTest, BrokenChunksEndTheStream) {
  v1::PushRequest request;
  *request.mutable_identity() = worker_;
  AddChunk(1, FakeTrajectory(tickets_[0], 0).SerializeAsString(), &request);
  AddChunk(2, std::string(1001, 'x'), &request);
  EXPECT_EQ(Handle(session_.get(), &request),
            "1 ACCEPTED, INVALID_ARGUMENT: payload 2: a chunk has 1001 bytes, the limit is 1000");
}

TEST_F(PushSessionTest, AfterFullWhatIsBehindIsNotConsumed) {
  disk_full_ = true;
  v1::PushRequest request;
  *request.mutable_identity() = worker_;
  for (uint64_t sequence : {1, 2}) {
    AddChunk(sequence, FakeTrajectory(tickets_[0], sequence - 1).SerializeAsString(), &request);
  }
  const std::string full = Handle(session_.get(), &request);
  EXPECT_THAT(full, HasSubstr("1 FULL"));
  EXPECT_THAT(full, HasSubstr("2 FULL sequence 1 comes first"));
  disk_full_ = false;
  EXPECT_EQ(Push(1, FakeTrajectory(tickets_[0], 0)), "1 ACCEPTED");
  EXPECT_EQ(Push(2, FakeTrajectory(tickets_[0], 1)), "2 ACCEPTED");
}

// ---- the other calls ----

TEST_F(QueueFrontendTest, AnotherConfigurationIsRefusedWithBothFingerprints) {
  v1::RegisterRequest request;
  request.set_name("rollout-0");
  request.set_run_fingerprint("xyz");
  const absl::Status refused = frontend_->Register(request).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(refused));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("\"xyz\", the queue's is \"abc\""));
  request.clear_name();
  EXPECT_TRUE(absl::IsInvalidArgument(frontend_->Register(request).status()));
}

TEST_F(QueueFrontendTest, RegisterTellsTheLimits) {
  v1::RegisterRequest request;
  request.set_name("rollout-0");
  request.set_run_fingerprint("abc");
  const v1::RegisterResponse response = frontend_->Register(request).value();
  EXPECT_EQ(response.max_chunk_bytes(), 1000u);
  EXPECT_EQ(response.max_trajectory_bytes(), 4000u);
  EXPECT_EQ(response.lease_ms(), 10'000u);
  EXPECT_EQ(response.heartbeat_interval_ms(), 1000u);
}

TEST_F(QueueFrontendTest, ALineageIsDurableBeforeItIsTold) {
  EXPECT_EQ(ReadLastLineage(RealFileSystem(), folder_ + "/lineage").value(), 0u);
  EXPECT_EQ(frontend_->AllocateLineage({})->lineage(), 1u);
  EXPECT_EQ(ReadLastLineage(RealFileSystem(), folder_ + "/lineage").value(), 1u);
  disk_error_ = absl::ResourceExhaustedError("disk");
  EXPECT_TRUE(absl::IsResourceExhausted(frontend_->AllocateLineage({}).status()));
  disk_error_ = absl::OkStatus();
  EXPECT_EQ(frontend_->AllocateLineage({})->lineage(), 3u);
  EXPECT_EQ(ReadLastLineage(RealFileSystem(), folder_ + "/lineage").value(), 3u);
  RealFileSystem()->WriteFileAtomically(folder_ + "/lineage", "three\n").IgnoreError();
  EXPECT_TRUE(absl::IsDataLoss(ReadLastLineage(RealFileSystem(), folder_ + "/lineage").status()));
}

TEST_F(PushSessionTest, TheTrainersCallsReachTheCore) {
  uint64_t sequence = 0;
  for (const v1::Ticket& ticket : tickets_) {
    for (uint32_t member : {0, 1}) Push(++sequence, FakeTrajectory(ticket, member));
  }
  EXPECT_EQ((*Lease(1, 0)->lease)->groups.size(), 2u);
  v1::RetireGroupRequest retire;
  retire.set_lineage(lineage_);
  retire.set_step(1);
  retire.set_ticket(1);
  retire.set_reason("logprob_mismatch");
  ASSERT_TRUE(frontend_->RetireGroup(retire).ok());
  EXPECT_EQ(quarantine_.kept(), 2u);
  EXPECT_EQ(frontend_->Status().counts().failed(), 1u);

  // A replacement for the retired group completes the batch again.
  const auto poll = Acquire(worker_, 0);
  ASSERT_EQ((*poll->tickets)->tickets_size(), 1);
  for (uint32_t member : {0, 1}) Push(++sequence, FakeTrajectory((*poll->tickets)->tickets(0), member));
  EXPECT_EQ((*Lease(1, 0)->lease)->groups.size(), 2u);
  ASSERT_TRUE(Commit(2, {2, 3}).ok());
  v1::LedgerSnapshotRequest snapshot;
  snapshot.set_lineage(lineage_);
  EXPECT_FALSE(frontend_->LedgerSnapshot(snapshot)->snapshot().empty());
  v1::SettleRequest settle;
  settle.set_lineage(lineage_);
  settle.set_step(1);
  EXPECT_EQ(frontend_->Settle(settle)->counts().settled(), 2u);

  v1::FenceWorkerRequest fence;
  fence.set_lineage(lineage_);
  *fence.mutable_identity() = worker_;
  ASSERT_TRUE(frontend_->FenceWorker(fence).ok());
  EXPECT_THAT(Push(++sequence, FakeTrajectory(tickets_[0], 0)), HasSubstr("ABORTED"));
  ASSERT_EQ(frontend_->AllocateLineage({})->lineage(), lineage_ + 1);
  EXPECT_TRUE(absl::IsAborted(frontend_->Settle(settle).status()));
}

}  // namespace
}  // namespace leeway
