#ifndef LEEWAY_ENVS_FAULT_ENVIRONMENT_H_
#define LEEWAY_ENVS_FAULT_ENVIRONMENT_H_

// Makes any task unreliable, for tests and fault runs: calls fail, never come back, or come back with garbage.

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/mutex.h"
#include "envs/environment.h"

namespace leeway {

// Probabilities per call (Reset or Step); their sum is at most 1.
struct FaultProbabilities {
  // The call returns UNAVAILABLE.
  double fail = 0.0;
  // The call returns, but reports a SimulatedLatency of kHangLatency: no thread is held.
  double hang = 0.0;
  // The call holds its thread until the gate is opened.
  double block = 0.0;
  // The call returns what no environment may: a reward that is not finite, text outside every character vocabulary, an
  // impossible answer length, or no legal answer at all.
  double garbage = 0.0;
};

// Far beyond any deadline.
constexpr absl::Duration kHangLatency = absl::Hours(24 * 365);

// Parses the configuration's `task.faults`: "faults(fail=0.01, hang=0.001, block=0, garbage=0.01)", every part
// optional. INVALID_ARGUMENT: says which part is wrong and shows the form that is expected.
absl::StatusOr<FaultProbabilities> ParseFaults(absl::string_view text);

// Where blocked calls wait. Thread-safe.
class HangGate {
 public:
  // Returns when Open was called, before or meanwhile.
  void Wait() LEEWAY_EXCLUDES(mutex_);
  // Lets all calls through, now and later.
  void Open() LEEWAY_EXCLUDES(mutex_);
  // Calls that wait right now.
  int waiting() const LEEWAY_EXCLUDES(mutex_);

 private:
  mutable Mutex mutex_;
  CondVar opened_;
  bool is_open_ LEEWAY_GUARDED_BY(mutex_) = false;
  int waiting_ LEEWAY_GUARDED_BY(mutex_) = 0;
};

// `task` with faults: which call suffers what is a pure function of (run seed, ticket, member, attempt, call). Blocked
// calls wait at `gate` and then fail with CANCELLED; without one, at a gate of the task's own that opens when the task
// is destroyed.
std::unique_ptr<Task> WithFaults(std::unique_ptr<Task> task, const FaultProbabilities& probabilities,
                                 std::shared_ptr<HangGate> gate = nullptr);

}  // namespace leeway

#endif  // LEEWAY_ENVS_FAULT_ENVIRONMENT_H_
