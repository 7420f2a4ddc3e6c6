#ifndef LEEWAY_TRAINER_LIVENESS_LOG_H_
#define LEEWAY_TRAINER_LIVENESS_LOG_H_

#include "absl/time/time.h"
#include "base/clock.h"

namespace leeway {

// Tells long work when to say in the log that it goes on, every ten seconds at most: the launcher takes a growing log
// of the trainer for a sign of life (run.stall_timeout). Work that is shorter says nothing.
class LivenessLog {
 public:
  explicit LivenessLog(const Clock* clock = RealClock()) : clock_(clock), last_(clock->Now()) {}

  // Work begins, or was just spoken of.
  void Begin() { last_ = clock_->Now(); }
  // Something should be said now.
  bool IsDue() {
    if (clock_->Now() - last_ < absl::Seconds(10)) return false;
    Begin();
    return true;
  }

 private:
  const Clock* const clock_;
  MonotonicTime last_;
};

}  // namespace leeway

#endif  // LEEWAY_TRAINER_LIVENESS_LOG_H_
