// The frontend over a store whose disk the test drives by hand: nothing is told before it is durable, and a crash takes
// back nothing that was told.

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
#include "queue/queue_frontend.h"
#include "queue/store/fake_queue_store.h"

namespace leeway {
namespace {

constexpr uint32_t kGroupSize = 2;

// An answer that may be there or not yet.
template <typename T>
using Told = std::shared_ptr<std::optional<absl::StatusOr<T>>>;

class DurableFrontendTest : public ::testing::Test {
 protected:
  DurableFrontendTest() { Make(std::make_unique<FakeQueueStore>()); }

  void Make(std::unique_ptr<FakeQueueStore> store) {
    QueueCoreOptions core_options = DriverOptions(/*groups_per_step=*/1, kGroupSize, /*budget=*/1, /*steps=*/3);
    core_options.max_trajectory_bytes = 4000;
    core_options.max_bytes = 1'000'000;
    QueueFrontendOptions options;
    options.limits = {kFakeVocabulary, kGroupSize};
    options.max_trajectory_bytes = 4000;
    options.run_fingerprint = "abc";
    store_ = store.get();
    absl::StatusOr<std::unique_ptr<QueueCore>> core =
        QueueCore::Create(std::move(core_options), std::move(store), clock_.Now());
    ASSERT_TRUE(core.ok()) << core.status();
    frontend_ =
        std::make_unique<QueueFrontend>(options, *std::move(core), &quarantine_, RealFileSystem(), &clock_, [] {});
    session_ = frontend_->NewPushSession();
  }

  // A new process: what was durable, and nothing else.
  void Crash() {
    session_.reset();
    std::unique_ptr<FakeQueueStore> after = store_->Crash();
    frontend_.reset();
    Make(std::move(after));
  }

  template <typename Response, typename Call>
  Told<Response> Ask(Call call) {
    auto told = std::make_shared<std::optional<absl::StatusOr<Response>>>();
    call([told](absl::StatusOr<Response> answer) {
      EXPECT_FALSE(told->has_value());
      *told = std::move(answer);
    });
    return told;
  }

  // Everything until a worker holds ticket 1, durable.
  void StartRun() {
    store_->MakeDurableAtOnce(true);
    v1::RegisterRequest request;
    request.set_name("rollout-0");
    request.set_run_fingerprint("abc");
    const auto registered = Ask<v1::RegisterResponse>([&](auto done) { frontend_->Register(request, done); });
    worker_ = (**registered)->identity();
    const auto allocated = Ask<v1::AllocateLineageResponse>([&](auto done) { frontend_->AllocateLineage({}, done); });
    ASSERT_EQ((**allocated)->lineage(), 1u);
    v1::RestoreRequest restore;
    restore.set_lineage(1);
    ASSERT_TRUE((*Ask<v1::RestoreResponse>([&](auto done) { frontend_->Restore(restore, done); }))->ok());
    ASSERT_TRUE((*Commit(1, {}))->ok());
    const auto tickets = Acquire();
    ASSERT_EQ((**tickets)->tickets_size(), 1);
    ticket_ = (**tickets)->tickets(0);
    store_->MakeDurableAtOnce(false);
  }

  Told<v1::CommitResponse> Commit(uint64_t version, const std::vector<uint64_t>& tickets) {
    v1::CommitRequest request;
    request.set_lineage(1);
    request.set_version(version);
    request.set_digest("d");
    request.set_initial(version == 1);
    for (uint64_t ticket : tickets) request.add_tickets(ticket);
    return Ask<v1::CommitResponse>([&](auto done) { frontend_->Commit(request, done); });
  }
  Told<v1::AcquireTicketsResponse> Acquire() {
    v1::AcquireTicketsRequest request;
    *request.mutable_identity() = worker_;
    request.set_sequence(1);
    request.set_max_members(kGroupSize);
    request.set_wait_ms(1000);
    return Ask<v1::AcquireTicketsResponse>([&](auto done) { frontend_->AcquireTickets(request, done); });
  }
  Told<v1::HeartbeatResponse> Beat() {
    v1::HeartbeatRequest request;
    *request.mutable_identity() = worker_;
    return Ask<v1::HeartbeatResponse>([&](auto done) { frontend_->Heartbeat(request, done); });
  }
  Told<LeaseResult> Lease(uint64_t step) {
    v1::LeaseBatchRequest request;
    request.set_lineage(1);
    request.set_step(step);
    request.set_wait_ms(1000);
    return Ask<LeaseResult>([&](auto done) { frontend_->LeaseBatch(request, done); });
  }
  // "ACCEPTED", "FULL", ... or the stream's end, once it is told.
  std::shared_ptr<std::optional<std::string>> Push(uint64_t sequence, uint32_t member) {
    v1::Trajectory trajectory = FakeTrajectory(ticket_, member);
    v1::PushRequest request;
    *request.mutable_identity() = worker_;
    v1::PushChunk* chunk = request.add_chunks();
    chunk->set_sequence(sequence);
    chunk->set_data(trajectory.SerializeAsString());
    chunk->set_total_bytes(chunk->data().size());
    chunk->set_last(true);
    auto told = std::make_shared<std::optional<std::string>>();
    session_->Handle(&request, [told](v1::PushResponse response, const absl::Status& end) {
      *told = end.ok() ? v1::PushResult_Name(response.answers(0).result()) : end.ToString();
    });
    return told;
  }

