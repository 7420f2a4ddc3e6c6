#ifndef LEEWAY_ROLLOUT_WORKER_STATE_H_
#define LEEWAY_ROLLOUT_WORKER_STATE_H_

// Inside of RolloutWorker, shared by worker.cc (the driving loop) and worker_threads.cc (the threads around it); nobody
// else includes it.

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/executor.h"
#include "base/mutex.h"
#include "base/state_clock.h"
#include "leeway/v1/queue.pb.h"
#include "leeway/v1/types.pb.h"
#include "model/memory.h"
#include "model/transformer/transformer.h"
#include "rollout/doorbell.h"
#include "rollout/episodes/environment_executor.h"
#include "rollout/worker.h"
#include "rollout/worker_loop.h"

namespace leeway {
namespace internal {

// Long polls and timed waits are short, so that every thread sees a stop soon.
constexpr absl::Duration kWorkerPoll = absl::Seconds(1);

// Waits between failed calls: 50 ms doubling to 1 s.
class RetryPause {
 public:
  absl::Duration Next() { return std::exchange(next_, std::min(next_ * 2, absl::Seconds(1))); }
  void Reset() { next_ = absl::Milliseconds(50); }

 private:
  absl::Duration next_ = absl::Milliseconds(50);
};

// The queue's answer to a push, or why there is none.
struct PushAnswered {
  uint64_t life = 0;
  v1::EpisodeKey key;
  bool evaluation = false;
  absl::StatusOr<v1::PushAnswer> answer;
};

struct TicketsAnswered {
  uint64_t life = 0;
  v1::WeightsVersion holding;  // when it was asked
  absl::StatusOr<v1::AcquireTicketsResponse> response;
};

struct HeartbeatAnswered {
  uint64_t life = 0;
  MonotonicTime sent;
  absl::StatusOr<v1::HeartbeatResponse> response;
};

// What other threads told the loop since it last looked. `life` counts registrations: news of an older life is thrown
// away.
struct Inbox {
  std::vector<PushAnswered> answers;
  std::vector<TicketsAnswered> tickets;
  std::vector<HeartbeatAnswered> heartbeats;
};

// Shared with the callbacks of pushes, which the client may call after the worker is gone.
struct Mailbox {
  Doorbell bell;
  Mutex mutex;
  Inbox inbox LEEWAY_GUARDED_BY(mutex);
};

}  // namespace internal

struct RolloutWorker::State {
  State(const RolloutOptions& options, const Dependencies& dependencies)
      : options(options),
        dependencies(dependencies),
        born(dependencies.clock->Now()),
        state_clock(dependencies.clock),
        parallel(options.compute_threads),
        transformer(options.shape, &parallel,
                    {.weights = options.bf16_weights ? FormatOfBf16(options.shape) : WeightFormat::kReal}),
        executor(
            options.environment_threads, [mailbox = mailbox.get()] { mailbox->bell.Ring(); }, dependencies.clock),
        loop(options, LoopDependencies()),
        last_contact(dependencies.clock->Now()),
        last_progress(dependencies.clock->Now()) {}

  WorkerLoop::Dependencies LoopDependencies() {
    WorkerLoop::Dependencies result;
    result.task = dependencies.task;
    result.tokenizer = dependencies.tokenizer;
    result.weights = dependencies.weights;
    result.executor = &executor;
    result.transformer = &transformer;
    result.parallel = &parallel;
    result.state_clock = &state_clock;
    result.clock = dependencies.clock;
    result.push = [this](v1::Trajectory trajectory) { Push(std::move(trajectory)); };
    return result;
  }

  // ---- the driving loop
  absl::Status Run();
  // Waits for the loader of weights when it is still in a load that was given up. UNAVAILABLE: it never came back.
  absl::Status AwaitAbandonedLoad();
  absl::Status RegisterAgain();
  absl::Status Loop();
  // Not OK ends the run; `*fenced` asks for a new registration.
  absl::Status HandleInbox(bool* fenced);
  void Push(v1::Trajectory trajectory);
  void Publish(MonotonicTime now, bool is_idle);
  void OfferSlots();
  void Flush();
  void JoinThreads();

  // ---- the threads around it
  void AcquireTickets();
  void SendHeartbeats();
  void WatchWeights();
  void NoteCommitted(const v1::WeightsVersion& weights, const std::string& digest) {
    if (weights.version() != 0) dependencies.weights->NoteCommitted(weights, digest);
  }
  void Watch(MonotonicTime now, MonotonicTime* last_line);
  v1::ProcessReport Report();
  // Sleeps unless stopping. True while not stopping.
  bool Sleep(absl::Duration time);

  const RolloutOptions options;
  const Dependencies dependencies;
  const MonotonicTime born;
  StateClock state_clock;
  // Outlives the executor's threads and the callbacks that ring its bell.
  std::shared_ptr<internal::Mailbox> mailbox = std::make_shared<internal::Mailbox>();
  ParallelFor parallel;
  Transformer<float> transformer;
  ThreadedEnvironmentExecutor executor;
  WorkerLoop loop;

  // Of the driving loop alone.
  uint64_t life = 0;  // registrations so far
  MonotonicTime last_contact;
  MonotonicTime published;
  MonotonicTime registered;
  bool has_progressed = false;   // since `published`
  bool acquire_is_over = false;  // the answer of the acquire thread was handled since the last OfferSlots
  bool is_draining = false;
  bool is_complete = false;
  int64_t weights_taken_told = 0;

  std::atomic<bool> stop_requested = false;
  std::vector<std::thread> threads;

  mutable Mutex mutex;
  CondVar changed;
  bool stopping LEEWAY_GUARDED_BY(mutex) = false;
  // Written by the loop, read by the threads around it.
  uint64_t current_life LEEWAY_GUARDED_BY(mutex) = 0;
  v1::WorkerIdentity identity LEEWAY_GUARDED_BY(mutex);
  absl::Duration heartbeat_interval LEEWAY_GUARDED_BY(mutex) = absl::Seconds(1);
  absl::Duration lease LEEWAY_GUARDED_BY(mutex) = absl::Seconds(10);
  int wanted_members LEEWAY_GUARDED_BY(mutex) = 0;  // 0: do not acquire now
  bool acquire_may_wait LEEWAY_GUARDED_BY(mutex) = false;
  // An acquire is under way, or its answer has not been taken into account in wanted_members yet.
  bool is_acquiring LEEWAY_GUARDED_BY(mutex) = false;
  v1::WeightsVersion holds LEEWAY_GUARDED_BY(mutex);
  // The next heartbeat does not wait for its time.
  bool must_say_what_it_holds LEEWAY_GUARDED_BY(mutex) = false;
  std::vector<uint64_t> tickets LEEWAY_GUARDED_BY(mutex);
  std::map<std::string, double> gauges LEEWAY_GUARDED_BY(mutex);
  std::string waits_for LEEWAY_GUARDED_BY(mutex) = "registration";
  int64_t weights_taken LEEWAY_GUARDED_BY(mutex) = 0;
  MonotonicTime last_progress LEEWAY_GUARDED_BY(mutex);
  // When the loop last came round, in nanoseconds of the clock: without a lock, it is written at every token.
  std::atomic<int64_t> last_round_ns = 0;
};

}  // namespace leeway

#endif  // LEEWAY_ROLLOUT_WORKER_STATE_H_
