#ifndef LEEWAY_ROLLOUT_WORKER_H_
#define LEEWAY_ROLLOUT_WORKER_H_

#include <memory>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/metrics.h"
#include "envs/environment.h"
#include "leeway/v1/queue.pb.h"
#include "queue/queue_client.h"
#include "rollout/rollout_options.h"
#include "tokenizer/tokenizer.h"
#include "weightsync/weight_subscriber.h"

namespace leeway {

// A rollout worker: acquires tickets, plays their episodes with the engine, pushes trajectories, swaps weights at token
// boundaries.
//
//   construct ──Run──► registered ──tickets──► … ──run complete | drained | Stop──► OK
//                          ▲  └── fenced: everything of the old identity dropped ──┐
//                          └─────────────────── register again ◄──────────────────┘
//
// Threads: the caller of Run is the driving loop (class "compute"; the engine's forward passes run on it and on
// `compute_threads`-1 helpers). Around it: an acquire thread and a heartbeat thread (class "rpc", they block in the
// queue's client), a weights thread (class "rpc", it blocks in the subscriber), environment threads (class "env"). The
// loop never blocks on the network while it could generate. All logic is in WorkerLoop, which has no threads.
class RolloutWorker {
 public:
  struct Dependencies {
    const Task* task = nullptr;
    const Tokenizer* tokenizer = nullptr;
    QueueWorkerClient* queue = nullptr;
    WeightSubscriber* weights = nullptr;
    // Optional: gauges are copied here at every heartbeat.
    Metrics* metrics = nullptr;
    const Clock* clock = RealClock();
  };

  // `options` must validate; the dependencies outlive the worker.
  RolloutWorker(const RolloutOptions& options, const Dependencies& dependencies);
  // Joins all threads. Environment threads that hang are left behind, detached: a role's main ends with _exit.
  ~RolloutWorker();

  // Blocks until the end of the run. Call once.
  // OK: run complete, drained, or stopped. UNAVAILABLE: the queue was lost for `queue_timeout` (exit code 4).
  // FAILED_PRECONDITION: the queue belongs to another run. INVALID_ARGUMENT: weights of another shape. INTERNAL: the
  // engine failed.
  absl::Status Run();

  // Asks Run to end: unfinished episodes are dropped (the queue issues them again), pushed ones get a moment to be
  // answered. Thread-safe, does not block.
  void Stop();

  // What this process says about itself (state seconds, CPU seconds by thread class, gauges). Thread-safe.
  v1::ProcessReport Report() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace leeway

#endif  // LEEWAY_ROLLOUT_WORKER_H_
