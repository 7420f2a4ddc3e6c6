#ifndef LEEWAY_ROLLOUT_WORKER_H_
#define LEEWAY_ROLLOUT_WORKER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/metrics.h"
#include "envs/environment.h"
#include "leeway/v1/queue.pb.h"
#include "model/shape.h"
#include "queue/queue_client.h"
#include "rollout/engine.h"
#include "rollout/episode_runner.h"
#include "tokenizer/tokenizer.h"
#include "weightsync/weight_subscriber.h"

namespace leeway {

// What a rollout worker is told. launch fills it from the resolved configuration.
struct RolloutOptions {
  // Unique per worker slot; a restarted worker uses the same one, which fences its former life.
  std::string name = "rollout-0";
  std::string run_fingerprint;
  // The run's seed: all sampling derives from it.
  uint64_t seed = 0;
  ModelShape shape;
  UpdateMode update_mode = UpdateMode::kFinish;

  // Training episodes: temperature only (DESIGN 3.3). Evaluation may use everything.
  float temperature = 1.0f;
  SamplingParameters evaluation_sampling;

  // Episodes under way at once (slots). Tickets are acquired while some are free.
  int max_episodes = 384;
  // New tokens in one forward pass, prefill and decode together; decodes always run.
  int64_t token_budget = 4096;
  // Threads of the kernels (class "compute", the driving loop included) and of environments (class "env").
  int compute_threads = 1;
  int environment_threads = 4;

  EpisodeLimits limits;

  // Trajectories pushed and not answered at which no new episode is started.
  int max_unanswered_pushes = 1024;
  // The queue did not answer anything for so long: Run ends with UNAVAILABLE.
  absl::Duration queue_timeout = absl::Seconds(60);
  // Nothing progressed for so long: a line in the log says what waits; a driving loop stuck for twice as long sends no
  // heartbeat, so that the queue gives its tickets to others.
  absl::Duration watchdog_period = absl::Seconds(30);

  // INVALID_ARGUMENT listing everything that is impossible, in the words of the configuration keys.
  absl::Status Validate() const;
};

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
