#include "launch/supervision/fake_process_spawner.h"

#include <signal.h>

#include "base/status_macros.h"

namespace leeway {

absl::StatusOr<int> FakeProcessSpawner::Spawn(const ProcessCommand& command) {
  if (fails_to_spawn.count(command.log_path) > 0) return absl::NotFoundError("can not run " + command.executable);
  history.push_back("start " + command.log_path);
  running_[next_pid_] = command.log_path;
  return next_pid_++;
}

void FakeProcessSpawner::Signal(int pid, int signal) {
  const auto found = running_.find(pid);
  if (found == running_.end()) return;
  history.push_back("signal " + found->second + " " + std::to_string(signal));
  if (signal == SIGTERM && ignores_terminate.count(found->second) > 0) return;
  events_.push_back(ProcessExited{pid, signal == SIGKILL ? ChildExit{0, SIGKILL} : ChildExit{}, 1.0});
  running_.erase(found);
}

ProcessEvent FakeProcessSpawner::Wait(absl::Duration timeout) {
  if (events_.empty()) {
    const MonotonicTime until = clock_->Now() + timeout;
    if (!script_.empty() && MonotonicTime{script_.begin()->first} <= until) {
      if (clock_->Now().since_origin < script_.begin()->first)
        clock_->Advance(script_.begin()->first - clock_->Now().since_origin);
      const auto action = script_.begin()->second;
      script_.erase(script_.begin());
      action();
    } else {
      clock_->Advance(timeout);
    }
  }
  if (events_.empty()) return NothingHappened{};
  ProcessEvent event = events_.front();
  events_.pop_front();
  return event;
}

void FakeProcessSpawner::End(const std::string& log_path, ChildExit exit) {
  int pid = 0;
  for (const auto& [candidate, path] : running_) {
    if (path == log_path) pid = candidate;
  }
  LEEWAY_CHECK(pid != 0) << log_path << " does not run";
  running_.erase(pid);
  events_.push_back(ProcessExited{pid, exit, 1.0});
}

}  // namespace leeway
