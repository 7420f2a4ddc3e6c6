// The queue as its users see it: server, service and clients over a real unix socket.

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/fake_clock.h"
#include "base/mutex.h"
#include "gmock/gmock.h"
#include "grpcpp/client_context.h"
#include "gtest/gtest.h"
#include "leeway/v1/queue.grpc.pb.h"
#include "queue/fake_trajectory.h"
#include "queue/queue_grpc_client.h"
#include "queue/queue_server.h"
#include "queue/wire/connection.h"

namespace leeway {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kPatience = absl::Seconds(20);

// Answers of pushes, in the order in which they came.
class Answers {
 public:
  std::function<void(absl::StatusOr<v1::PushAnswer>)> Next() {
    return [this](absl::StatusOr<v1::PushAnswer> answer) {
      MutexLock lock(&mutex_);
      answers_.push_back(std::move(answer));
      changed_.NotifyAll();
    };
  }
  std::vector<absl::StatusOr<v1::PushAnswer>> Wait(size_t count) {
    const Deadline deadline = Deadline::After(kPatience);
    MutexLock lock(&mutex_);
    while (answers_.size() < count && !deadline.HasPassed()) changed_.WaitUntil(&mutex_, deadline);
    EXPECT_GE(answers_.size(), count) << "no answer in time";
    return answers_;
  }
  void ExpectAll(size_t count, v1::PushResult result) {
    for (const absl::StatusOr<v1::PushAnswer>& answer : Wait(count)) {
      ASSERT_TRUE(answer.ok()) << answer.status();
      ASSERT_EQ(answer->result(), result) << answer->ShortDebugString();
    }
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::vector<absl::StatusOr<v1::PushAnswer>> answers_ LEEWAY_GUARDED_BY(mutex_);
};

// Stands between a client and a server and can break what connects them. One thread a connection and direction.
class SocketRelay {
 public:
  SocketRelay(const std::string& from, std::string to)
      : to_(std::move(to)), listener_(socket(AF_UNIX, SOCK_STREAM, 0)) {
    const sockaddr_un name = Name(from);
    EXPECT_EQ(bind(listener_, reinterpret_cast<const sockaddr*>(&name), sizeof(name)), 0);
    EXPECT_EQ(listen(listener_, 16), 0);
    acceptor_ = std::thread([this] { Accept(); });
  }
  ~SocketRelay() {
    shutdown(listener_, SHUT_RDWR);
    acceptor_.join();
    BreakConnections();
    for (std::thread& pump : pumps_) pump.join();
    close(listener_);
    for (int fd : fds_) close(fd);
  }
  void BreakConnections() {
    MutexLock lock(&mutex_);
    for (int fd : fds_) shutdown(fd, SHUT_RDWR);
  }
  // From now on what the server says on the connections that exist is lost.
  void LoseAnswers() {
    MutexLock lock(&mutex_);
    for (const auto& loses : loses_answers_) *loses = true;
  }
  int connections() {
    MutexLock lock(&mutex_);
    return static_cast<int>(fds_.size() / 2);
  }

 private:
  static sockaddr_un Name(const std::string& path) {
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    path.copy(name.sun_path, sizeof(name.sun_path) - 1);
    return name;
  }
  void Accept() {
    while (true) {
      const int client = accept(listener_, nullptr, nullptr);
      if (client < 0) return;
      const int server = socket(AF_UNIX, SOCK_STREAM, 0);
      const sockaddr_un name = Name(to_);
      EXPECT_EQ(connect(server, reinterpret_cast<const sockaddr*>(&name), sizeof(name)), 0);
      MutexLock lock(&mutex_);
      fds_.insert(fds_.end(), {client, server});
      const auto loses = loses_answers_.emplace_back(std::make_shared<std::atomic<bool>>(false));
      pumps_.emplace_back([=] { Pump(client, server, nullptr); });
      pumps_.emplace_back([=] { Pump(server, client, loses.get()); });
    }
  }
  static void Pump(int from, int to, const std::atomic<bool>* loses) {
    std::vector<char> buffer(1 << 16);
    while (true) {
      const ssize_t size = read(from, buffer.data(), buffer.size());
      if (size > 0 && loses != nullptr && *loses) continue;
      if (size <= 0 || send(to, buffer.data(), size, MSG_NOSIGNAL) != size) break;
    }
    shutdown(from, SHUT_RDWR);
    shutdown(to, SHUT_RDWR);
  }

