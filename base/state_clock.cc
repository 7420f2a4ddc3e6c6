#include "base/state_clock.h"

#include <utility>

namespace leeway {

StateClock::StateClock(const Clock* clock, std::string initial)
    : clock_(clock), current_(std::move(initial)), since_(clock->Now()) {}

void StateClock::Enter(absl::string_view state) {
  MutexLock lock(&mutex_);
  if (state == current_) return;
  const MonotonicTime now = clock_->Now();
  totals_[current_] += now - since_;
  current_ = std::string(state);
  since_ = now;
}

std::string StateClock::current() const {
  MutexLock lock(&mutex_);
  return current_;
}

std::map<std::string, absl::Duration> StateClock::Totals() const {
  MutexLock lock(&mutex_);
  auto totals = totals_;
  totals[current_] += clock_->Now() - since_;
  return totals;
}

}  // namespace leeway