  FakeClock clock_;
  Quarantine quarantine_{RealFileSystem(), "", 0};
  FakeQueueStore* store_ = nullptr;
  std::unique_ptr<QueueFrontend> frontend_;
  std::unique_ptr<QueueFrontend::PushSession> session_;
  v1::WorkerIdentity worker_;
  v1::Ticket ticket_;
};

TEST_F(DurableFrontendTest, AnAnswerWaitsForItsWrite) {
  StartRun();
  const auto first = Push(1, 0);
  EXPECT_FALSE(first->has_value());
  const auto again = Push(1, 0);  // the worker asks again before the first answer: the same, and not before it either
  EXPECT_FALSE(again->has_value());
  store_->MakeAllDurable();
  EXPECT_EQ(**first, "ACCEPTED");
  EXPECT_EQ(**again, "ACCEPTED");
}

TEST_F(DurableFrontendTest, ACrashTakesBackOnlyWhatWasNotTold) {
  StartRun();
  const auto told = Push(1, 0);
  store_->MakeAllDurable();
  ASSERT_EQ(**told, "ACCEPTED");
  const auto untold = Push(2, 1);
  Crash();
  EXPECT_FALSE(untold->has_value());
  store_->MakeDurableAtOnce(true);
  EXPECT_EQ(**Push(1, 0), "ACCEPTED");  // remembered
  EXPECT_EQ(**Push(2, 1), "ACCEPTED");  // made again
  EXPECT_EQ((**Lease(1))->groups.size(), 1u);
  EXPECT_EQ(frontend_->Status().answers().at("ACCEPTED"), 2u);
}

TEST_F(DurableFrontendTest, ATicketOfALostAnswerIsGivenAgain) {
  StartRun();
  Crash();
  store_->MakeDurableAtOnce(true);
  const auto tickets = Acquire();
  ASSERT_EQ((**tickets)->tickets_size(), 1);
  EXPECT_EQ((**tickets)->tickets(0).SerializeAsString(), ticket_.SerializeAsString());
}

TEST_F(DurableFrontendTest, HeartbeatsWaitForTheCommitTheyTellOfAndForNothingElse) {
  StartRun();
  const auto pushed = Push(1, 0);
  const auto beat = Beat();
  ASSERT_TRUE(beat->has_value());
  EXPECT_EQ((*beat)->value().committed().version(), 1u);
  store_->MakeDurableAtOnce(true);
  Push(2, 1);
  ASSERT_EQ((**Lease(1))->groups.size(), 1u);
  store_->MakeDurableAtOnce(false);
  const auto committed = Commit(2, {1});
  const auto later = Beat();
  EXPECT_FALSE(later->has_value());
  store_->MakeAllDurable();
  EXPECT_TRUE((*committed)->ok());
  EXPECT_EQ((**later)->committed().version(), 2u);
}

TEST_F(DurableFrontendTest, AFullDiskRefusesPushesAndLeasesWhatIsHeld) {
  StartRun();
  store_->MakeDurableAtOnce(true);
  EXPECT_EQ(**Push(1, 0), "ACCEPTED");
  store_->RefusePuts("disk full: 0 bytes left");
  EXPECT_EQ(**Push(2, 1), "FULL");
  const v1::StatusResponse status = frontend_->Status();
  ASSERT_EQ(status.waits_size(), 1);
  EXPECT_EQ(status.waits(0).cause(), "store_refuses");
  EXPECT_EQ(status.waits(0).detail(), "disk full: 0 bytes left");
  store_->RefusePuts("");
  EXPECT_EQ(**Push(2, 1), "ACCEPTED");
  store_->RefusePuts("disk full: 0 bytes left");
  EXPECT_EQ((**Lease(1))->groups.size(), 1u);
  EXPECT_TRUE((*Commit(2, {1}))->ok());
}

TEST_F(DurableFrontendTest, AtShutdownWhatIsNotDurableIsNotTold) {
  StartRun();
  const auto pushed = Push(1, 0);
  const auto tickets = Lease(1);  // waits for the group
  frontend_->Shutdown();
  EXPECT_THAT(**pushed, ::testing::HasSubstr("UNAVAILABLE"));
  EXPECT_TRUE(absl::IsUnavailable((*tickets)->status()));
}

TEST_F(DurableFrontendTest, TheEndOfAStreamComesAfterItsAnswers) {
  StartRun();
  const auto pushed = Push(1, 0);
  bool is_over = false;
  frontend_->AfterAnswers([&] {
    EXPECT_TRUE(pushed->has_value());
    is_over = true;
  });
  EXPECT_FALSE(is_over);
  store_->MakeAllDurable();
  EXPECT_TRUE(is_over);
}

}  // namespace
}  // namespace leeway
