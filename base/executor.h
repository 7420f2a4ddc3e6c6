#ifndef LEEWAY_BASE_EXECUTOR_H_
#define LEEWAY_BASE_EXECUTOR_H_

#include <cstdint>
#include <functional>
#include <memory>

namespace leeway {

// Runs tasks. Callbacks of users run on an executor, never under a lock.
class Executor {
 public:
  virtual ~Executor() = default;
  // Runs `task` some time, on some thread. Does not block.
  virtual void Schedule(std::function<void()> task) = 0;
};

// Runs each task at once on the caller's thread: for tests and for code that is quick.
class InlineExecutor : public Executor {
 public:
  void Schedule(std::function<void()> task) override { task(); }
};

// Splits [0, count) into at most `threads()` contiguous ranges and runs body(begin, end) on them, the first on the
// calling thread; returns when all are done. Spins briefly before it sleeps, since kernels call it thousands of times a
// second. The split never changes a result: bodies write disjoint outputs.
class ParallelFor {
 public:
  // threads >= 1; 1 runs everything on the caller.
  explicit ParallelFor(int threads);
  ~ParallelFor();
  void Run(int64_t count, int64_t minimum_per_thread, const std::function<void(int64_t begin, int64_t end)>& body);
  int threads() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace leeway

#endif  // LEEWAY_BASE_EXECUTOR_H_
