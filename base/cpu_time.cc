#include "base/cpu_time.h"

#include <pthread.h>
#include <time.h>

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/mutex.h"

namespace leeway {
namespace {

double CpuSeconds(clockid_t clock) {
  timespec used;
  clock_gettime(clock, &used);
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) * 1e-9;
}

// The threads that have a class, and what the process used in each class before.
class ClassRegistry {
 public:
  struct Thread {
    clockid_t clock = CLOCK_THREAD_CPUTIME_ID;
    std::string thread_class;
    // What the thread had used when it got this class.
    double seconds_before = 0;
  };

  // The calling thread's time so far stays in the class that it had; without one, it goes to `thread_class`.
  void Enter(Thread* thread, const std::string& thread_class) LEEWAY_EXCLUDES(mutex_) {
    MutexLock lock(&mutex_);
    if (Leave(thread)) thread->seconds_before = CpuSeconds(thread->clock);
    thread->thread_class = thread_class;
    threads_.push_back(thread);
  }

  void End(Thread* thread) LEEWAY_EXCLUDES(mutex_) {
    MutexLock lock(&mutex_);
    Leave(thread);
  }

  std::map<std::string, double> Seconds() LEEWAY_EXCLUDES(mutex_) {
    MutexLock lock(&mutex_);
    std::map<std::string, double> seconds = seconds_of_past_;
    for (const Thread* thread : threads_) seconds[thread->thread_class] += SecondsInClass(*thread);
    return seconds;
  }

 private:
  static double SecondsInClass(const Thread& thread) { return CpuSeconds(thread.clock) - thread.seconds_before; }

  bool Leave(Thread* thread) LEEWAY_REQUIRES(mutex_) {
    if (std::erase(threads_, thread) == 0) return false;
    seconds_of_past_[thread->thread_class] += SecondsInClass(*thread);
    return true;
  }

  Mutex mutex_;
  // Each lives as long as its thread.
  std::vector<Thread*> threads_ LEEWAY_GUARDED_BY(mutex_);
  std::map<std::string, double> seconds_of_past_ LEEWAY_GUARDED_BY(mutex_);
};

// Never destroyed: threads end after the statics of the program, too.
ClassRegistry& Registry() {
  static auto* const registry = new ClassRegistry();
  return *registry;
}

class ThreadMembership {
 public:
  ThreadMembership() { pthread_getcpuclockid(pthread_self(), &thread_.clock); }
  ~ThreadMembership() { Registry().End(&thread_); }
  void Enter(const std::string& thread_class) { Registry().Enter(&thread_, thread_class); }

 private:
  ClassRegistry::Thread thread_;
};

thread_local ThreadMembership this_thread;

// Runs on the main thread before main.
[[maybe_unused]] const bool kMainThreadHasItsClass = (this_thread.Enter("main"), true);

}  // namespace

void SetThreadClass(const std::string& thread_class) {
  pthread_setname_np(pthread_self(), absl::StrCat("lw-", thread_class).substr(0, 15).c_str());
  this_thread.Enter(thread_class);
}

std::map<std::string, double> CpuSecondsByThreadClass() {
  std::map<std::string, double> seconds = Registry().Seconds();
  double of_classes = 0;
  for (const auto& [thread_class, used] : seconds) of_classes += used;
  const double total = CpuSeconds(CLOCK_PROCESS_CPUTIME_ID);
  seconds["rpc"] += std::max(0.0, total - of_classes);
  seconds["total"] = total;
  return seconds;
}

}  // namespace leeway