  const std::string to_;
  const int listener_;
  std::thread acceptor_;
  Mutex mutex_;
  std::vector<int> fds_ LEEWAY_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<std::atomic<bool>>> loses_answers_ LEEWAY_GUARDED_BY(mutex_);
  std::vector<std::thread> pumps_;
};

class QueueServiceTest : public ::testing::Test {
 protected:
  QueueServiceTest() {
    char folder[] = "/tmp/leeway-queue-XXXXXX";
    folder_ = mkdtemp(folder);
    options_.address = folder_ + "/socket";
    options_.address.insert(0, "unix:");
    options_.state_directory = folder_ + "/queue";
    options_.vocabulary_size = kFakeVocabulary;
    options_.run_fingerprint = "abc";
    options_.core.staleness.groups_per_step = 2;
    options_.core.staleness.steps = 100;
    options_.core.group_size = 2;
    // Nobody sends heartbeats here, and a busy machine may be slow.
    options_.core.worker_lease = absl::Minutes(10);
    options_.core.max_groups = 100;
    options_.core.max_trajectory_bytes = 80 << 20;
    options_.core.max_bytes = uint64_t{100} << 30;
    options_.core.task = "sort5";
    options_.core.train_seed = [](uint64_t index) { return index; };
    options_.core.evaluation_seed = [](uint64_t index) { return index; };
  }
  ~QueueServiceTest() override {
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
  void StartAll() {
    StartServer();
    worker_ = NewWorker();
    trainer_ = GrpcQueueTrainerClient::Create({.target = options_.address, .name = "trainer"}).value();
    ASSERT_TRUE(worker_->Register("rollout-0", "abc", kPatience).ok());
    StartTrainer();
  }
  std::unique_ptr<GrpcQueueWorkerClient> NewWorker() {
    return GrpcQueueWorkerClient::Create({.target = options_.address, .name = "rollout"}).value();
  }
  void StartTrainer() {
    lineage_ = trainer_->AllocateLineage(kPatience)->lineage();
    ASSERT_TRUE(trainer_->Restore(lineage_, 0, "", kPatience).ok());
    ASSERT_TRUE(Commit(1, {}, true).ok());
  }
  absl::Status Commit(uint64_t version, const std::vector<uint64_t>& tickets, bool initial = false) {
    v1::CommitRequest request;
    request.set_lineage(lineage_);
    request.set_version(version);
    request.set_digest("d");
    request.set_initial(initial);
    for (uint64_t ticket : tickets) request.add_tickets(ticket);
    return trainer_->Commit(request, kPatience).status();
  }
  std::vector<v1::Ticket> Acquire(absl::Duration wait = kPatience) {
    const absl::StatusOr<v1::AcquireTicketsResponse> response = worker_->AcquireTickets(4, {}, wait);
    EXPECT_TRUE(response.ok()) << response.status();
    if (!response.ok()) return {};
    return {response->tickets().begin(), response->tickets().end()};
  }
  static bool Eventually(const std::function<bool()>& holds) {
    const Deadline deadline = Deadline::After(kPatience);
    while (!holds()) {
      if (deadline.HasPassed()) return false;
      std::this_thread::yield();
    }
    return true;
  }
  // Until Status lists this wait.
  bool WaitsInStatus(const std::string& who, const std::string& cause) {
    const Deadline deadline = Deadline::After(kPatience);
    while (!deadline.HasPassed()) {
      const v1::StatusResponse status = server_->Status();
      for (const v1::OpenWait& wait : status.waits()) {
        if (wait.who() == who && wait.cause() == cause) return true;
      }
      std::this_thread::yield();
    }
    return false;
  }
  // Pushes every member of the tickets.
  void PushAll(const std::vector<v1::Ticket>& tickets, Answers* answers, int sampled = 5) {
    for (const v1::Ticket& ticket : tickets) {
      for (uint32_t member : ticket.members()) worker_->Push(FakeTrajectory(ticket, member, sampled), answers->Next());
    }
  }

  std::string folder_;
  QueueOptions options_;
  // They outlive the server.
  FakeClock clock_;
  Metrics metrics_;
  std::unique_ptr<QueueServer> server_;
  std::unique_ptr<GrpcQueueWorkerClient> worker_;
  std::unique_ptr<GrpcQueueTrainerClient> trainer_;
  uint64_t lineage_ = 0;
};

TEST_F(QueueServiceTest, StepsOfARunGoThrough) {
  StartAll();
  Answers answers;
  for (uint64_t step = 1; step <= 5; ++step) {
    const std::vector<v1::Ticket> tickets = Acquire();
    ASSERT_EQ(tickets.size(), 2u);
    PushAll(tickets, &answers);
    const absl::StatusOr<LeasedBatch> batch = trainer_->LeaseBatch(lineage_, step, kPatience);
    ASSERT_TRUE(batch.ok()) << batch.status();
    ASSERT_EQ(batch->groups.size(), 2u) << batch->cause;
    for (size_t g = 0; g < 2; ++g) {
      ASSERT_EQ(batch->groups[g].members.size(), 2u);
      for (uint32_t m = 0; m < 2; ++m) {
        EXPECT_EQ(batch->groups[g].members[m].SerializeAsString(), FakeTrajectory(tickets[g], m).SerializeAsString());
      }
    }
    ASSERT_TRUE(Commit(step + 1, {2 * step - 1, 2 * step}).ok());
  }
  answers.ExpectAll(20, v1::ACCEPTED);
  EXPECT_EQ(worker_->unanswered_pushes(), 0);
  const v1::LedgerCounts settled = trainer_->Settle(lineage_, 5, kPatience).value();
  EXPECT_EQ(settled.settled(), 10u);
  const v1::StatusResponse status = trainer_->GetStatus(kPatience).value();
  EXPECT_TRUE(status.conservation_holds());
  EXPECT_EQ(status.committed().version(), 6u);
  EXPECT_GT(status.report().cpu_seconds().at("total"), 0.0);
  double states = 0;
  for (const auto& [state, seconds] : status.report().state_seconds()) states += seconds;
  EXPECT_NEAR(states, status.report().wall_seconds(), 0.02 * status.report().wall_seconds() + 0.01);
}

TEST_F(QueueServiceTest, PipelinedPushesAreAnsweredInOrder) {
  StartAll();
  const std::vector<v1::Ticket> tickets = Acquire();
  ASSERT_EQ(tickets.size(), 2u);
  Answers answers;
  PushAll(tickets, &answers);
  // Every later one was delivered before.
  constexpr size_t kMany = 3000;
  for (size_t i = 0; i < kMany; ++i) worker_->Push(FakeTrajectory(tickets[0], i % 2), answers.Next());
  const auto all = answers.Wait(4 + kMany);
  ASSERT_EQ(all.size(), 4 + kMany);
  for (size_t i = 0; i < all.size(); ++i) {
    ASSERT_TRUE(all[i].ok()) << all[i].status();
    ASSERT_EQ(all[i]->sequence(), i + 1);
    ASSERT_EQ(all[i]->result(), i < 4 ? v1::ACCEPTED : v1::DUPLICATE);
  }
}

TEST_F(QueueServiceTest, ALongPollWakesUp) {
  StartAll();
  ASSERT_EQ(Acquire().size(), 2u);
  auto second = NewWorker();
  ASSERT_TRUE(second->Register("rollout-1", "abc", kPatience).ok());
  std::thread waiter([&] {
    const absl::StatusOr<v1::AcquireTicketsResponse> response = second->AcquireTickets(4, {}, kPatience);
    ASSERT_TRUE(response.ok()) << response.status();
    EXPECT_GT(response->tickets_size(), 0) << response->cause();
  });
  ASSERT_TRUE(WaitsInStatus("rollout-1", "waiting_for_version"));
  // The first worker comes back under a new epoch: its tickets return, and go to who waits.
  const MonotonicTime start = RealClock()->Now();
  ASSERT_TRUE(worker_->Register("rollout-0", "abc", kPatience).ok());
  waiter.join();
  EXPECT_LT(RealClock()->Now() - start, kPatience / 2);
}

TEST_F(QueueServiceTest, AnEmptyPollSaysWhy) {
  StartAll();
  ASSERT_EQ(Acquire().size(), 2u);
  const absl::StatusOr<v1::AcquireTicketsResponse> tickets = worker_->AcquireTickets(4, {}, absl::Milliseconds(20));
  ASSERT_TRUE(tickets.ok());
  EXPECT_EQ(tickets->tickets_size(), 0);
  EXPECT_EQ(tickets->cause(), "waiting_for_version");
  EXPECT_EQ(tickets->committed().version(), 1u);
  const absl::StatusOr<LeasedBatch> batch = trainer_->LeaseBatch(lineage_, 1, absl::Milliseconds(20));
  ASSERT_TRUE(batch.ok()) << batch.status();
  EXPECT_TRUE(batch->groups.empty());
  EXPECT_EQ(batch->cause, "waiting_for_groups");
}

TEST_F(QueueServiceTest, A64MebibyteTrajectoryPasses) {
  StartAll();
  const std::vector<v1::Ticket> tickets = Acquire();
  ASSERT_EQ(tickets.size(), 2u);
  // Eight bytes a sampled token (id and log-probability).
  const int sampled = (64 << 20) / 8;
  const v1::Trajectory large = FakeTrajectory(tickets[0], 0, sampled);
  ASSERT_GE(large.ByteSizeLong(), uint64_t{64} << 20);
  Answers answers;
  worker_->Push(large, answers.Next());
  worker_->Push(FakeTrajectory(tickets[0], 1), answers.Next());
  PushAll({tickets[1]}, &answers);
  answers.ExpectAll(4, v1::ACCEPTED);
  const absl::StatusOr<LeasedBatch> batch = trainer_->LeaseBatch(lineage_, 1, kPatience);
  ASSERT_TRUE(batch.ok()) << batch.status();
  ASSERT_EQ(batch->groups.size(), 2u) << batch->cause;
  EXPECT_EQ(batch->groups[0].members[0].spans(1).ids_size(), sampled);
  EXPECT_EQ(batch->groups[0].members[0].SerializeAsString(), large.SerializeAsString());
}

TEST_F(QueueServiceTest, ATooLargeTrajectoryBecomesAFailure) {
  options_.core.max_trajectory_bytes = 2000;
  StartAll();
  const std::vector<v1::Ticket> tickets = Acquire();
  Answers answers;
  worker_->Push(FakeTrajectory(tickets[0], 0, 1000), answers.Next());
  answers.ExpectAll(1, v1::ACCEPTED);
  EXPECT_EQ(server_->Status().episode_failures().at("trajectory_too_large"), 1u);
}

TEST_F(QueueServiceTest, ARefusedTrajectoryLiesInTheQuarantineFile) {
  StartAll();
  v1::Trajectory poison = FakeTrajectory(Acquire()[0], 0);
  poison.mutable_spans(1)->set_logprobs(1, 0.5f);
  Answers answers;
  worker_->Push(poison, answers.Next());
  answers.ExpectAll(1, v1::REJECTED);
  const std::string kept = RealFileSystem()->ReadFile(folder_ + "/queue/quarantine.jsonl").value();
  EXPECT_THAT(kept, HasSubstr("\"reason\":\"logprob_positive: spans[1].logprobs[1]: 0.5"));
  EXPECT_THAT(kept, HasSubstr("\"from\":\"rollout-0\""));
}

TEST_F(QueueServiceTest, AFencedWorkerIsAbortedUntilItRegisters) {
  StartAll();
  const std::vector<v1::Ticket> tickets = Acquire();
  auto usurper = NewWorker();
  ASSERT_TRUE(usurper->Register("rollout-0", "abc", kPatience).ok());
  Answers answers;
  PushAll(tickets, &answers);
  for (const auto& answer : answers.Wait(4)) EXPECT_TRUE(absl::IsAborted(answer.status())) << answer.status();
  EXPECT_TRUE(absl::IsAborted(worker_->AcquireTickets(4, {}, absl::ZeroDuration()).status()));
  EXPECT_TRUE(absl::IsAborted(worker_->Heartbeat({}, kPatience).status()));

  const absl::StatusOr<v1::RegisterResponse> again = worker_->Register("rollout-0", "abc", kPatience);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->identity().producer_id(), 1u);
  Answers after;
  PushAll(Acquire(), &after);
  after.ExpectAll(4, v1::ACCEPTED);
}

TEST_F(QueueServiceTest, ADuplicateAGapAndABrokenStreamOnTheWire) {
  StartAll();
  const std::vector<v1::Ticket> tickets = Acquire();
  const v1::WorkerIdentity identity = server_->Status().workers(0).identity();
  const auto stub = v1::Queue::NewStub(OpenChannel(options_.address, QueueConnectionOptions()).value());
  const auto push = [&](uint64_t sequence, const std::string& bytes, uint64_t total_bytes) {
    v1::PushRequest request;
    *request.mutable_identity() = identity;
    v1::PushChunk* chunk = request.add_chunks();
    chunk->set_sequence(sequence);
    chunk->set_total_bytes(total_bytes);
    chunk->set_data(bytes);
    chunk->set_last(true);
    return request;
  };
  const std::string bytes = FakeTrajectory(tickets[0], 0).SerializeAsString();
  for (uint64_t gap : {3, 4}) {
    grpc::ClientContext context;
    auto stream = stub->Push(&context);
    v1::PushResponse response;
    for (int again = 0; again < 2; ++again) {
      ASSERT_TRUE(stream->Write(push(1, bytes, bytes.size())));
      ASSERT_TRUE(stream->Read(&response));
      EXPECT_EQ(response.answers(0).result(), v1::ACCEPTED);  // the same answer, verbatim
    }
    stream->Write(push(gap, bytes, bytes.size()));
    EXPECT_FALSE(stream->Read(&response));
    EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  }
  grpc::ClientContext context;
  auto stream = stub->Push(&context);
  stream->Write(push(2, bytes, uint64_t{81} << 20));
  const grpc::Status status = stream->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("the limit is 83886080"));
}

TEST_F(QueueServiceTest, AnotherConfigurationIsRefused) {
  StartAll();
  const absl::Status refused = worker_->Register("rollout-0", "xyz", kPatience).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
}

TEST_F(QueueServiceTest, AnUnregisteredWorkerIsToldSo) {
  StartServer();
  worker_ = NewWorker();
  EXPECT_TRUE(absl::IsFailedPrecondition(worker_->AcquireTickets(1, {}, absl::ZeroDuration()).status()));
  Answers answers;
  worker_->Push(FakeTrajectory(v1::Ticket(), 0), answers.Next());
  EXPECT_TRUE(absl::IsFailedPrecondition(answers.Wait(1)[0].status()));
}

TEST_F(QueueServiceTest, ARestartedQueueKnowsNobodyAndNeverRepeatsALineage) {
  StartAll();
  const std::vector<v1::Ticket> tickets = Acquire();
  Answers before;
  worker_->Push(FakeTrajectory(tickets[0], 0), before.Next());
  before.ExpectAll(1, v1::ACCEPTED);

  server_.reset();
  Answers meanwhile;
  worker_->Push(FakeTrajectory(tickets[0], 1), meanwhile.Next());
  StartServer();
  // The client comes back by itself and learns that its identity is gone.
  EXPECT_TRUE(absl::IsAborted(meanwhile.Wait(1)[0].status())) << meanwhile.Wait(1)[0].status();

  const uint64_t old_lineage = lineage_;
  EXPECT_FALSE(trainer_->Settle(old_lineage, 0, kPatience).ok());
  ASSERT_TRUE(worker_->Register("rollout-0", "abc", kPatience).ok());
  StartTrainer();
  EXPECT_EQ(lineage_, old_lineage + 1);
  Answers after;
  PushAll(Acquire(), &after);
  after.ExpectAll(4, v1::ACCEPTED);
}

TEST_F(QueueServiceTest, BrokenConnectionsLoseAndDoubleNothing) {
  options_.core.staleness.budget = 50;
  options_.core.max_groups = 1000;
  StartAll();
  SocketRelay relay(folder_ + "/relay", folder_ + "/socket");
  worker_ = GrpcQueueWorkerClient::Create({.target = "unix:" + folder_ + "/relay", .name = "relayed"}).value();
  ASSERT_TRUE(worker_->Register("rollout-0", "abc", kPatience).ok());
  std::vector<v1::Ticket> tickets;
  while (tickets.size() < 100) {
    for (const v1::Ticket& ticket : Acquire()) tickets.push_back(ticket);
  }
  Answers answers;
  size_t pushed = 0;
  for (const v1::Ticket& ticket : tickets) {
    // Large enough that a break finds some of them half sent.
    for (uint32_t member : ticket.members()) {
      worker_->Push(FakeTrajectory(ticket, member, 20'000), answers.Next());
      ++pushed;
    }
    if (ticket.id() % 10 == 0) {
      answers.Wait(pushed / 2);
      relay.BreakConnections();
    }
  }
  answers.ExpectAll(pushed, v1::ACCEPTED);
  EXPECT_GE(relay.connections(), 5);
  const v1::StatusResponse status = server_->Status();
  EXPECT_EQ(status.answers().at("ACCEPTED"), pushed);
  EXPECT_EQ(status.answers().count("DUPLICATE"), 0u);
  EXPECT_EQ(status.counts().ready(), tickets.size());
}

TEST_F(QueueServiceTest, TicketsGrantedIntoABreakReachTheirWorker) {
  StartAll();
  SocketRelay relay(folder_ + "/relay", folder_ + "/socket");
  const std::string target = absl::StrCat("unix:", folder_, "/relay");
  auto worker = GrpcQueueWorkerClient::Create({.target = target, .name = "rollout"}).value();
  ASSERT_TRUE(worker->Register("rollout-0", "abc", kPatience).ok());
  relay.LoseAnswers();
  absl::StatusOr<v1::AcquireTicketsResponse> answer;
  std::thread asker([&] { answer = worker->AcquireTickets(4, {}, kPatience); });
  EXPECT_TRUE(Eventually([&] { return server_->Status().counts().running() == 2; }));
  relay.BreakConnections();
  asker.join();
  // The client has asked again by itself.
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->tickets_size(), 2) << answer->cause();
  EXPECT_EQ(server_->Status().counts().running(), 2u);
  // The next one is a request of its own.
  EXPECT_EQ(worker->AcquireTickets(4, {}, absl::ZeroDuration())->cause(), "waiting_for_version");
}

TEST_F(QueueServiceTest, ARetirementWhoseAnswerIsLostIsTriedAgain) {
  StartAll();
  Answers answers;
  PushAll(Acquire(), &answers);
  ASSERT_EQ(trainer_->LeaseBatch(lineage_, 1, kPatience)->groups.size(), 2u);
  SocketRelay relay(folder_ + "/relay", folder_ + "/socket");
  const std::string target = absl::StrCat("unix:", folder_, "/relay");
  auto trainer =
      GrpcQueueTrainerClient::Create({.target = target, .name = "trainer", .retry_for = absl::Seconds(20)}).value();
  ASSERT_TRUE(trainer->GetStatus(kPatience).ok());
  relay.LoseAnswers();
  absl::Status retired;
  std::thread caller([&] { retired = trainer->RetireGroup(lineage_, 1, 1, "logprob_mismatch", kPatience); });
  EXPECT_TRUE(Eventually([&] { return server_->Status().counts().failed() == 1; }));
  relay.BreakConnections();
  caller.join();
  EXPECT_TRUE(retired.ok()) << retired;
  EXPECT_EQ(server_->Status().counts().failed(), 1u);
}

TEST_F(QueueServiceTest, AnIdentityOfTheQueuesEarlierLifeIsRefused) {
  StartAll();
  server_.reset();
  StartServer();
  auto other = NewWorker();
  ASSERT_TRUE(other->Register("rollout-1", "abc", kPatience).ok());  // the same producer id
  absl::Status refused;
  EXPECT_TRUE(Eventually([&] {
    refused = worker_->Heartbeat({}, kPatience).status();
    return absl::IsAborted(refused);
  })) << refused;
}

TEST_F(QueueServiceTest, APauseOfTheQueueLosesNobody) {
  options_.core.worker_lease = absl::Seconds(10);
  options_.core.heartbeat_interval = absl::Milliseconds(20);
  absl::StatusOr<std::unique_ptr<QueueServer>> server =
      QueueServer::Start(options_, RealFileSystem(), &metrics_, &clock_);
  ASSERT_TRUE(server.ok()) << server.status();
  server_ = *std::move(server);
  worker_ = NewWorker();
  trainer_ = GrpcQueueTrainerClient::Create({.target = options_.address, .name = "trainer"}).value();
  ASSERT_TRUE(worker_->Register("rollout-0", "abc", kPatience).ok());
  StartTrainer();
  ASSERT_EQ(Acquire().size(), 2u);
  clock_.Advance(absl::Seconds(60));
  // The first round after the pause keeps the metrics too.
  EXPECT_TRUE(Eventually([&] { return metrics_.Snapshot()["version"] == 1; }));
  EXPECT_EQ(metrics_.Snapshot()["ledger/running"], 2);
  EXPECT_TRUE(server_->Status().workers(0).alive());
}

TEST_F(QueueServiceTest, EveryShutdownReturnsWhenTheServerIsDown) {
  StartAll();
  const std::vector<v1::Ticket> tickets = Acquire();
  Answers answers;
  PushAll(tickets, &answers, /*sampled=*/2'000'000);
  answers.ExpectAll(4, v1::ACCEPTED);
  // A batch that nobody reads holds the server up for all of its grace.
  const std::unique_ptr<v1::Queue::Stub> stub =
      v1::Queue::NewStub(OpenChannel(options_.address, QueueConnectionOptions()).value());
  grpc::ClientContext context;
  v1::LeaseBatchRequest request;
  request.set_lineage(lineage_);
  request.set_step(1);
  request.set_wait_ms(1000);
  const auto reader = stub->LeaseBatch(&context, request);
  ASSERT_TRUE(Eventually([&] { return server_->Status().counts().leased() == 2; }));
  constexpr absl::Duration kGrace = absl::Milliseconds(500);
  const MonotonicTime start = RealClock()->Now();
  std::thread first([&] { server_->Shutdown(kGrace); });
  std::thread second([&] { server_->Shutdown(kGrace); });
  server_->Shutdown(kGrace);
  EXPECT_GE(RealClock()->Now() - start, kGrace);
  first.join();
  second.join();
}

TEST_F(QueueServiceTest, AFailureCodeThatNoMetricCanHaveIsRefused) {
  absl::StatusOr<std::unique_ptr<QueueServer>> server = QueueServer::Start(options_, RealFileSystem(), &metrics_);
  ASSERT_TRUE(server.ok()) << server.status();
  server_ = *std::move(server);
  worker_ = NewWorker();
  trainer_ = GrpcQueueTrainerClient::Create({.target = options_.address, .name = "trainer"}).value();
  ASSERT_TRUE(worker_->Register("rollout-0", "abc", kPatience).ok());
  StartTrainer();
  v1::Trajectory failed;
  *failed.mutable_key() = FakeTrajectory(Acquire()[0], 0).key();
  failed.set_outcome(v1::FAILED);
  failed.mutable_failure()->set_fault(v1::Failure::ENVIRONMENT);
  failed.mutable_failure()->set_code("exit status 1");
  Answers answers;
  worker_->Push(failed, answers.Next());
  answers.ExpectAll(1, v1::REJECTED);
  EXPECT_TRUE(Eventually([&] { return metrics_.Snapshot()["episode_failures/rejected"] == 1; }));
}

TEST_F(QueueServiceTest, ShutdownWithOpenStreamsAndPollsIsQuick) {
  StartAll();
  const std::vector<v1::Ticket> tickets = Acquire();
  Answers answers;
  PushAll({tickets[0]}, &answers);
  answers.ExpectAll(2, v1::ACCEPTED);  // the push stream is open
  absl::Status poll, lease;
  std::thread poller([&] { poll = worker_->AcquireTickets(4, {}, absl::Minutes(1)).status(); });
  std::thread leaser([&] { lease = trainer_->LeaseBatch(lineage_, 1, absl::Minutes(1)).status(); });
  // Both are open (or not yet there, which is no different below).
  const MonotonicTime start = RealClock()->Now();
  server_->Shutdown(absl::Minutes(5));  // a grace that nobody needs
  EXPECT_LT(RealClock()->Now() - start, absl::Seconds(5));
  poller.join();
  leaser.join();
  EXPECT_TRUE(absl::IsUnavailable(poll)) << poll;
  EXPECT_TRUE(absl::IsUnavailable(lease)) << lease;
  EXPECT_LT(RealClock()->Now() - start, absl::Seconds(10));
}

TEST_F(QueueServiceTest, ACancelledClientReturnsAtOnce) {
  StartAll();
  ASSERT_EQ(Acquire().size(), 2u);
  absl::Status poll;
  std::thread poller([&] { poll = worker_->AcquireTickets(4, {}, absl::Minutes(1)).status(); });
  const MonotonicTime start = RealClock()->Now();
  worker_->Cancel();
  poller.join();
  EXPECT_TRUE(absl::IsCancelled(poll)) << poll;
  EXPECT_LT(RealClock()->Now() - start, absl::Seconds(5));
  // What was asked for is given to nobody.
  EXPECT_EQ(server_->Status().counts().running(), 2u);
}

TEST_F(QueueServiceTest, AClientThatIsDestroyedAnswersItsPushes) {
  StartAll();
  const std::vector<v1::Ticket> tickets = Acquire();
  server_.reset();
  Answers answers;
  PushAll(tickets, &answers);
  worker_.reset();
  for (const auto& answer : answers.Wait(4)) EXPECT_TRUE(absl::IsCancelled(answer.status())) << answer.status();
}

TEST_F(QueueServiceTest, PushesAreGivenUpWhenTheQueueStaysSilent) {
  StartAll();
  const std::vector<v1::Ticket> tickets = Acquire();
  auto impatient = GrpcQueueWorkerClient::Create(
                       {.target = options_.address, .name = "rollout", .push_patience = absl::Milliseconds(50)})
                       .value();
  ASSERT_TRUE(impatient->Register("rollout-9", "abc", kPatience).ok());
  server_.reset();
  Answers answers;
  impatient->Push(FakeTrajectory(tickets[0], 0), answers.Next());
  const absl::Status given_up = answers.Wait(1)[0].status();
  EXPECT_TRUE(absl::IsUnavailable(given_up)) << given_up;
  EXPECT_THAT(std::string(given_up.message()), HasSubstr("has not answered a push for 50ms"));
}

TEST_F(QueueServiceTest, ASilentWorkerIsLostByTheServersOwnTime) {
  options_.core.worker_lease = absl::Milliseconds(50);
  options_.core.heartbeat_interval = absl::Milliseconds(10);
  StartServer();
  worker_ = NewWorker();
  ASSERT_TRUE(worker_->Register("rollout-0", "abc", kPatience).ok());
  const Deadline deadline = Deadline::After(kPatience);
  while (server_->Status().workers(0).alive() && !deadline.HasPassed()) std::this_thread::yield();
  EXPECT_FALSE(server_->Status().workers(0).alive());
  EXPECT_TRUE(absl::IsAborted(worker_->AcquireTickets(4, {}, absl::ZeroDuration()).status()));
}

TEST_F(QueueServiceTest, BadOptionsAndBadFilesAreRefusedAtTheStart) {
  QueueOptions no_vocabulary = options_;
  no_vocabulary.vocabulary_size = 0;
  EXPECT_TRUE(absl::IsInvalidArgument(QueueServer::Start(no_vocabulary).status()));
  QueueOptions no_groups = options_;
  no_groups.core.max_groups = 1;  // cannot hold a batch
  EXPECT_TRUE(absl::IsInvalidArgument(QueueServer::Start(no_groups).status()));
  QueueOptions bad_address = options_;
  bad_address.address = "0.0.0.0:80";
  EXPECT_TRUE(absl::IsInvalidArgument(QueueServer::Start(bad_address).status()));
  StartServer();
  EXPECT_TRUE(absl::IsAlreadyExists(QueueServer::Start(options_).status()));
  server_.reset();
  ASSERT_TRUE(RealFileSystem()->WriteFileAtomically(folder_ + "/queue/lineage", "x").ok());
  EXPECT_TRUE(absl::IsDataLoss(QueueServer::Start(options_).status()));
}

TEST_F(QueueServiceTest, MetricsFollowTheLedger) {
  Metrics metrics;
  absl::StatusOr<std::unique_ptr<QueueServer>> server = QueueServer::Start(options_, RealFileSystem(), &metrics);
  ASSERT_TRUE(server.ok()) << server.status();
  const Deadline deadline = Deadline::After(kPatience);
  while (metrics.Snapshot().count("ledger/issued_total") == 0 && !deadline.HasPassed()) std::this_thread::yield();
  EXPECT_EQ(metrics.Snapshot().at("ledger/issued_total"), 0.0);
}

}  // namespace
}  // namespace leeway
