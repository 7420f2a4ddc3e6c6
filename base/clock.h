#ifndef LEEWAY_BASE_CLOCK_H_
#define LEEWAY_BASE_CLOCK_H_

// Time for deadlines, leases and waits. Everything that reads a clock takes a `const Clock*`, so that tests drive time
// by hand (base/fake_clock.h). Wall time is for logs only and is not offered here.

#include <compare>

#include "absl/time/time.h"

namespace leeway {

// A point on the monotonic clock. Only differences mean anything; points of different machines never meet.
struct MonotonicTime {
  absl::Duration since_origin = absl::ZeroDuration();

  static constexpr MonotonicTime InfiniteFuture() { return MonotonicTime{absl::InfiniteDuration()}; }

  friend bool operator==(MonotonicTime a, MonotonicTime b) { return a.since_origin == b.since_origin; }
  friend bool operator<(MonotonicTime a, MonotonicTime b) { return a.since_origin < b.since_origin; }
  friend bool operator<=(MonotonicTime a, MonotonicTime b) { return a.since_origin <= b.since_origin; }
  friend bool operator>(MonotonicTime a, MonotonicTime b) { return b < a; }
  friend bool operator>=(MonotonicTime a, MonotonicTime b) { return b <= a; }
  friend MonotonicTime operator+(MonotonicTime t, absl::Duration d) { return {t.since_origin + d}; }
  friend MonotonicTime operator-(MonotonicTime t, absl::Duration d) { return {t.since_origin - d}; }
  friend absl::Duration operator-(MonotonicTime a, MonotonicTime b) { return a.since_origin - b.since_origin; }
};

// Thread-safe. Never goes backwards.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual MonotonicTime Now() const = 0;
};

// The machine's CLOCK_MONOTONIC. Lives for ever.
const Clock* RealClock();

// When something has to be over. Cheap to copy; every call that may block takes one.
class Deadline {
 public:
  // Expires `timeout` from now on `clock`, which must outlive the deadline.
  static Deadline After(absl::Duration timeout, const Clock* clock = RealClock()) {
    return Deadline(clock->Now() + timeout, clock);
  }
  static Deadline Infinite() { return Deadline(MonotonicTime::InfiniteFuture(), RealClock()); }

  bool HasPassed() const { return clock_->Now() >= expiry_; }
  // Never negative.
  absl::Duration Remaining() const {
    const absl::Duration left = expiry_ - clock_->Now();
    return left > absl::ZeroDuration() ? left : absl::ZeroDuration();
  }
  MonotonicTime expiry() const { return expiry_; }

 private:
  Deadline(MonotonicTime expiry, const Clock* clock) : expiry_(expiry), clock_(clock) {}

  MonotonicTime expiry_;
  const Clock* clock_;
};

}  // namespace leeway

#endif  // LEEWAY_BASE_CLOCK_H_
