#include "absl/strings/str_cat.h"
#include "base/cpu_time.h"
#include "base/logging.h"
#include "rollout/worker_state.h"

namespace leeway {

using internal::kWorkerPoll;
using internal::RetryPause;

bool RolloutWorker::State::Sleep(absl::Duration time) {
  const Deadline deadline = Deadline::After(time);
  MutexLock lock(&mutex);
  while (!stopping && !deadline.HasPassed()) changed.WaitUntil(&mutex, deadline);
  return !stopping;
}

void RolloutWorker::State::AcquireTickets() {
  SetThreadClass("rpc");
  RetryPause pause;
  while (true) {
    uint64_t asked_in = 0;
    uint32_t members = 0;
    v1::WeightsVersion weights;
    absl::Duration wait;
    {
      MutexLock lock(&mutex);
      while (!stopping && (is_acquiring || wanted_members == 0)) changed.WaitFor(&mutex, kWorkerPoll);
      if (stopping) return;
      asked_in = current_life;
      members = static_cast<uint32_t>(wanted_members);
      is_acquiring = true;
      weights = holds;
      wait = acquire_may_wait ? kWorkerPoll : absl::ZeroDuration();
    }
    absl::StatusOr<v1::AcquireTicketsResponse> response = dependencies.queue->AcquireTickets(members, weights, wait);
    const bool is_ok = response.ok();
    if (is_ok) NoteCommitted(response->committed(), response->committed_digest());
    if (is_ok) {
      pause.Reset();
    } else if (!Sleep(pause.Next())) {
      return;
    }
    {
      MutexLock lock(&mailbox->mutex);
      mailbox->inbox.tickets.push_back({asked_in, weights, std::move(response)});
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
    const Deadline deadline = Deadline::After(interval);
    MutexLock lock(&mutex);
    while (!stopping && !must_say_what_it_holds && !deadline.HasPassed()) changed.WaitUntil(&mutex, deadline);
    must_say_what_it_holds = false;
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
    const Deadline deadline = Deadline::After(kWorkerPoll);
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

}  // namespace leeway
