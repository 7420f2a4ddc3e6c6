#include "rollout/worker.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/cpu_time.h"
#include "base/failpoint.h"
#include "base/logging.h"
#include "base/status_macros.h"
#include "rollout/worker_state.h"

namespace leeway {
namespace {

constexpr absl::Duration kRegisterTimeout = absl::Seconds(2);
// How long pushed trajectories may still be answered at the end.
constexpr absl::Duration kFlush = absl::Seconds(5);
// The loop looks again after so long at the latest, whatever it waits for.
constexpr absl::Duration kIdle = absl::Milliseconds(100);
// How often the snapshot that the heartbeat reads is renewed while the loop is busy.
constexpr absl::Duration kPublish = absl::Milliseconds(50);

bool IsPeerTrouble(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
}

}  // namespace

void RolloutWorker::State::Push(v1::Trajectory trajectory) {
  internal::PushAnswered answered;
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

absl::Status RolloutWorker::State::AwaitAbandonedLoad() {
  const MonotonicTime begin = dependencies.clock->Now();
  while (dependencies.weights->has_abandoned_load()) {
    if (stop_requested.load()) return absl::CancelledError("stopped while registering");
    const absl::Duration waited = dependencies.clock->Now() - begin;
    if (waited >= options.abandoned_load_timeout) {
      return absl::UnavailableError(
          absl::StrCat("the loader has not come back from a load of weights that was given up ",
                       absl::FormatDuration(absl::Trunc(waited, absl::Milliseconds(1))),
                       " ago: this process can receive no weights any more"));
    }
    last_round_ns = absl::ToInt64Nanoseconds(dependencies.clock->Now().since_origin);
    mailbox->bell.Wait(absl::Milliseconds(20));
  }
  return absl::OkStatus();
}

absl::Status RolloutWorker::State::RegisterAgain() {
  state_clock.Enter("wait:registering");
  loop.DropEverything();
  {
    MutexLock lock(&mutex);
    wanted_members = 0;
    tickets.clear();
    waits_for = "registration with the queue";
  }
  // A new identity that can not load yet would be fenced in the next publish, after everybody has waited for it.
  LEEWAY_RETURN_IF_ERROR(AwaitAbandonedLoad());
  internal::RetryPause pause;
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
    mailbox->bell.Wait(pause.Next());
  }
}

absl::Status RolloutWorker::State::HandleInbox(bool* fenced) {
  internal::Inbox inbox;
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
  for (internal::PushAnswered& answered : inbox.answers) {
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
  for (const auto& [asked_in, holding, response] : inbox.tickets) {
    acquire_is_over = true;
    if (asked_in != life) continue;
    LEEWAY_RETURN_IF_ERROR(judge(response.status(), "acquiring tickets"));
    if (!response.ok()) continue;
    loop.AddTickets(*response, {holding.lineage(), holding.version()});
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
  const int wanted = loop.wanted_members();
  const bool may_wait = !loop.may_have_evaluations();
  const WeightsId weights = loop.weights();
  MutexLock lock(&mutex);
  const bool is_swapped = holds.lineage() != weights.lineage || holds.version() != weights.version;
  holds.set_lineage(weights.lineage);
  holds.set_version(weights.version);
  // Without free slots no acquire would say so.
  const bool is_news = wanted == 0 && is_swapped;
  if (is_news) must_say_what_it_holds = true;
  if (!is_news && wanted_members == wanted && acquire_may_wait == may_wait && !acquire_is_over) return;
  wanted_members = wanted;
  acquire_may_wait = may_wait;
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
