#include "rollout/worker.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/cpu_time.h"
#include "base/failpoint.h"
#include "base/logging.h"
#include "base/mutex.h"
#include "base/state_clock.h"
#include "base/status_macros.h"
#include "model/transformer.h"
#include "rollout/doorbell.h"
#include "rollout/environment_executor.h"
#include "rollout/worker_loop.h"

namespace leeway {
namespace {

// Long polls and timed waits are short, so that every thread sees a stop soon.
constexpr absl::Duration kPoll = absl::Seconds(1);
constexpr absl::Duration kRegisterTimeout = absl::Seconds(2);
// How long pushed trajectories may still be answered at the end.
constexpr absl::Duration kFlush = absl::Seconds(5);
// The loop looks again after so long at the latest, whatever it waits for.
constexpr absl::Duration kIdle = absl::Milliseconds(100);
// How often the snapshot that the heartbeat reads is renewed while the loop is busy.
constexpr absl::Duration kPublish = absl::Milliseconds(50);

// Waits between failed calls: 50 ms doubling to 1 s.
class Backoff {
 public:
  absl::Duration Next() { return std::exchange(next_, std::min(next_ * 2, absl::Seconds(1))); }
  void Reset() { next_ = absl::Milliseconds(50); }

 private:
  absl::Duration next_ = absl::Milliseconds(50);
};

struct PushAnswered {
  uint64_t life = 0;
  v1::EpisodeKey key;
  bool evaluation = false;
  absl::StatusOr<v1::PushAnswer> answer;
};

struct HeartbeatAnswered {
  uint64_t life = 0;
  MonotonicTime sent;
  absl::StatusOr<v1::HeartbeatResponse> response;
};

// What other threads told the loop since it last looked. `life` counts registrations: news of an older life is thrown
// away.
struct Inbox {
  std::vector<PushAnswered> answers;
  std::vector<std::pair<uint64_t, absl::StatusOr<v1::AcquireTicketsResponse>>> tickets;
  std::vector<HeartbeatAnswered> heartbeats;
};

// Shared with the callbacks of pushes, which the client may call after the worker is gone.
struct Mailbox {
  Doorbell bell;
  Mutex mutex;
  Inbox inbox LEEWAY_GUARDED_BY(mutex);
};

bool IsPeerTrouble(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
}

}  // namespace

struct RolloutWorker::State {
  State(const RolloutOptions& options, const Dependencies& dependencies)
      : options(options),
        dependencies(dependencies),
        born(dependencies.clock->Now()),
        state_clock(dependencies.clock),
        parallel(options.compute_threads),
        transformer(options.shape, &parallel),
        executor(
            options.environment_threads, [mailbox = mailbox.get()] { mailbox->bell.Ring(); }, dependencies.clock),
        loop(options, LoopDependencies()),
        last_contact(dependencies.clock->Now()),
        last_progress(dependencies.clock->Now()) {}

  WorkerLoop::Dependencies LoopDependencies() {
    WorkerLoop::Dependencies result;
    result.task = dependencies.task;
    result.tokenizer = dependencies.tokenizer;
    result.weights = dependencies.weights;
    result.executor = &executor;
    result.transformer = &transformer;
    result.parallel = &parallel;
    result.state_clock = &state_clock;
    result.clock = dependencies.clock;
    result.push = [this](v1::Trajectory trajectory) { Push(std::move(trajectory)); };
    return result;
  }

  // ---- the driving loop
  absl::Status Run();
  absl::Status RegisterAgain();
  absl::Status Loop();
  // Not OK ends the run; `*fenced` asks for a new registration.
  absl::Status HandleInbox(bool* fenced);
  void Push(v1::Trajectory trajectory);
  void Publish(MonotonicTime now, bool is_idle);
  void OfferSlots();
  void Flush();
  void JoinThreads();

  // ---- the threads around it
  void AcquireTickets();
  void SendHeartbeats();
  void WatchWeights();
  void NoteCommitted(const v1::WeightsVersion& weights, const std::string& digest) {
    if (weights.version() != 0) dependencies.weights->NoteCommitted(weights, digest);
  }
  void Watch(MonotonicTime now, MonotonicTime* last_line);
  v1::ProcessReport Report();
  // Sleeps unless stopping. True while not stopping.
  bool Sleep(absl::Duration time);

