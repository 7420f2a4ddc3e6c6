#ifndef LEEWAY_LAUNCH_SUPERVISION_SUPERVISION_POLICY_H_
#define LEEWAY_LAUNCH_SUPERVISION_SUPERVISION_POLICY_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/clock.h"
#include "launch/run/exit_code.h"

namespace leeway {

enum class ProcessRole { kQueue, kTrainer, kRollout };

// How a child ended: by itself with `exit_code`, or by a signal (then `signal` != 0).
struct ChildExit {
  int exit_code = 0;
  int signal = 0;

  bool is_clean() const { return signal == 0 && exit_code == 0; }
  // "exit code 2 (configuration)", "killed by signal 9 (Killed)".
  std::string ToString() const;
};

struct SupervisionOptions {
  // Restarts in a row without progress in between, per process.
  int max_restarts = 5;
  // Before the first restart in a row; doubled for each further one, up to max_backoff.
  absl::Duration backoff = absl::Milliseconds(200);
  absl::Duration max_backoff = absl::Seconds(10);
  // From an interrupt until everything is killed.
  absl::Duration drain_timeout = absl::Seconds(30);
  // From the end of the training (or a fatal error) until what still runs is killed.
  absl::Duration finish_timeout = absl::Seconds(10);
  // The queue goes on from its store when it is started again.
  bool is_queue_durable = false;
  // From the death of a trainer rank until the others, who should notice by themselves and say so, are killed. They do
  // at their next operation, at the latest when the one that they are in breaks; those that hang do not.
  absl::Duration rank_grace = absl::Seconds(5);
};

// What the driver has to do next.
struct SupervisionAction {
  enum class Kind { kStart, kTerminate, kKill };
  Kind kind = Kind::kStart;
  int process = 0;  // index into the names given to the policy
};

// Decides when the processes of a job are started, restarted and stopped, and how the job ends. A plain state machine:
// no processes, threads or clock of its own; the driver (supervisor.h) reports what happened and does what it is told.
//
//   running ──trainer done──────────────► finishing ──all gone──► finished
//      │  └──queue died for good, cap reached, configuration error, stall──► finishing
//      └──interrupt──► draining ──trainer gone──► finishing          second interrupt or time-out: everything is killed
//
// Rules: a rollout worker or the trainer that dies is started again after a back-off, unless its exit code says that
// another try can not help (2, 3, 6) or it has used up its restarts. A worker beyond its cap is given up; the job goes
// on while another lives. A worker that ends cleanly was told that the run is complete; a trainer that dies after that
// may have to train again, so the workers come back together with it. A queue with a durable store is started again
// too, whatever its exit code says but 2, 3 and 6, and the others wait for it; without one its death ends the job.
// The trainer's ranks live and die together: when one has died the others are given `rank_grace` to end, and all are
// started again at the same time, so that a restart has the same number for each of them. The first trainer in the list
// is rank 0: the training is complete when it ends cleanly.
class SupervisionPolicy {
 public:
  struct Process {
    std::string name;  // "queue-0", "trainer-0", "rollout-1"
    ProcessRole role = ProcessRole::kRollout;
  };
  SupervisionPolicy(SupervisionOptions options, std::vector<Process> processes);

  // Each returns what to do now, in order. `now` never goes backwards.
  std::vector<SupervisionAction> Start();
  std::vector<SupervisionAction> OnExit(int process, const ChildExit& exit, MonotonicTime now);
  // Could not even be started: like an exit with code 3.
  std::vector<SupervisionAction> OnSpawnFailure(int process, const std::string& reason, MonotonicTime now);
  std::vector<SupervisionAction> OnInterrupt(MonotonicTime now);
  // Nothing has progressed for too long; `diagnosis` names the culprit.
  std::vector<SupervisionAction> OnStall(const std::string& diagnosis, MonotonicTime now);
  // What the job was started for is reached before the trainer ends by itself (an evaluation).
  std::vector<SupervisionAction> OnGoal(const std::string& reason, MonotonicTime now);
  // Restarts and time-outs that are due.
  std::vector<SupervisionAction> OnTime(MonotonicTime now);
  // A step was committed: restarts "in a row" count from here.
  void OnProgress();

  // When OnTime has something to do; infinite if never.
  MonotonicTime next_time() const;
  // Every process is gone and none will be started.
  bool is_finished() const;
  // Set once the job's fate is decided.
  ExitCode exit_code() const { return exit_code_; }
  // One sentence: "training is complete", "the queue died (killed by signal 9 (Killed))", ...
  const std::string& reason() const { return reason_; }
  bool is_ending() const { return phase_ != Phase::kRunning; }
  bool is_draining() const { return phase_ == Phase::kDraining; }
  int restarts(int process) const { return states_[process].total_restarts; }
  bool is_running(int process) const { return states_[process].is_running; }
  const std::vector<Process>& processes() const { return processes_; }

 private:
  enum class Phase { kRunning, kDraining, kFinishing };
  struct State {
    bool is_running = false;
    bool is_given_up = false;
    bool has_ended_cleanly = false;
    int restarts_in_row = 0;
    int total_restarts = 0;
    std::optional<MonotonicTime> restart_at;
  };

  void Finish(ExitCode code, std::string reason, MonotonicTime now, std::vector<SupervisionAction>* actions);
  void OnTrainerExit(int process, const ChildExit& exit, MonotonicTime now, std::vector<SupervisionAction>* actions);
  void OnDrainedTrainerExit(int process, const ChildExit& exit, MonotonicTime now,
                            std::vector<SupervisionAction>* actions);
  // A rank that has not ended well, which the others do not survive.
  void NoteRankFailure(int process, const ChildExit& exit, MonotonicTime now);
  void ScheduleRestart(int process, const ChildExit& exit, MonotonicTime now, std::vector<SupervisionAction>* actions);
  void TerminateRunning(std::optional<ProcessRole> except, std::vector<SupervisionAction>* actions);
  std::vector<SupervisionAction> KillRunning();
  // Another try gives the same answer. What is wrong around a process (a full disk, an address in use) may pass if an
  // earlier life of it has met nothing of the kind.
  bool IsHopeless(int process, const ChildExit& exit) const;
  // Whether any rank of it runs.
  bool TrainerRuns() const;
  bool IsLeader(int process) const;
  // A durable queue, while the job runs or a trainer that ends still wants to write its checkpoint.
  bool IsStillNeeded(int process) const;
  // Nobody is started any more but who is still needed.
  void ForgetRestarts();
  bool HasHope(ProcessRole role) const;

  const SupervisionOptions options_;
  const std::vector<Process> processes_;
  std::vector<State> states_;
  Phase phase_ = Phase::kRunning;
  // The rank that failed, while others still run: the first that did, or the first whose failure is more than the loss
  // of another one. And when these are killed.
  struct RankFailure {
    int process = 0;
    ChildExit exit;
  };
  std::optional<RankFailure> rank_failure_;
  MonotonicTime kill_ranks_at_ = MonotonicTime::InfiniteFuture();
  // Draining and finishing: when patience ends.
  MonotonicTime kill_at_ = MonotonicTime::InfiniteFuture();
  ExitCode exit_code_ = ExitCode::kOther;
  std::string reason_;
};

}  // namespace leeway

#endif  // LEEWAY_LAUNCH_SUPERVISION_SUPERVISION_POLICY_H_
