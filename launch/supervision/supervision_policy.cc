#include "launch/supervision/supervision_policy.h"

#include <string.h>

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "fmt/format.h"

namespace leeway {
namespace {

using Kind = SupervisionAction::Kind;

bool EndedWith(const ChildExit& exit, std::initializer_list<ExitCode> codes) {
  return exit.signal == 0 &&
         std::find(codes.begin(), codes.end(), static_cast<ExitCode>(exit.exit_code)) != codes.end();
}

}  // namespace

bool SupervisionPolicy::IsHopeless(int process, const ChildExit& exit) const {
  if (EndedWith(exit, {ExitCode::kConfiguration, ExitCode::kDataRefused})) return true;
  return EndedWith(exit, {ExitCode::kEnvironment}) && states_[process].total_restarts == 0;
}

std::string ChildExit::ToString() const {
  if (signal != 0) return fmt::format("killed by signal {} ({})", signal, strsignal(signal));
  return fmt::format("exit code {}", Describe(static_cast<ExitCode>(exit_code)));
}

SupervisionPolicy::SupervisionPolicy(SupervisionOptions options, std::vector<Process> processes)
    : options_(options), processes_(std::move(processes)), states_(processes_.size()) {}

std::vector<SupervisionAction> SupervisionPolicy::Start() {
  std::vector<SupervisionAction> actions;
  for (size_t i = 0; i < processes_.size(); ++i) {
    states_[i].is_running = true;
    actions.push_back({Kind::kStart, static_cast<int>(i)});
  }
  return actions;
}

std::vector<SupervisionAction> SupervisionPolicy::OnExit(int process, const ChildExit& exit, MonotonicTime now) {
  std::vector<SupervisionAction> actions;
  State& state = states_[process];
  const Process& info = processes_[process];
  state.is_running = false;
  if (IsStillNeeded(process) && !IsHopeless(process, exit)) {
    ScheduleRestart(process, exit, now, &actions);
    return actions;
  }
  switch (phase_) {
    case Phase::kFinishing:
      if (info.role == ProcessRole::kTrainer && !TrainerRuns()) {
        ForgetRestarts();
        TerminateRunning(std::nullopt, &actions);
      }
      break;
    case Phase::kDraining:
      // The trainer needs the queue for its last checkpoint, so the queue goes after it.
      if (info.role == ProcessRole::kTrainer) {
        OnDrainedTrainerExit(process, exit, now, &actions);
      } else if (info.role == ProcessRole::kQueue) {
        Finish(ExitCode::kOther, fmt::format("{}; the queue ended first ({})", reason_, exit.ToString()), now,
               &actions);
      }
      break;
    case Phase::kRunning:
      if (info.role == ProcessRole::kQueue) {
        Finish(IsHopeless(process, exit) ? static_cast<ExitCode>(exit.exit_code) : ExitCode::kPeerLost,
               fmt::format("the queue died ({})", exit.ToString()), now, &actions);
      } else if (info.role == ProcessRole::kTrainer) {
        OnTrainerExit(process, exit, now, &actions);
      } else if (exit.is_clean()) {
        state.has_ended_cleanly = true;
      } else if (IsHopeless(process, exit)) {
        Finish(static_cast<ExitCode>(exit.exit_code), fmt::format("{} ended with {}", info.name, exit.ToString()), now,
               &actions);
      } else {
        ScheduleRestart(process, exit, now, &actions);
      }
      break;
  }
  return actions;
}

void SupervisionPolicy::OnTrainerExit(int process, const ChildExit& exit, MonotonicTime now,
                                      std::vector<SupervisionAction>* actions) {
  if (exit.is_clean() && IsLeader(process)) {
    Finish(ExitCode::kDone, "training is complete", now, actions);
    return;
  }
  if (!exit.is_clean() && IsHopeless(process, exit)) {
    Finish(static_cast<ExitCode>(exit.exit_code),
           fmt::format("{} ended with {}", processes_[process].name, exit.ToString()), now, actions);
    return;
  }
  // A rank that was told that the run is over ends before rank 0 does.
  if (!exit.is_clean()) NoteRankFailure(process, exit, now);
  if (!rank_failure_.has_value() || TrainerRuns()) return;
  const RankFailure failure = *rank_failure_;
  rank_failure_.reset();
  kill_ranks_at_ = MonotonicTime::InfiniteFuture();
  ScheduleRestart(failure.process, failure.exit, now, actions);
  const State& first = states_[failure.process];
  for (size_t i = 0; i < states_.size(); ++i) {
    if (processes_[i].role != ProcessRole::kTrainer || !first.restart_at.has_value()) continue;
    states_[i].restart_at = first.restart_at;
    states_[i].restarts_in_row = first.restarts_in_row;
  }
}

void SupervisionPolicy::OnDrainedTrainerExit(int process, const ChildExit& exit, MonotonicTime now,
                                             std::vector<SupervisionAction>* actions) {
  if (!exit.is_clean()) NoteRankFailure(process, exit, now);
  if (IsLeader(process) && exit.is_clean()) {
    Finish(ExitCode::kOther, reason_, now, actions);
  } else if (rank_failure_.has_value() && (IsLeader(process) || !TrainerRuns())) {
    Finish(ExitCode::kOther,
           fmt::format("{}; {} ended with {}", reason_, processes_[rank_failure_->process].name,
                       rank_failure_->exit.ToString()),
           now, actions);
  }
}

void SupervisionPolicy::NoteRankFailure(int process, const ChildExit& exit, MonotonicTime now) {
  const auto lost_another = [](const ChildExit& e) { return EndedWith(e, {ExitCode::kPeerLost, ExitCode::kStalled}); };
  if (!rank_failure_.has_value()) {
    rank_failure_ = {process, exit};
    kill_ranks_at_ = now + options_.rank_grace;
  } else if (lost_another(rank_failure_->exit) && !lost_another(exit)) {
    rank_failure_ = {process, exit};
  }
}

bool SupervisionPolicy::IsLeader(int process) const {
  const auto first = std::find_if(processes_.begin(), processes_.end(),
                                  [](const Process& p) { return p.role == ProcessRole::kTrainer; });
  return first - processes_.begin() == process;
}

std::vector<SupervisionAction> SupervisionPolicy::OnSpawnFailure(int process, const std::string& reason,
                                                                 MonotonicTime now) {
  std::vector<SupervisionAction> actions;
  states_[process].is_running = false;
  if (phase_ == Phase::kRunning) {
    Finish(ExitCode::kEnvironment, fmt::format("{} could not be started: {}", processes_[process].name, reason), now,
           &actions);
  }
  return actions;
}

std::vector<SupervisionAction> SupervisionPolicy::OnInterrupt(MonotonicTime now) {
  std::vector<SupervisionAction> actions;
  if (phase_ != Phase::kRunning) return KillRunning();
  reason_ = "interrupted";
  exit_code_ = ExitCode::kOther;
  if (!TrainerRuns()) {
    Finish(ExitCode::kOther, reason_, now, &actions);
    return actions;
  }
  phase_ = Phase::kDraining;
  kill_at_ = now + options_.drain_timeout;
  ForgetRestarts();
  TerminateRunning(ProcessRole::kQueue, &actions);
  return actions;
}

std::vector<SupervisionAction> SupervisionPolicy::OnStall(const std::string& diagnosis, MonotonicTime now) {
  std::vector<SupervisionAction> actions;
  if (phase_ == Phase::kRunning) Finish(ExitCode::kStalled, diagnosis, now, &actions);
  return actions;
}

std::vector<SupervisionAction> SupervisionPolicy::OnGoal(const std::string& reason, MonotonicTime now) {
  std::vector<SupervisionAction> actions;
  if (phase_ == Phase::kRunning) Finish(ExitCode::kDone, reason, now, &actions);
  return actions;
}

std::vector<SupervisionAction> SupervisionPolicy::OnTime(MonotonicTime now) {
  if (now >= kill_at_) {
    if (phase_ == Phase::kDraining) {
      phase_ = Phase::kFinishing;
      reason_ += fmt::format("; not drained within {}", absl::FormatDuration(options_.drain_timeout));
    }
    kill_at_ = now + options_.finish_timeout;
    return KillRunning();
  }
  std::vector<SupervisionAction> actions;
  if (now >= kill_ranks_at_) {
    kill_ranks_at_ = MonotonicTime::InfiniteFuture();
    for (size_t i = 0; i < states_.size(); ++i) {
      if (processes_[i].role == ProcessRole::kTrainer && states_[i].is_running) {
        actions.push_back({Kind::kKill, static_cast<int>(i)});
      }
    }
  }
  for (size_t i = 0; i < states_.size(); ++i) {
    State& state = states_[i];
    if (!state.restart_at.has_value() || now < *state.restart_at) continue;
    state.restart_at.reset();
    state.is_running = true;
    ++state.total_restarts;
    actions.push_back({Kind::kStart, static_cast<int>(i)});
  }
  return actions;
}

void SupervisionPolicy::OnProgress() {
  for (State& state : states_) state.restarts_in_row = 0;
}

MonotonicTime SupervisionPolicy::next_time() const {
  MonotonicTime next = std::min(kill_at_, kill_ranks_at_);
  for (const State& state : states_) {
    if (state.restart_at.has_value()) next = std::min(next, *state.restart_at);
  }
  return next;
}

bool SupervisionPolicy::is_finished() const {
  if (phase_ == Phase::kRunning) return false;
  return std::none_of(states_.begin(), states_.end(), [](const State& s) { return s.is_running; });
}

void SupervisionPolicy::Finish(ExitCode code, std::string reason, MonotonicTime now,
                               std::vector<SupervisionAction>* actions) {
  phase_ = Phase::kFinishing;
  rank_failure_.reset();
  kill_ranks_at_ = MonotonicTime::InfiniteFuture();
  exit_code_ = code;
  reason_ = std::move(reason);
  kill_at_ = now + options_.finish_timeout;
  ForgetRestarts();
  // A trainer that still runs wants to checkpoint, and needs the queue for it: the queue goes after it.
  TerminateRunning(TrainerRuns() ? std::optional<ProcessRole>(ProcessRole::kQueue) : std::nullopt, actions);
}

bool SupervisionPolicy::IsStillNeeded(int process) const {
  return processes_[process].role == ProcessRole::kQueue && options_.is_queue_durable &&
         (phase_ == Phase::kRunning || TrainerRuns());
}

void SupervisionPolicy::ForgetRestarts() {
  for (size_t i = 0; i < states_.size(); ++i) {
    if (!IsStillNeeded(static_cast<int>(i))) states_[i].restart_at.reset();
  }
}

bool SupervisionPolicy::TrainerRuns() const {
  for (size_t i = 0; i < processes_.size(); ++i) {
    if (processes_[i].role == ProcessRole::kTrainer && states_[i].is_running) return true;
  }
  return false;
}

void SupervisionPolicy::ScheduleRestart(int process, const ChildExit& exit, MonotonicTime now,
                                        std::vector<SupervisionAction>* actions) {
  State& state = states_[process];
  const Process& info = processes_[process];
  if (state.restarts_in_row >= options_.max_restarts) {
    state.is_given_up = true;
    // Ranks are of no use without one another.
    if (info.role == ProcessRole::kTrainer || !HasHope(info.role)) {
      Finish(EndedWith(exit, {ExitCode::kEnvironment}) ? ExitCode::kEnvironment : ExitCode::kPeerLost,
             fmt::format("{} died {} times in a row without progress (last: {})", info.name, state.restarts_in_row + 1,
                         exit.ToString()),
             now, actions);
    }
    return;
  }
  absl::Duration pause = options_.backoff;
  for (int i = 0; i < state.restarts_in_row && pause < options_.max_backoff; ++i) pause *= 2;
  ++state.restarts_in_row;
  state.restart_at = now + std::min(pause, options_.max_backoff);
  if (info.role != ProcessRole::kTrainer) return;
  for (State& other : states_) {
    if (!other.has_ended_cleanly) continue;
    other.has_ended_cleanly = false;
    other.restart_at = state.restart_at;
  }
}

bool SupervisionPolicy::HasHope(ProcessRole role) const {
  for (size_t i = 0; i < processes_.size(); ++i) {
    if (processes_[i].role == role && !states_[i].is_given_up) return true;
  }
  return false;
}

void SupervisionPolicy::TerminateRunning(std::optional<ProcessRole> except, std::vector<SupervisionAction>* actions) {
  for (size_t i = 0; i < processes_.size(); ++i) {
    if (states_[i].is_running && processes_[i].role != except)
      actions->push_back({Kind::kTerminate, static_cast<int>(i)});
  }
}

std::vector<SupervisionAction> SupervisionPolicy::KillRunning() {
  std::vector<SupervisionAction> actions;
  for (size_t i = 0; i < processes_.size(); ++i) {
    if (states_[i].is_running) actions.push_back({Kind::kKill, static_cast<int>(i)});
  }
  return actions;
}

}  // namespace leeway
