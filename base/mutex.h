#ifndef LEEWAY_BASE_MUTEX_H_
#define LEEWAY_BASE_MUTEX_H_

// An annotated mutex over std::mutex (absl::Mutex gives false races under ThreadSanitizer when Debian's library is
// linked).

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "absl/time/time.h"
#include "base/clock.h"
#include "base/thread_annotations.h"

namespace leeway {

class LEEWAY_CAPABILITY("mutex") Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void Lock() LEEWAY_ACQUIRE() { mutex_.lock(); }
  void Unlock() LEEWAY_RELEASE() { mutex_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

// Holds the mutex for its own lifetime.
class LEEWAY_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex* mutex) LEEWAY_ACQUIRE(mutex) : mutex_(mutex) { mutex_->Lock(); }
  ~MutexLock() LEEWAY_RELEASE() { mutex_->Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex* mutex_;
};

// Waits always have a limit in real time; callers test their condition in a loop.
class CondVar {
 public:
  // Releases `mutex`, sleeps until notified or until `timeout` has passed, takes it again. False when time ran out.
  bool WaitFor(Mutex* mutex, absl::Duration timeout) LEEWAY_REQUIRES(mutex) {
    // Waits of more than an hour are cut: the caller's loop waits again. (Infinite durations do not fit a timespec.)
    const absl::Duration limited = timeout < absl::Hours(1) ? timeout : absl::Hours(1);
    std::unique_lock<std::mutex> lock(mutex->mutex_, std::adopt_lock);
    const bool notified = condition_.wait_for(lock, absl::ToChronoNanoseconds(limited)) == std::cv_status::no_timeout;
    lock.release();
    return notified;
  }
  bool WaitUntil(Mutex* mutex, const Deadline& deadline) LEEWAY_REQUIRES(mutex) {
    return WaitFor(mutex, deadline.Remaining());
  }
  void NotifyOne() { condition_.notify_one(); }
  void NotifyAll() { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};

}  // namespace leeway

#endif  // LEEWAY_BASE_MUTEX_H_