  const RolloutOptions options;
  const Dependencies dependencies;
  const MonotonicTime born;
  StateClock state_clock;
  // Outlives the executor's threads and the callbacks that ring its bell.
  std::shared_ptr<Mailbox> mailbox = std::make_shared<Mailbox>();
  ParallelFor parallel;
  Transformer<float> transformer;
  ThreadedEnvironmentExecutor executor;
  WorkerLoop loop;

  // Of the driving loop alone.
  uint64_t life = 0;  // registrations so far
  MonotonicTime last_contact;
  MonotonicTime published;
  MonotonicTime registered;
  bool has_progressed = false;   // since `published`
  bool acquire_is_over = false;  // the answer of the acquire thread was handled since the last OfferSlots
  bool is_draining = false;
  bool is_complete = false;
  int64_t weights_taken_told = 0;

  std::atomic<bool> stop_requested = false;
  std::vector<std::thread> threads;

  mutable Mutex mutex;
  CondVar changed;
  bool stopping LEEWAY_GUARDED_BY(mutex) = false;
  // Written by the loop, read by the threads around it.
  uint64_t current_life LEEWAY_GUARDED_BY(mutex) = 0;
  v1::WorkerIdentity identity LEEWAY_GUARDED_BY(mutex);
  absl::Duration heartbeat_interval LEEWAY_GUARDED_BY(mutex) = absl::Seconds(1);
  absl::Duration lease LEEWAY_GUARDED_BY(mutex) = absl::Seconds(10);
  int wanted_members LEEWAY_GUARDED_BY(mutex) = 0;  // 0: do not acquire now
  // An acquire is under way, or its answer has not been taken into account in wanted_members yet.
  bool is_acquiring LEEWAY_GUARDED_BY(mutex) = false;
  v1::WeightsVersion holds LEEWAY_GUARDED_BY(mutex);
  std::vector<uint64_t> tickets LEEWAY_GUARDED_BY(mutex);
  std::map<std::string, double> gauges LEEWAY_GUARDED_BY(mutex);
  std::string waits_for LEEWAY_GUARDED_BY(mutex) = "registration";
  int64_t weights_taken LEEWAY_GUARDED_BY(mutex) = 0;
  MonotonicTime last_progress LEEWAY_GUARDED_BY(mutex);
  // When the loop last came round, in nanoseconds of the clock: without a lock, it is written at every token.
  std::atomic<int64_t> last_round_ns = 0;
};

bool RolloutWorker::State::Sleep(absl::Duration time) {
  const Deadline deadline = Deadline::After(time);
  MutexLock lock(&mutex);
  while (!stopping && !deadline.HasPassed()) changed.WaitUntil(&mutex, deadline);
  return !stopping;
}

void RolloutWorker::State::Push(v1::Trajectory trajectory) {
  PushAnswered answered;
  answered.life = life;
  answered.key = trajectory.key();
  answered.evaluation = trajectory.evaluation();
  dependencies.queue->Push(std::move(trajectory), [answered = std::move(answered),
                                                   mailbox = mailbox](absl::StatusOr<v1::PushAnswer> answer) mutable {
    answered.answer = std::move(answer);
    {
      MutexLock lock(&mailbox->mutex);
      mailbox->inbox.answers.push_back(std::move(answered));
    }
    mailbox->bell.Ring();
  });
}

// ---- the threads around the loop ------------------------------------------------------------------------------------

void RolloutWorker::State::AcquireTickets() {
  SetThreadClass("rpc");
  Backoff backoff;
  while (true) {
    uint64_t asked_in = 0;
    uint32_t members = 0;
    v1::WeightsVersion weights;
    {
      MutexLock lock(&mutex);
      while (!stopping && (is_acquiring || wanted_members == 0)) changed.WaitFor(&mutex, kPoll);
      if (stopping) return;
      asked_in = current_life;
      members = static_cast<uint32_t>(wanted_members);
      is_acquiring = true;
      weights = holds;
    }
    absl::StatusOr<v1::AcquireTicketsResponse> response = dependencies.queue->AcquireTickets(members, weights, kPoll);
    const bool is_ok = response.ok();
    if (is_ok) NoteCommitted(response->committed(), response->committed_digest());
    if (is_ok) {
      backoff.Reset();
    } else if (!Sleep(backoff.Next())) {
      return;
    }
    {
      MutexLock lock(&mailbox->mutex);
      mailbox->inbox.tickets.emplace_back(asked_in, std::move(response));
    }
    mailbox->bell.Ring();
  }
}

void RolloutWorker::State::Watch(MonotonicTime now, MonotonicTime* last_line) {
  std::string reason;
  absl::Duration idle;
  {
    MutexLock lock(&mutex);
    idle = now - last_progress;
    reason = waits_for;
  }
  if (idle < options.watchdog_period || now - *last_line < options.watchdog_period) return;
  *last_line = now;
  LEEWAY_LOG_WARNING("no progress for {}: in {}, waits for {}",
                     absl::FormatDuration(absl::Trunc(idle, absl::Milliseconds(1))), state_clock.current(), reason);
}

void RolloutWorker::State::SendHeartbeats() {
  SetThreadClass("rpc");
  MonotonicTime last_line = born;
  while (true) {
    v1::HeartbeatRequest request;
    uint64_t sent_in = 0;
    absl::Duration interval;
    absl::Duration timeout;
    {
      MutexLock lock(&mutex);
      if (stopping) return;
      sent_in = current_life;
      interval = heartbeat_interval;
      timeout = std::max(absl::Milliseconds(100), lease / 2);
      *request.mutable_identity() = identity;
      *request.mutable_holds() = holds;
      request.mutable_tickets()->Add(tickets.begin(), tickets.end());
    }
    const MonotonicTime now = dependencies.clock->Now();
    Watch(now, &last_line);
    // The heartbeat speaks for the loop: when that is stuck, the queue shall give its tickets to others.
    const absl::Duration since_round = now - MonotonicTime{absl::Nanoseconds(last_round_ns.load())};
    if (since_round < 2 * options.watchdog_period) {
      *request.mutable_report() = Report();
      absl::StatusOr<v1::HeartbeatResponse> response = dependencies.queue->Heartbeat(request, timeout);
      if (response.ok()) NoteCommitted(response->committed(), response->committed_digest());
      {
        MutexLock lock(&mailbox->mutex);
        mailbox->inbox.heartbeats.push_back({sent_in, now, std::move(response)});
      }
      mailbox->bell.Ring();
    }
    if (!Sleep(interval)) return;
  }
}

void RolloutWorker::State::WatchWeights() {
  SetThreadClass("rpc");
  while (true) {
    int64_t taken = 0;
    {
      MutexLock lock(&mutex);
      if (stopping) return;
      taken = weights_taken;
    }
    if (!dependencies.weights->WaitForNewer(absl::Milliseconds(250))) {
      // Also when the subscriber was shut down and no longer waits.
      if (!Sleep(absl::Milliseconds(1))) return;
      continue;
    }
    mailbox->bell.Ring();
    MutexLock lock(&mutex);
    const Deadline deadline = Deadline::After(kPoll);
    while (!stopping && weights_taken == taken && !deadline.HasPassed()) changed.WaitUntil(&mutex, deadline);
  }
}

v1::ProcessReport RolloutWorker::State::Report() {
  v1::ProcessReport report;
  for (const auto& [name, time] : state_clock.Totals())
    (*report.mutable_state_seconds())[name] = absl::ToDoubleSeconds(time);
  for (const auto& [name, seconds] : CpuSecondsByThreadClass()) (*report.mutable_cpu_seconds())[name] = seconds;
  report.set_wall_seconds(absl::ToDoubleSeconds(dependencies.clock->Now() - born));
  MutexLock lock(&mutex);
  for (const auto& [name, value] : gauges) {
    (*report.mutable_gauges())[name] = value;
    if (dependencies.metrics != nullptr) dependencies.metrics->SetGauge(name, value);
  }
  return report;
}

// ---- the driving loop -----------------------------------------------------------------------------------------------

absl::Status RolloutWorker::State::RegisterAgain() {
  state_clock.Enter("wait:registering");
  loop.DropEverything();
  {
    MutexLock lock(&mutex);
    wanted_members = 0;
    tickets.clear();
    waits_for = "registration with the queue";
  }
  Backoff backoff;
  const MonotonicTime begin = dependencies.clock->Now();
  // Two parties that fence each other's identities must not spin.
  if (life > 0 && begin - registered < absl::Seconds(1)) mailbox->bell.Wait(absl::Milliseconds(100));
  while (true) {
    absl::StatusOr<v1::RegisterResponse> response =
        dependencies.queue->Register(options.name, options.run_fingerprint, kRegisterTimeout);
    const MonotonicTime now = dependencies.clock->Now();
    last_round_ns = absl::ToInt64Nanoseconds(now.since_origin);
    if (response.ok()) {
      last_contact = now;
      registered = now;
      ++life;
      {
        MutexLock lock(&mutex);
        current_life = life;
        identity = response->identity();
        heartbeat_interval =
            absl::Milliseconds(std::max<int64_t>(1, static_cast<int64_t>(response->heartbeat_interval_ms())));
        lease = absl::Milliseconds(static_cast<int64_t>(response->lease_ms()));
      }
      dependencies.weights->SetIdentity(response->identity());
      LEEWAY_LOG_INFO("registered as {} (producer {}, epoch {})", options.name, response->identity().producer_id(),
                      response->identity().epoch());
      return absl::OkStatus();
    }
    if (!IsPeerTrouble(response.status()) && !absl::IsAborted(response.status())) return response.status();
    if (stop_requested.load()) return absl::CancelledError("stopped while registering");
    if (now - begin >= options.queue_timeout) {
      return absl::UnavailableError(absl::StrCat("queue lost: no registration within ",
                                                 absl::FormatDuration(options.queue_timeout),
                                                 "; last: ", response.status().ToString()));
    }
    mailbox->bell.Wait(backoff.Next());
  }
}

absl::Status RolloutWorker::State::HandleInbox(bool* fenced) {
  Inbox inbox;
  {
    MutexLock lock(&mailbox->mutex);
    std::swap(inbox, mailbox->inbox);
  }
  const MonotonicTime now = dependencies.clock->Now();
  // Whether a call shows the queue alive; errors other than trouble on the way end the run.
  const auto judge = [&](const absl::Status& status, const char* call) {
    if (status.ok()) {
      last_contact = now;
    } else if (absl::IsAborted(status)) {
      if (!*fenced) LEEWAY_LOG_WARNING("{}: this identity is fenced: {}", call, std::string(status.message()));
      *fenced = true;
    } else if (!IsPeerTrouble(status)) {
      return absl::Status(status.code(), absl::StrCat(call, ": ", std::string(status.message())));
    }
    return absl::OkStatus();
  };
  for (PushAnswered& answered : inbox.answers) {
    if (answered.life != life) continue;
    if (answered.answer.ok()) {
      last_contact = now;
      loop.OnPushAnswered(answered.key, answered.evaluation, *answered.answer);
    } else {
      // Whether the queue has it is unknown: a new identity starts from what the queue says is missing.
      if (!*fenced)
        LEEWAY_LOG_WARNING("a push was not answered ({}): registering again", answered.answer.status().ToString());
      *fenced = true;
    }
  }
  for (const auto& [sent_in, sent, response] : inbox.heartbeats) {
    if (sent_in != life) continue;
    LEEWAY_RETURN_IF_ERROR(judge(response.status(), "heartbeat"));
    if (!response.ok()) continue;
    loop.AbandonTickets(absl::MakeConstSpan(response->abandon().data(), static_cast<size_t>(response->abandon_size())),
                        sent);
    is_draining = is_draining || response->draining();
    is_complete = is_complete || response->run_complete();
  }
  for (auto& [asked_in, response] : inbox.tickets) {
    acquire_is_over = true;
    if (asked_in != life) continue;
    LEEWAY_RETURN_IF_ERROR(judge(response.status(), "acquiring tickets"));
    if (!response.ok()) continue;
    loop.AddTickets(*response);
    is_draining = is_draining || response->cause() == "draining";
    is_complete = is_complete || response->run_complete();
  }
  if (!*fenced && dependencies.weights->is_fenced()) {
    LEEWAY_LOG_WARNING("the publisher fenced this identity: registering again");
    *fenced = true;
  }
  return absl::OkStatus();
}

void RolloutWorker::State::OfferSlots() {
  const int free = loop.free_members();
  const WeightsId weights = loop.weights();
  MutexLock lock(&mutex);
  holds.set_lineage(weights.lineage);
  holds.set_version(weights.version);
  if (wanted_members == free && !acquire_is_over) return;
  wanted_members = free;
  if (std::exchange(acquire_is_over, false)) is_acquiring = false;
  changed.NotifyAll();
}

void RolloutWorker::State::Publish(MonotonicTime now, bool is_idle) {
  std::string waiting = "nothing: it is busy";
  if (is_idle) {
    const WorkerLoop::Wait wait = loop.wait();
    waiting = absl::StrCat(wait.detail, " (", wait.cause, ", for ",
                           absl::FormatDuration(absl::Trunc(now - wait.since, absl::Milliseconds(1))), ")");
  }
  std::vector<uint64_t> ids = loop.training_tickets();
  std::map<std::string, double> values = loop.Gauges();
  published = now;
  MutexLock lock(&mutex);
  tickets = std::move(ids);
  gauges = std::move(values);
  waits_for = std::move(waiting);
  if (std::exchange(has_progressed, false)) last_progress = now;
}

absl::Status RolloutWorker::State::Loop() {
  while (true) {
    const MonotonicTime now = dependencies.clock->Now();
    last_round_ns = absl::ToInt64Nanoseconds(now.since_origin);
    bool fenced = false;
    LEEWAY_RETURN_IF_ERROR(HandleInbox(&fenced));
    if (stop_requested.load() || is_draining || is_complete) return absl::OkStatus();
    if (now - last_contact > options.queue_timeout) {
      return absl::UnavailableError(
          absl::StrCat("queue lost: it has answered nothing for ",
                       absl::FormatDuration(absl::Trunc(now - last_contact, absl::Milliseconds(1)))));
    }
    if (fenced) {
      LEEWAY_RETURN_IF_ERROR(RegisterAgain());
      continue;
    }
    LEEWAY_ASSIGN_OR_RETURN(const bool worked, loop.Iterate());
    if (loop.weights_taken() != weights_taken_told) {
      weights_taken_told = loop.weights_taken();
      MutexLock lock(&mutex);
      weights_taken = weights_taken_told;
      changed.NotifyAll();
    }
    OfferSlots();
    if (worked) {
      has_progressed = true;
      if (now - published > kPublish) Publish(now, /*is_idle=*/false);
      continue;
    }
    const WorkerLoop::Wait wait = loop.wait();
    if (loop.training_tickets().empty()) LEEWAY_FAILPOINT("rollout_idle");
    state_clock.Enter(absl::StrCat("wait:", wait.cause));
    if (now - published > kPublish) Publish(now, /*is_idle=*/true);
    mailbox->bell.Wait(std::min(kIdle, wait.wake_at - dependencies.clock->Now()));
  }
}

void RolloutWorker::State::Flush() {
  state_clock.Enter("wait:queue_full");
  const Deadline deadline = Deadline::After(kFlush, dependencies.clock);
  bool fenced = false;
  while (loop.unanswered_pushes() > 0 && !deadline.HasPassed()) {
    mailbox->bell.Wait(absl::Milliseconds(20));
    if (!HandleInbox(&fenced).ok() || fenced) return;
  }
}

void RolloutWorker::State::JoinThreads() {
  {
    MutexLock lock(&mutex);
    stopping = true;
    changed.NotifyAll();
  }
  for (std::thread& thread : threads) thread.join();
  threads.clear();
}

absl::Status RolloutWorker::State::Run() {
  SetThreadClass("compute");
  absl::Status status = RegisterAgain();
  if (status.ok()) {
    threads.emplace_back([this] { AcquireTickets(); });
    threads.emplace_back([this] { SendHeartbeats(); });
    threads.emplace_back([this] { WatchWeights(); });
    status = Loop();
    if (status.ok()) Flush();
    LEEWAY_LOG_INFO("ending: {}", !status.ok()            ? status.ToString()
                                  : stop_requested.load() ? "stopped"
                                  : is_complete           ? "run complete"
                                                          : "drained");
  }
  JoinThreads();
  loop.DropEverything();
  if (absl::IsCancelled(status) && stop_requested.load()) return absl::OkStatus();
  return status;
}

RolloutWorker::RolloutWorker(const RolloutOptions& options, const Dependencies& dependencies)
    : state_(std::make_unique<State>(options, dependencies)) {}
RolloutWorker::~RolloutWorker() { state_->JoinThreads(); }
absl::Status RolloutWorker::Run() { return state_->Run(); }
void RolloutWorker::Stop() {
  state_->stop_requested = true;
  state_->mailbox->bell.Ring();
}
v1::ProcessReport RolloutWorker::Report() const { return state_->Report(); }

}  // namespace leeway
