#ifndef LEEWAY_LAUNCH_SUPERVISION_SUPERVISOR_H_
#define LEEWAY_LAUNCH_SUPERVISION_SUPERVISOR_H_

#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/clock.h"
#include "launch/supervision/process_spawner.h"
#include "launch/supervision/supervision_policy.h"

namespace leeway {

// Hears what the supervisor does, on the supervisor's thread.
class SupervisionObserver {
 public:
  virtual ~SupervisionObserver() = default;
  // A process was started, ended, is started again, ...: one line for people. `log_path` is set if a log may say more.
  virtual void OnEvent(const std::string& line, const std::string& log_path) = 0;

  struct Pulse {
    bool made_progress = false;
    // Set when nothing has progressed for too long: who waits, for whom, how long.
    std::string stall_diagnosis;
    // Set when the job has done what it was started for, although its trainer still runs.
    std::string goal;
  };
  // Called about five times a second. Must not block for long: a death is noticed in between.
  virtual Pulse OnPulse(const SupervisionPolicy& policy) = 0;
};

// Runs the processes of a job to its end: does what SupervisionPolicy says through a ProcessSpawner.
class Supervisor {
 public:
  struct Child {
    SupervisionPolicy::Process process;
    ProcessCommand command;
    // [0] is added to the command's environment at the first start, [1] at the first restart, and so on.
    std::vector<std::map<std::string, std::string>> environment_of_start;
  };
  // All pointers outlive the object.
  Supervisor(SupervisionOptions options, std::vector<Child> children, ProcessSpawner* spawner,
             SupervisionObserver* observer, const Clock* clock = RealClock());

  // Blocks until the job has ended and every process is gone.
  ExitCode Run();

  const SupervisionPolicy& policy() const { return policy_; }
  // CPU seconds of ended processes by name, all restarts together.
  const std::map<std::string, double>& cpu_seconds() const { return cpu_seconds_; }

 private:
  void Do(std::vector<SupervisionAction> actions);
  void StartProcess(int process);
  void OnExited(const ProcessExited& exited);

  const std::vector<Child> children_;
  ProcessSpawner* const spawner_;
  SupervisionObserver* const observer_;
  const Clock* const clock_;
  SupervisionPolicy policy_;
  std::map<int, int> process_of_pid_;
  std::map<std::string, double> cpu_seconds_;
};

}  // namespace leeway

#endif  // LEEWAY_LAUNCH_SUPERVISION_SUPERVISOR_H_
