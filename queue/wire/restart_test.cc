// A queue with a store on disk that ends and comes back at the same address, as its clients see it.

#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/file_system.h"
#include "base/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "queue/fake_trajectory.h"
#include "queue/queue_grpc_client.h"
#include "queue/queue_server.h"

namespace leeway {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(60);

class QueueRestartTest : public ::testing::Test {
 protected:
  QueueRestartTest() {
    char folder[] = "/tmp/leeway-restart-XXXXXX";
    folder_ = mkdtemp(folder);
    options_.address = "unix:" + folder_ + "/socket";
    options_.state_directory = folder_ + "/queue";
    options_.store_directory = folder_ + "/store";
    options_.vocabulary_size = kFakeVocabulary;
    options_.core.staleness.groups_per_step = 2;
    options_.core.staleness.steps = 100;
    options_.core.staleness.budget = 1;
    options_.core.group_size = 2;
    options_.core.worker_lease = absl::Minutes(10);
    options_.core.max_groups = 100;
    options_.core.max_trajectory_bytes = 1 << 20;
    options_.core.max_bytes = uint64_t{1} << 30;
    options_.core.task = "sort5";
    options_.core.train_seed = [](uint64_t index) { return index; };
    options_.core.evaluation_seed = [](uint64_t index) { return index; };
    StartServer();
    const QueueGrpcClientOptions client{.target = options_.address, .name = "client", .retry_for = kPatience};
    worker_ = GrpcQueueWorkerClient::Create(client).value();
    trainer_ = GrpcQueueTrainerClient::Create(client).value();
    EXPECT_TRUE(worker_->Register("rollout-0", "", kPatience).ok());
    lineage_ = trainer_->AllocateLineage(kPatience).value().lineage();
    EXPECT_TRUE(trainer_->Restore(lineage_, 0, "", kPatience).ok());
    Commit(1, {});
  }
  ~QueueRestartTest() override {
    worker_.reset();
    trainer_.reset();
    server_.reset();
    RealFileSystem()->RemoveAll(folder_).IgnoreError();
  }

  void StartServer() {
    absl::StatusOr<std::unique_ptr<QueueServer>> server = QueueServer::Start(options_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  void Commit(uint64_t version, const std::vector<uint64_t>& tickets) {
    v1::CommitRequest request;
    request.set_lineage(lineage_);
    request.set_version(version);
    request.set_digest("d");
    request.set_initial(tickets.empty());
    for (uint64_t ticket : tickets) request.add_tickets(ticket);
    const absl::Status committed = trainer_->Commit(request, kPatience).status();
    ASSERT_TRUE(committed.ok()) << committed;
  }
  std::vector<v1::Ticket> Acquire() {
    const absl::StatusOr<v1::AcquireTicketsResponse> response = worker_->AcquireTickets(4, {}, kPatience);
    EXPECT_TRUE(response.ok()) << response.status();
    if (!response.ok()) return {};
    return {response->tickets().begin(), response->tickets().end()};
  }
  void Push(const v1::Ticket& ticket, uint32_t member) {
    worker_->Push(FakeTrajectory(ticket, member), [this](absl::StatusOr<v1::PushAnswer> answer) {
      MutexLock lock(&mutex_);
      answers_.push_back(answer.ok() ? v1::PushResult_Name(answer->result()) : answer.status().ToString());
      changed_.NotifyAll();
    });
  }
  std::vector<std::string> Answers(size_t count) {
    const Deadline deadline = Deadline::After(kPatience);
    MutexLock lock(&mutex_);
    while (answers_.size() < count && !deadline.HasPassed()) changed_.WaitUntil(&mutex_, deadline);
    return answers_;
  }
  // Until Status lists this wait.
  void AwaitWait(const std::string& who) {
    const Deadline deadline = Deadline::After(kPatience);
    while (!deadline.HasPassed()) {
      const v1::StatusResponse status = server_->Status();
      for (const v1::OpenWait& wait : status.waits()) {
        if (wait.who() == who) return;
      }
      std::this_thread::yield();
    }
    FAIL() << who << " does not wait";
  }

  std::string folder_;
  QueueOptions options_;
  std::unique_ptr<QueueServer> server_;
  std::unique_ptr<GrpcQueueWorkerClient> worker_;
  std::unique_ptr<GrpcQueueTrainerClient> trainer_;
  uint64_t lineage_ = 0;
  Mutex mutex_;
  CondVar changed_;
  std::vector<std::string> answers_ LEEWAY_GUARDED_BY(mutex_);
};

TEST_F(QueueRestartTest, PushesOfBothLivesAreAcceptedOnceEach) {
  const std::vector<v1::Ticket> tickets = Acquire();
  ASSERT_EQ(tickets.size(), 2u);
  Push(tickets[0], 0);
  EXPECT_THAT(Answers(1), ::testing::Each("ACCEPTED"));
  server_.reset();
  // Nobody is there: they wait in the client, under their numbers and the identity of before.
  Push(tickets[0], 1);
  Push(tickets[1], 0);
  StartServer();
  Push(tickets[1], 1);
  EXPECT_THAT(Answers(4), ::testing::ElementsAre("ACCEPTED", "ACCEPTED", "ACCEPTED", "ACCEPTED"));
  EXPECT_EQ(server_->Status().counts().ready(), 2u);
  EXPECT_TRUE(server_->Status().conservation_holds());
}

TEST_F(QueueRestartTest, LongPollsOutlastARestart) {
  const std::vector<v1::Ticket> tickets = Acquire();
  ASSERT_EQ(Acquire().size(), 2u);  // the budget is used up
  absl::StatusOr<LeasedBatch> batch;
  absl::StatusOr<v1::AcquireTicketsResponse> more;
  std::thread leaser([&] { batch = trainer_->LeaseBatch(lineage_, 1, kPatience); });
  std::thread asker([&] { more = worker_->AcquireTickets(4, {}, kPatience); });
  AwaitWait("trainer");
  server_.reset();
  StartServer();
  for (const v1::Ticket& ticket : tickets) {
    for (uint32_t member : ticket.members()) Push(ticket, member);
  }
  leaser.join();
  ASSERT_TRUE(batch.ok()) << batch.status();
  ASSERT_EQ(batch->groups.size(), 2u);
  Commit(2, {batch->groups[0].ticket, batch->groups[1].ticket});
  asker.join();
  ASSERT_TRUE(more.ok()) << more.status();
  EXPECT_EQ(more->tickets_size(), 2) << more->cause();
}

TEST_F(QueueRestartTest, CallsMadeWhileItIsAwayAreAnsweredWhenItIsBack) {
  server_.reset();
  absl::Status heartbeat, counts;
  std::thread worker([&] { heartbeat = worker_->Heartbeat({}, kPatience).status(); });
  std::thread trainer([&] { counts = trainer_->Settle(lineage_, 0, kPatience).status(); });
  StartServer();
  worker.join();
  trainer.join();
  EXPECT_TRUE(heartbeat.ok()) << heartbeat;
  EXPECT_TRUE(counts.ok()) << counts;
}

TEST_F(QueueRestartTest, CallsAreNotTriedBeyondTheirOwnTime) {
  server_.reset();
  EXPECT_FALSE(worker_->Heartbeat({}, absl::Milliseconds(100)).ok());
  EXPECT_FALSE(worker_->AcquireTickets(4, {}, absl::Milliseconds(100)).ok());
  EXPECT_FALSE(trainer_->LeaseBatch(lineage_, 1, absl::Milliseconds(100)).ok());
}

}  // namespace
}  // namespace leeway
