#ifndef LEEWAY_ROLLOUT_EPISODES_ENVIRONMENT_EXECUTOR_H_
#define LEEWAY_ROLLOUT_EPISODES_ENVIRONMENT_EXECUTOR_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "envs/environment.h"

namespace leeway {

// Holds one episode's environment. Shared by the runner and the call under way, so that an abandoned call keeps its
// world alive.
struct EnvironmentSlot {
  std::unique_ptr<Environment> environment;
};

// One call of an environment.
struct EnvironmentCall {
  // Chosen by the caller, unique for ever: the answer names it.
  uint64_t id = 0;
  std::shared_ptr<EnvironmentSlot> slot;
  // Not null: make a new environment of this task and Reset(seed) it. Null: Step(answer).
  const Task* reset_task = nullptr;
  EpisodeKey key;
  uint64_t seed = 0;
  std::string answer;
  // From the start of its execution, time in the queue not counted.
  absl::Duration timeout;
};

struct EnvironmentAnswer {
  uint64_t call = 0;
  // Not OK: the environment's own status; INTERNAL with what it said if it threw; DEADLINE_EXCEEDED if `timed_out`.
  absl::Status status;
  // `timeout` passed; a later result is thrown away.
  bool timed_out = false;
  // Of a reset: the observation in `next`, running.
  StepResult result;
  absl::Duration took;
  absl::Duration simulated_latency;
};

// Runs calls of environments with deadlines. The one user is the driving loop: Post and Take are called by one thread.
class EnvironmentExecutor {
 public:
  virtual ~EnvironmentExecutor() = default;
  // Takes all `calls` (left empty). Does not block, except where an implementation says so.
  virtual void Post(std::vector<EnvironmentCall>* calls) = 0;
  // Appends what has been answered since, in any order; calls past their deadline are answered (and given up) here.
  virtual void Take(std::vector<EnvironmentAnswer>* answers) = 0;
  // The earliest time at which a call under way passes its deadline; infinite when none runs.
  virtual MonotonicTime NextDeadline() const = 0;
  // Threads given up since they did not come back from a call, and still not back.
  virtual int abandoned_threads() const { return 0; }
};

// Runs calls inside Post, on the caller's thread: for tests. A call that took longer than its timeout by the clock is
// answered DEADLINE_EXCEEDED, but only once it comes back.
class InlineEnvironmentExecutor : public EnvironmentExecutor {
 public:
  explicit InlineEnvironmentExecutor(const Clock* clock = RealClock()) : clock_(clock) {}
  void Post(std::vector<EnvironmentCall>* calls) override;
  void Take(std::vector<EnvironmentAnswer>* answers) override;
  MonotonicTime NextDeadline() const override { return MonotonicTime::InfiniteFuture(); }

 private:
  const Clock* const clock_;
  std::vector<EnvironmentAnswer> answers_;
};

// Runs calls on threads of class "env". Hand-over in both directions costs one lock for a whole batch where calls are
// quick.
//
// A call past its deadline: the call is answered, its thread is left behind (it ends when, and if, the call comes back)
// and a new thread takes its place, so that other episodes do not notice. The destructor joins threads that are not in
// a call or come back within a second, and detaches the others: those still refer to the environment and its task, so a
// process with hung environments ends by _exit.
class ThreadedEnvironmentExecutor : public EnvironmentExecutor {
 public:
  // `on_answers` is called on an environment thread after answers were added, never under a lock; it must be cheap and
  // outlive the object.
  ThreadedEnvironmentExecutor(int threads, std::function<void()> on_answers, const Clock* clock = RealClock());
  ~ThreadedEnvironmentExecutor() override;
  void Post(std::vector<EnvironmentCall>* calls) override;
  void Take(std::vector<EnvironmentAnswer>* answers) override;
  MonotonicTime NextDeadline() const override;
  int abandoned_threads() const override;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

namespace internal {
// Makes the call on this thread; exceptions become INTERNAL. An ended or failed episode's environment is destroyed here
// as well.
EnvironmentAnswer RunEnvironmentCall(const EnvironmentCall& call, const Clock* clock);
}  // namespace internal

}  // namespace leeway

#endif  // LEEWAY_ROLLOUT_EPISODES_ENVIRONMENT_EXECUTOR_H_
