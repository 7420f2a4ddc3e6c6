#include "base/executor.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <thread>
#include <utility>
#include <vector>

#include "base/cpu_time.h"
#include "base/mutex.h"
#include "base/status_macros.h"

namespace leeway {

// One job at a time: the caller publishes it by raising `generation`, helpers take ranges and count down `unfinished`.
struct ParallelFor::State {
  // How long a helper looks for the next job before it sleeps: longer than the gap between two kernels of one pass, far
  // shorter than a wait for data.
  static constexpr int kSpins = 4000;

  std::atomic<uint64_t> generation{0};
  std::atomic<int> unfinished{0};
  std::atomic<bool> stopping{false};
  std::atomic<int> sleepers{0};
  const std::function<void(int64_t, int64_t)>* body = nullptr;
  int64_t count = 0;
  int64_t ranges = 0;
  Mutex mutex;
  CondVar wake;
  std::vector<std::thread> helpers;

  void RunRange(int64_t range) const {
    const int64_t begin = count * range / ranges;
    const int64_t end = count * (range + 1) / ranges;
    if (begin < end) (*body)(begin, end);
  }

  // Waits for a generation other than `seen` and returns it.
  uint64_t AwaitGeneration(uint64_t seen) {
    for (int spin = 0; spin < kSpins; ++spin) {
      const uint64_t now = generation.load(std::memory_order_acquire);
      if (now != seen || stopping.load(std::memory_order_relaxed)) return now;
      __builtin_ia32_pause();
    }
    MutexLock lock(&mutex);
    ++sleepers;
    while (generation.load(std::memory_order_acquire) == seen && !stopping.load()) {
      wake.WaitFor(&mutex, absl::InfiniteDuration());
    }
    --sleepers;
    return generation.load(std::memory_order_acquire);
  }

  void Help(int index) {
    uint64_t seen = 0;
    while (true) {
      seen = AwaitGeneration(seen);
      if (stopping.load()) return;
      if (index < ranges) RunRange(index);
      unfinished.fetch_sub(1, std::memory_order_release);
    }
  }
};

ParallelFor::ParallelFor(int threads) : state_(std::make_unique<State>()) {
  LEEWAY_CHECK(threads >= 1) << threads;
  for (int index = 1; index < threads; ++index) {
    state_->helpers.emplace_back([state = state_.get(), index] {
      SetThreadClass("compute");
      state->Help(index);
    });
  }
}

ParallelFor::~ParallelFor() {
  {
    MutexLock lock(&state_->mutex);
    state_->stopping = true;
  }
  state_->wake.NotifyAll();
  for (std::thread& helper : state_->helpers) helper.join();
}

void ParallelFor::Run(int64_t count, int64_t minimum_per_thread, const std::function<void(int64_t, int64_t)>& body) {
  if (count <= 0) return;
  const int64_t ranges = std::clamp<int64_t>(count / std::max<int64_t>(minimum_per_thread, 1), 1, threads());
  if (ranges == 1) {
    body(0, count);
    return;
  }
  State& state = *state_;
  state.body = &body;
  state.count = count;
  state.ranges = ranges;
  state.unfinished.store(static_cast<int>(state.helpers.size()), std::memory_order_relaxed);
  {
    // Under the mutex, so that a helper that is about to sleep cannot miss it.
    MutexLock lock(&state.mutex);
    state.generation.fetch_add(1, std::memory_order_release);
  }
  if (state.sleepers.load() > 0) state.wake.NotifyAll();
  state.RunRange(0);
  for (int spin = 0; state.unfinished.load(std::memory_order_acquire) > 0; ++spin) {
    if (spin < State::kSpins) {
      __builtin_ia32_pause();
    } else {
      std::this_thread::yield();
    }
  }
}

int ParallelFor::threads() const { return static_cast<int>(state_->helpers.size()) + 1; }

}  // namespace leeway
