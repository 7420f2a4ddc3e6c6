#ifndef LEEWAY_LAUNCH_SUPERVISION_FAKE_PROCESS_SPAWNER_H_
#define LEEWAY_LAUNCH_SUPERVISION_FAKE_PROCESS_SPAWNER_H_

#include <deque>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/fake_clock.h"
#include "launch/supervision/process_spawner.h"

namespace leeway {

// Processes of a test: they live until the test or a signal ends them. Waiting moves the fake clock.
class FakeProcessSpawner : public ProcessSpawner {
 public:
  explicit FakeProcessSpawner(FakeClock* clock) : clock_(clock) {}

  absl::StatusOr<int> Spawn(const ProcessCommand& command) override;
  // SIGKILL ends a child at once; SIGTERM too, with exit code 0, unless its log path is in `ignores_terminate`.
  void Signal(int pid, int signal) override;
  // The next scripted event, or moves the clock by `timeout`.
  ProcessEvent Wait(absl::Duration timeout) override;

  // A child ends by itself (the newest one that logs to `log_path`).
  void End(const std::string& log_path, ChildExit exit);
  void Interrupt() { events_.push_back(InterruptReceived{2}); }
  // Runs once the clock has reached `at`, inside Wait.
  void At(MonotonicTime at, std::function<void()> action) { script_[at.since_origin] = std::move(action); }

  std::set<std::string> ignores_terminate;
  std::set<std::string> fails_to_spawn;
  std::vector<std::string> history;  // "start LOG", "signal LOG 15"

 private:
  FakeClock* clock_;
  int next_pid_ = 100;
  std::map<int, std::string> running_;  // pid -> log path
  std::deque<ProcessEvent> events_;
  std::map<absl::Duration, std::function<void()>> script_;
};

}  // namespace leeway

#endif  // LEEWAY_LAUNCH_SUPERVISION_FAKE_PROCESS_SPAWNER_H_
