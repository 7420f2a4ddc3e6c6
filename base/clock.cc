#include "base/clock.h"

#include <time.h>

namespace leeway {
namespace {

class MonotonicClock : public Clock {
 public:
  MonotonicTime Now() const override {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return MonotonicTime{absl::DurationFromTimespec(now)};
  }
};

}  // namespace

const Clock* RealClock() {
  static const MonotonicClock* clock = new MonotonicClock;
  return clock;
}

}  // namespace leeway
