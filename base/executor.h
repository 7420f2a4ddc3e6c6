#ifndef LEEWAY_BASE_EXECUTOR_H_
#define LEEWAY_BASE_EXECUTOR_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

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

// A fixed number of threads. `thread_class` (rpc, ledger, compute, env) names them, so that CPU time can be reported by
// class (base/cpu_time.h). The destructor runs what is queued, then joins.
class ThreadPool : public Executor {
 public:
  ThreadPool(std::string thread_class, int threads);
  ~ThreadPool() override;
  void Schedule(std::function<void()> task) override;
  int threads() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
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
