#ifndef LEEWAY_ROLLOUT_DOORBELL_H_
#define LEEWAY_ROLLOUT_DOORBELL_H_

#include <atomic>

#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"

namespace leeway {

// Wakes one sleeping thread from any other. Cheap when it has been rung already: it stays rung until the sleeper has
// heard it.
class Doorbell {
 public:
  void Ring() LEEWAY_EXCLUDES(mutex_) {
    if (rung_.exchange(true)) return;
    MutexLock lock(&mutex_);
    changed_.NotifyOne();
  }

  // Sleeps until rung (also before the call), or for `timeout` of real time. One sleeper.
  void Wait(absl::Duration timeout) LEEWAY_EXCLUDES(mutex_) {
    const Deadline deadline = Deadline::After(timeout);
    MutexLock lock(&mutex_);
    while (!rung_.exchange(false) && !deadline.HasPassed()) changed_.WaitUntil(&mutex_, deadline);
  }

 private:
  std::atomic<bool> rung_ = false;
  Mutex mutex_;
  CondVar changed_;
};

}  // namespace leeway

#endif  // LEEWAY_ROLLOUT_DOORBELL_H_
