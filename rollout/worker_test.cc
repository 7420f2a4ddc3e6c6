#include "rollout/worker.h"

#include <memory>
#include <set>
#include <sstream>
#include <thread>
#include <utility>
#include <vector>

#include "base/failpoint.h"
#include "base/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "queue/fake_queue_client.h"
#include "rollout/doorbell.h"
#include "rollout/engine/naive_generator.h"
#include "rollout/episodes/scripted_task.h"
#include "spdlog/sinks/ostream_sink.h"
#include "spdlog/spdlog.h"
#include "tokenizer/character_tokenizer.h"
#include "weightsync/fake_weight_subscriber.h"

namespace leeway {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::Key;
using Script = ScriptedTask::Script;

constexpr absl::Duration kLong = absl::Seconds(30);

v1::WeightsVersion Weights(uint64_t version) {
  v1::WeightsVersion weights;
  weights.set_lineage(1);
  weights.set_version(version);
  return weights;
}

v1::Ticket MakeTicket(uint64_t id, uint32_t members, uint64_t version = 1) {
  v1::Ticket ticket;
  ticket.set_id(id);
  ticket.set_issue(1);
  ticket.set_task("scripted");
  ticket.set_seed(id);
  ticket.set_member_count(members);
  for (uint32_t member = 0; member < members; ++member) ticket.add_members(member);
  *ticket.mutable_weights() = Weights(version);
  ticket.set_deadline_ms(60'000);
  return ticket;
}

// A worker in its own thread, against a queue and a publisher that the test plays.
class Theatre {
 public:
  explicit Theatre(Script script = {}, RolloutOptions options = {}) : task(std::move(script)) {
    options.run_fingerprint = "fingerprint";
    options.shape = TinyShape();
    options.max_episodes = 32;
    v1::RegisterResponse handshake;
    handshake.set_heartbeat_interval_ms(5);
    handshake.set_lease_ms(2'000);
    queue.SetHandshake(handshake);
    RolloutWorker::Dependencies dependencies;
    dependencies.task = &task;
    dependencies.tokenizer = &tokenizer;
    dependencies.queue = &queue;
    dependencies.weights = &subscriber;
    dependencies.metrics = &metrics;
    worker = std::make_unique<RolloutWorker>(options, dependencies);
  }
  ~Theatre() {
    worker->Stop();
    if (thread.joinable()) thread.join();
  }
  void Start() {
    thread = std::thread([this] { result = worker->Run(); });
  }
  absl::Status Join() {
    thread.join();
    return result;
  }
  void Deliver(uint64_t version) {
    queue.SetCommitted(Weights(version), "digest");
    subscriber.Deliver(Weights(version), TinyWeights(version));
  }
  double Gauge(const std::string& name) {
    const v1::ProcessReport report = worker->Report();
    const auto found = report.gauges().find(name);
    return found == report.gauges().end() ? 0.0 : found->second;
  }
  // Time spent waiting for environments so far.
  absl::Duration Waited() {
    const v1::ProcessReport report = worker->Report();
    const auto found = report.state_seconds().find("wait:env_step");
    return found == report.state_seconds().end() ? absl::ZeroDuration() : absl::Seconds(found->second);
  }
  // Until the condition holds, asked again and again.
  template <typename Condition>
  bool Await(Condition condition) {
    const Deadline deadline = Deadline::After(kLong);
    while (!condition()) {
      if (deadline.HasPassed()) return false;
      Doorbell().Wait(absl::Milliseconds(1));
    }
    return true;
  }

  CharacterTokenizer tokenizer;
  ScriptedTask task;
  FakeQueueWorkerClient queue;
  FakeWeightSubscriber subscriber;
  Metrics metrics;
  std::unique_ptr<RolloutWorker> worker;
  std::thread thread;
  absl::Status result;
};

TEST(WorkerTest, PlaysTheRunToItsEnd) {
  Theatre theatre;
  theatre.Deliver(1);
  for (uint64_t id = 1; id <= 10; ++id) theatre.queue.AddTicket(MakeTicket(id, 8));
  theatre.Start();
  ASSERT_TRUE(theatre.queue.WaitForPushes(80, kLong));
  theatre.queue.SetRunComplete();
  EXPECT_TRUE(theatre.Join().ok()) << theatre.result;

  EXPECT_EQ(theatre.queue.fingerprint(), "fingerprint");
  EXPECT_THAT(theatre.subscriber.identities().size(), 1u);
  std::set<std::pair<uint64_t, uint32_t>> members;
  for (const v1::Trajectory& trajectory : theatre.queue.pushed()) {
    EXPECT_EQ(trajectory.outcome(), v1::COMPLETED);
    EXPECT_TRUE(members.emplace(trajectory.key().ticket(), trajectory.key().member()).second);
  }
  EXPECT_EQ(members.size(), 80u);
  EXPECT_FALSE(theatre.queue.heartbeats().empty());
}

TEST(WorkerTest, StatesPartitionWallTime) {
  Script script;
  script.latency = [](const EpisodeKey&, int) { return absl::Milliseconds(30); };
  Theatre theatre(script);
  theatre.Deliver(1);
  theatre.queue.AddTicket(MakeTicket(1, 8));
  theatre.Start();
  ASSERT_TRUE(theatre.queue.WaitForPushes(8, kLong));
  theatre.queue.SetRunComplete();
  EXPECT_TRUE(theatre.Join().ok());
  const v1::ProcessReport report = theatre.worker->Report();
  double total = 0;
  for (const auto& [state, seconds] : report.state_seconds()) total += seconds;
  EXPECT_NEAR(total, report.wall_seconds(), 0.02 * report.wall_seconds());
  EXPECT_THAT(report.state_seconds(), Contains(Key("busy:generate")));
  EXPECT_THAT(report.state_seconds(), Contains(Key("busy:swap")));
  // Reset and step are deemed to take 30 ms each.
  EXPECT_GE(report.state_seconds().at("wait:env_step"), 0.05);
  EXPECT_THAT(report.cpu_seconds(), Contains(Key("total")));
  EXPECT_GE(report.gauges().at("rollout/tokens_generated"), 8);
  EXPECT_THAT(theatre.metrics.Snapshot(), Contains(Key("rollout/flops")));
}

TEST(WorkerTest, WaitsForTheVersionThatATicketNames) {
  Theatre theatre;
  theatre.queue.AddTicket(MakeTicket(1, 4, /*version=*/2));
  theatre.Deliver(1);
  theatre.Start();
  ASSERT_TRUE(theatre.Await([&] { return theatre.subscriber.swaps().size() == 1; }));
  ASSERT_TRUE(
      theatre.Await([&] { return theatre.worker->Report().state_seconds().count("wait:waiting_for_version") > 0; }));
  EXPECT_TRUE(theatre.queue.pushed().empty());
  // The publisher dies before it can say that version 2 is committed; a heartbeat of the queue says so.
  const std::vector<float> weights = TinyWeights(2);
  theatre.subscriber.Deliver(Weights(2), weights);
  ASSERT_TRUE(theatre.queue.WaitForPushes(4, kLong));
  for (const v1::Trajectory& trajectory : theatre.queue.pushed())
    EXPECT_EQ(trajectory.spans(1).versions(0).weights().version(), 2u);
  EXPECT_THAT(theatre.subscriber.noted(),
              Contains(::testing::Field(&std::pair<v1::WeightsVersion, std::string>::second, "digest")));
}

TEST(WorkerTest, HeartbeatsNameHeldWeightsAndTickets) {
  Theatre theatre;
  theatre.queue.HoldAnswers();
  theatre.Deliver(1);
  theatre.queue.AddTicket(MakeTicket(3, 2));
  theatre.Start();
  ASSERT_TRUE(theatre.queue.WaitForPushes(2, kLong));
  ASSERT_TRUE(theatre.Await([&] {
    const std::vector<v1::HeartbeatRequest> heartbeats = theatre.queue.heartbeats();
    return !heartbeats.empty() && heartbeats.back().holds().version() == 1 && heartbeats.back().tickets_size() == 1 &&
           heartbeats.back().tickets(0) == 3 && heartbeats.back().report().gauges().count("rollout/version") == 1;
  }));
  theatre.queue.ReleaseAnswers();
  EXPECT_TRUE(theatre.Await([&] { return theatre.queue.heartbeats().back().tickets_size() == 0; }));
}

TEST(WorkerTest, FencedWorkerRegistersAgainAndDropsItsWork) {
  auto mutex = std::make_shared<Mutex>();
  auto latency = std::make_shared<absl::Duration>(absl::Hours(1));
  Script script;
  script.latency = [=](const EpisodeKey&, int) {
    MutexLock lock(mutex.get());
    return *latency;
  };
  RolloutOptions options;
  options.limits.reset_timeout = options.limits.step_timeout = options.limits.episode_timeout = absl::Hours(10);
  Theatre theatre(script, options);
  theatre.Deliver(1);
  theatre.queue.AddTicket(MakeTicket(1, 8));
  theatre.Start();
  ASSERT_TRUE(theatre.Await([&] { return theatre.Gauge("rollout/running_episodes") == 8; }));
  {
    MutexLock lock(mutex.get());
    *latency = absl::ZeroDuration();
  }
  theatre.queue.Fence();
  ASSERT_TRUE(theatre.Await([&] { return theatre.subscriber.identities().size() == 2; }));
  EXPECT_EQ(theatre.subscriber.identities()[1].epoch(), 2u);
  v1::Ticket again = MakeTicket(1, 8);
  again.set_issue(2);
  theatre.queue.AddTicket(again);
  ASSERT_TRUE(theatre.queue.WaitForPushes(8, kLong));
  theatre.queue.SetRunComplete();
  EXPECT_TRUE(theatre.Join().ok());
  EXPECT_EQ(theatre.queue.pushed().size(), 8u);
  for (const v1::Trajectory& trajectory : theatre.queue.pushed()) EXPECT_EQ(trajectory.key().issue(), 2u);
}

TEST(WorkerTest, PublishersFenceMakesANewIdentity) {
  Theatre theatre;
  theatre.Deliver(1);
  theatre.Start();
  ASSERT_TRUE(theatre.Await([&] { return theatre.subscriber.identities().size() == 1; }));
  theatre.subscriber.Fence();
  ASSERT_TRUE(theatre.Await([&] { return theatre.subscriber.identities().size() == 2; }));
  EXPECT_FALSE(theatre.subscriber.is_fenced());
}

TEST(WorkerTest, NoNewIdentityBeforeTheLoaderHasComeBack) {
  Theatre theatre;
  theatre.Deliver(1);
  theatre.Start();
  ASSERT_TRUE(theatre.Await([&] { return theatre.subscriber.identities().size() == 1; }));
  theatre.subscriber.SetAbandonedLoad(true);
  theatre.subscriber.Fence();
  ASSERT_TRUE(theatre.Await([&] { return theatre.worker->Report().state_seconds().count("wait:registering") > 0; }));
  Doorbell().Wait(absl::Milliseconds(100));
  EXPECT_EQ(theatre.subscriber.identities().size(), 1u);
  theatre.subscriber.SetAbandonedLoad(false);
  EXPECT_TRUE(theatre.Await([&] { return theatre.subscriber.identities().size() == 2; }));
}

TEST(WorkerTest, ALoaderThatNeverComesBackEndsTheProcess) {
  RolloutOptions options;
  options.abandoned_load_timeout = absl::Milliseconds(50);
  Theatre theatre({}, options);
  theatre.Deliver(1);
  theatre.Start();
  ASSERT_TRUE(theatre.Await([&] { return theatre.subscriber.identities().size() == 1; }));
  theatre.subscriber.SetAbandonedLoad(true);
  theatre.subscriber.Fence();
  const absl::Status ended = theatre.Join();
  EXPECT_EQ(ended.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(ended.message()), HasSubstr("has not come back from a load of weights"));
}

TEST(WorkerTest, LostPushMakesANewIdentity) {
  Theatre theatre;
  theatre.Deliver(1);
  theatre.queue.FailNext("Push", absl::UnavailableError("gave up"));
  theatre.queue.AddTicket(MakeTicket(1, 1));
  theatre.Start();
  ASSERT_TRUE(theatre.Await([&] { return theatre.subscriber.identities().size() == 2; }));
  EXPECT_EQ(theatre.subscriber.identities()[1].epoch(), 2u);
}

TEST(WorkerTest, DrainingEndsCleanly) {
  Script script;
  script.latency = [](const EpisodeKey&, int) { return absl::Seconds(20); };
  Theatre theatre(script);
  theatre.Deliver(1);
  theatre.queue.AddTicket(MakeTicket(1, 8));
  theatre.Start();
  ASSERT_TRUE(theatre.Await([&] { return theatre.subscriber.swaps().size() == 1; }));
  theatre.queue.SetDraining(true);
  EXPECT_TRUE(theatre.Join().ok()) << theatre.result;
  EXPECT_TRUE(theatre.queue.pushed().empty());
}

TEST(WorkerTest, StopWaitsForAnswersOfWhatWasPushed) {
  Theatre theatre;
  theatre.queue.HoldAnswers();
  theatre.Deliver(1);
  theatre.queue.AddTicket(MakeTicket(1, 2));
  theatre.Start();
  ASSERT_TRUE(theatre.queue.WaitForPushes(2, kLong));
  theatre.worker->Stop();
  theatre.queue.ReleaseAnswers();
  EXPECT_TRUE(theatre.Join().ok());
  EXPECT_EQ(theatre.queue.unanswered_pushes(), 0);
}

TEST(WorkerTest, LostQueueIsAClearError) {
  RolloutOptions options;
  options.queue_timeout = absl::Milliseconds(200);
  Theatre unreachable({}, options);
  for (int i = 0; i < 100; ++i) unreachable.queue.FailNext("Register", absl::UnavailableError("connection refused"));
  unreachable.Start();
  absl::Status status = unreachable.Join();
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_THAT(status.ToString(),
              HasSubstr("queue lost: no registration within 200ms; last: UNAVAILABLE: connection refused"));

  Theatre lost({}, options);
  for (int i = 0; i < 1000; ++i) {
    lost.queue.FailNext("AcquireTickets", absl::UnavailableError("gone"));
    lost.queue.FailNext("Heartbeat", absl::DeadlineExceededError("gone"));
  }
  lost.Start();
  status = lost.Join();
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_THAT(status.ToString(), HasSubstr("queue lost: it has answered nothing for"));
}

TEST(WorkerTest, AnotherRunsQueueIsRefusedAtOnce) {
  Theatre theatre;
  theatre.queue.FailNext("Register", absl::FailedPreconditionError("fingerprint a, this run is b"));
  theatre.Start();
  EXPECT_TRUE(absl::IsFailedPrecondition(theatre.Join()));
}

TEST(WorkerTest, HungEnvironmentCostsOneEpisode) {
  struct Gate {
    Mutex mutex;
    CondVar changed;
    bool open = false;
  };
  auto gate = std::make_shared<Gate>();
  Script script;
  script.step = [gate](const EpisodeKey& key, int, const std::string&) -> absl::StatusOr<StepResult> {
    if (key.member == 2) {
      MutexLock lock(&gate->mutex);
      while (!gate->open) gate->changed.WaitFor(&gate->mutex, absl::Seconds(10));
    }
    return ScriptedTask::End(1.0);
  };
  RolloutOptions options;
  options.limits.step_timeout = absl::Milliseconds(100);
  options.limits.max_attempts = 2;
  options.environment_threads = 1;
  Theatre theatre(script, options);
  theatre.Deliver(1);
  theatre.queue.AddTicket(MakeTicket(1, 8));
  theatre.Start();
  ASSERT_TRUE(theatre.queue.WaitForPushes(8, kLong));
  int failed = 0;
  for (const v1::Trajectory& trajectory : theatre.queue.pushed()) {
    if (trajectory.outcome() != v1::FAILED) continue;
    ++failed;
    EXPECT_EQ(trajectory.key().member(), 2u);
    EXPECT_EQ(trajectory.key().attempt(), 2u);
    EXPECT_EQ(trajectory.failure().fault(), v1::Failure::TIMEOUT);
    EXPECT_EQ(trajectory.failure().code(), "step_timeout");
  }
  EXPECT_EQ(failed, 1);
  // The threads left behind go home before the task does.
  ASSERT_TRUE(theatre.Await([&] { return theatre.Gauge("rollout/environment_threads_abandoned") == 2; }));
  {
    MutexLock lock(&gate->mutex);
    gate->open = true;
    gate->changed.NotifyAll();
  }
  EXPECT_TRUE(theatre.Await([&] { return theatre.Gauge("rollout/environment_threads_abandoned") == 0; }));
  theatre.queue.SetRunComplete();
  EXPECT_TRUE(theatre.Join().ok());
}

TEST(WorkerTest, EveryFailpointIsOnTheWay) {
  const std::vector<std::string> names = {"rollout_idle", "rollout_generating", "rollout_before_push",
                                          "rollout_after_push", "rollout_receiving_weights"};
  std::string specification;
  for (const std::string& name : names) specification += (specification.empty() ? "" : ",") + name + "=delay:1";
  const std::vector<int> before = [&] {
    std::vector<int> hits;
    for (const std::string& name : names) hits.push_back(FailpointHits(name));
    return hits;
  }();
  ASSERT_TRUE(FailpointArm(specification).ok());
  {
    Theatre theatre;
    theatre.Deliver(1);
    theatre.Start();
    EXPECT_TRUE(theatre.Await([&] { return FailpointHits("rollout_idle") > before[0]; }));
    theatre.queue.AddTicket(MakeTicket(1, 2));
    EXPECT_TRUE(theatre.queue.WaitForPushes(2, kLong));
    theatre.queue.SetRunComplete();
    EXPECT_TRUE(theatre.Join().ok());
  }
  for (size_t i = 0; i < names.size(); ++i) EXPECT_GT(FailpointHits(names[i]), before[i]) << names[i];
  FailpointDisarmAll();
}

TEST(WorkerTest, WatchdogNamesWhatIsWaitedFor) {
  auto text = std::make_shared<std::ostringstream>();
  const std::shared_ptr<spdlog::logger> previous = spdlog::default_logger();
  auto sink = std::make_shared<spdlog::sinks::ostream_sink_mt>(*text);
  spdlog::set_default_logger(std::make_shared<spdlog::logger>("captured", sink));
  {
    Script script;
    script.latency = [](const EpisodeKey&, int) { return absl::Seconds(20); };
    RolloutOptions options;
    options.watchdog_period = absl::Milliseconds(150);
    Theatre theatre(script, options);
    theatre.Deliver(1);
    theatre.queue.AddTicket(MakeTicket(6, 1));
    theatre.Start();
    ASSERT_TRUE(theatre.Await(
        [&] { return theatre.queue.heartbeats().size() > 0 && theatre.Gauge("rollout/running_episodes") == 1; }));
    const absl::Duration begin = theatre.Waited();
    ASSERT_TRUE(theatre.Await([&] { return theatre.Waited() > begin + absl::Seconds(1); }));
    theatre.queue.SetRunComplete();
    EXPECT_TRUE(theatre.Join().ok());
  }
  spdlog::set_default_logger(previous);
  EXPECT_THAT(text->str(), HasSubstr("no progress for"));
  EXPECT_THAT(
      text->str(),
      HasSubstr(
          "in wait:env_step, waits for scripted: reset of ticket 6 member 0 (issue 1, attempt 1) (env_step, for"));
}

TEST(WorkerTest, ReportBeforeTheRunIsEmptyButWhole) {
  Theatre theatre;
  const v1::ProcessReport report = theatre.worker->Report();
  EXPECT_THAT(report.state_seconds(), Contains(Key("busy:start")));
  EXPECT_THAT(report.gauges(), ::testing::IsEmpty());
}

}  // namespace
}  // namespace leeway
