#include "launch/supervision/supervisor.h"

#include <signal.h>

#include <algorithm>
#include <utility>

#include "base/status_macros.h"
#include "fmt/format.h"

namespace leeway {
namespace {

constexpr absl::Duration kPulse = absl::Milliseconds(200);

std::vector<SupervisionPolicy::Process> ProcessesOf(const std::vector<Supervisor::Child>& children) {
  std::vector<SupervisionPolicy::Process> processes;
  for (const Supervisor::Child& child : children) processes.push_back(child.process);
  return processes;
}

}  // namespace

Supervisor::Supervisor(SupervisionOptions options, std::vector<Child> children, ProcessSpawner* spawner,
                       SupervisionObserver* observer, const Clock* clock)
    : children_(std::move(children)),
      spawner_(spawner),
      observer_(observer),
      clock_(clock),
      policy_(options, ProcessesOf(children_)) {}

ExitCode Supervisor::Run() {
  Do(policy_.Start());
  MonotonicTime next_pulse = clock_->Now();
  while (!policy_.is_finished()) {
    const MonotonicTime now = clock_->Now();
    if (now >= next_pulse) {
      next_pulse = now + kPulse;
      const SupervisionObserver::Pulse pulse = observer_->OnPulse(policy_);
      if (pulse.made_progress) policy_.OnProgress();
      if (!pulse.goal.empty()) Do(policy_.OnGoal(pulse.goal, now));
      if (!pulse.stall_diagnosis.empty()) Do(policy_.OnStall(pulse.stall_diagnosis, now));
    }
    Do(policy_.OnTime(now));
    if (policy_.is_finished()) break;
    const MonotonicTime wake = std::min(next_pulse, policy_.next_time());
    const ProcessEvent event = spawner_->Wait(std::max(wake - clock_->Now(), absl::ZeroDuration()));
    if (const auto* exited = std::get_if<ProcessExited>(&event)) {
      OnExited(*exited);
    } else if (const auto* interrupt = std::get_if<InterruptReceived>(&event)) {
      observer_->OnEvent(
          policy_.is_draining() ? "interrupted again: killing all processes"
          : policy_.is_ending()
              ? fmt::format("signal {} while ending: killing all processes", interrupt->signal)
              : fmt::format("signal {}: draining and checkpointing (once more: kill)", interrupt->signal),
          "");
      Do(policy_.OnInterrupt(clock_->Now()));
    }
  }
  observer_->OnPulse(policy_);
  return policy_.exit_code();
}

void Supervisor::Do(std::vector<SupervisionAction> actions) {
  for (const SupervisionAction& action : actions) {
    if (action.kind == SupervisionAction::Kind::kStart) {
      StartProcess(action.process);
      continue;
    }
    const int signal = action.kind == SupervisionAction::Kind::kKill ? SIGKILL : SIGTERM;
    for (const auto& [pid, process] : process_of_pid_) {
      if (process == action.process) spawner_->Signal(pid, signal);
    }
  }
}

void Supervisor::StartProcess(int process) {
  const Child& child = children_[process];
  // The failed start of an earlier process may have decided the job's fate within the same list of actions.
  if (policy_.is_ending()) {
    Do(policy_.OnSpawnFailure(process, "the job is ending", clock_->Now()));
    return;
  }
  ProcessCommand command = child.command;
  // Ranks of one start find each other by its number, said as torchrun says it.
  if (command.environment.count("TORCHELASTIC_RUN_ID") > 0) {
    command.environment["TORCHELASTIC_RESTART_COUNT"] = std::to_string(policy_.restarts(process));
  }
  if (const size_t start = policy_.restarts(process); start < child.environment_of_start.size()) {
    const std::map<std::string, std::string>& added = child.environment_of_start[start];
    command.environment.insert(added.begin(), added.end());
  }
  const absl::StatusOr<int> pid = spawner_->Spawn(command);
  if (!pid.ok()) {
    observer_->OnEvent(
        fmt::format("{} could not be started: {}", child.process.name, std::string(pid.status().message())), "");
    Do(policy_.OnSpawnFailure(process, std::string(pid.status().message()), clock_->Now()));
    return;
  }
  process_of_pid_[*pid] = process;
  const int restarts = policy_.restarts(process);
  observer_->OnEvent(restarts == 0
                         ? fmt::format("started {} (pid {})", child.process.name, *pid)
                         : fmt::format("restarted {} (pid {}, restart {})", child.process.name, *pid, restarts),
                     "");
}

void Supervisor::OnExited(const ProcessExited& exited) {
  const auto found = process_of_pid_.find(exited.pid);
  if (found == process_of_pid_.end()) return;
  const int process = found->second;
  process_of_pid_.erase(found);
  const Child& child = children_[process];
  cpu_seconds_[child.process.name] += exited.cpu_seconds;
  if (!exited.exit.is_clean()) {
    observer_->OnEvent(fmt::format("{} ended: {}", child.process.name, exited.exit.ToString()), child.command.log_path);
  }
  Do(policy_.OnExit(process, exited.exit, clock_->Now()));
}

}  // namespace leeway
