#ifndef LEEWAY_BASE_STATE_CLOCK_H_
#define LEEWAY_BASE_STATE_CLOCK_H_

#include <map>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"

namespace leeway {

// Which state a process is in, and for how long it has been in each: `busy:<phase>` or `wait:<cause>`. Exactly one at a
// time, so the states partition wall time since construction.
//
//   busy:start -> Enter("busy:train") -> Enter("wait:waiting_for_groups") -> ...
//
// Driven by the process's one driving loop; read by metrics from any thread.
class StateClock {
 public:
  explicit StateClock(const Clock* clock = RealClock(), std::string initial = "busy:start");

  // Ends the current state and starts `state`. Entering the current state again changes nothing.
  void Enter(absl::string_view state) LEEWAY_EXCLUDES(mutex_);
  std::string current() const LEEWAY_EXCLUDES(mutex_);

  // Time in every state so far, the current one included; the sum is the time since construction.
  std::map<std::string, absl::Duration> Totals() const LEEWAY_EXCLUDES(mutex_);

 private:
  const Clock* const clock_;
  mutable Mutex mutex_;
  std::string current_ LEEWAY_GUARDED_BY(mutex_);
  MonotonicTime since_ LEEWAY_GUARDED_BY(mutex_);
  std::map<std::string, absl::Duration> totals_ LEEWAY_GUARDED_BY(mutex_);
};

// Enters a state for a scope and returns to the previous one.
class ScopedState {
 public:
  ScopedState(StateClock* clock, absl::string_view state) : clock_(clock), previous_(clock->current()) {
    clock_->Enter(state);
  }
  ~ScopedState() { clock_->Enter(previous_); }
  ScopedState(const ScopedState&) = delete;
  ScopedState& operator=(const ScopedState&) = delete;

 private:
  StateClock* clock_;
  std::string previous_;
};

}  // namespace leeway

#endif  // LEEWAY_BASE_STATE_CLOCK_H_
