#ifndef LEEWAY_ROLLOUT_WORKER_LOOP_H_
#define LEEWAY_ROLLOUT_WORKER_LOOP_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/executor.h"
#include "base/state_clock.h"
#include "envs/environment.h"
#include "leeway/v1/queue.pb.h"
#include "leeway/v1/types.pb.h"
#include "rollout/engine/engine.h"
#include "rollout/episodes/environment_executor.h"
#include "rollout/episodes/episode_runner.h"
#include "rollout/rollout_options.h"
#include "tokenizer/tokenizer.h"
#include "weightsync/weight_subscriber.h"

namespace leeway {

// What a rollout worker decides, without threads, network or waiting: which tickets are played when, and when weights
// are swapped.
//
// A ticket's members:  unstarted ──(version reached, slot free)──► running ──► pushed ──answer──► gone
// A training ticket starts on its version or a later one. An evaluation ticket starts on exactly its version, before
// training tickets. Weights are swapped out when the queue, asked while they were held, had no evaluation of them
// (left), and no member of one is unstarted or running; an evaluation of weights already past is refused
// (`version_gone`). Past its deadline a ticket's unfinished members are reported as failed (`deadline`).
//
// One caller (the driving loop). Iterate never blocks except for the forward pass itself.
class WorkerLoop {
 public:
  struct Dependencies {
    const Task* task = nullptr;
    const Tokenizer* tokenizer = nullptr;
    WeightSubscriber* weights = nullptr;
    EnvironmentExecutor* executor = nullptr;
    Transformer<float>* transformer = nullptr;
    ParallelFor* parallel = nullptr;
    StateClock* state_clock = nullptr;
    const Clock* clock = RealClock();
    // Hands a trajectory on; its answer comes back through OnPushAnswered, later, not from inside this call.
    std::function<void(v1::Trajectory)> push;
  };

  // All dependencies outlive the loop.
  WorkerLoop(const RolloutOptions& options, const Dependencies& dependencies);

  // ---- events -----------------------------------------------------------------------------------------------------
  // An answer to an acquire that was asked while `asked_holding` were the engine's weights.
  void AddTickets(const v1::AcquireTicketsResponse& response, WeightsId asked_holding);
  // A refused or closed group: its other members are abandoned.
  void OnPushAnswered(const v1::EpisodeKey& key, bool evaluation, const v1::PushAnswer& answer);
  // Training tickets that the queue did not want from this worker any more at `as_of`: those received later are another
  // issue and stay.
  void AbandonTickets(absl::Span<const uint64_t> tickets, MonotonicTime as_of);
  // Everything of the identity so far: tickets, episodes, unanswered pushes. The engine keeps its weights.
  void DropEverything();

  // ---- work -------------------------------------------------------------------------------------------------------
  // Swaps, plays and generates what can be: one token boundary to the next. True if anything was done; false: call
  // again after an event, or when wait().wake_at comes. INVALID_ARGUMENT: weights of another shape. INTERNAL: the
  // engine failed.
  absl::StatusOr<bool> Iterate();

  // What the loop waits for when Iterate did nothing: the cause of the oldest waiter.
  struct Wait {
    std::string cause;   // env_step | waiting_for_version | queue_full (answers to pushes) | what the queue said |
                         // waiting_for_tickets
    std::string detail;  // for people
    MonotonicTime since;
    MonotonicTime wake_at;  // timers and deadlines; infinite: events only
  };
  Wait wait() const;

  // Members that should be asked for now; 0: do not ask. At least 1 while a swap waits for the answer.
  int wanted_members() const;
  // Whether the queue may still have evaluations of the weights held: until an answer without any, weights are not
  // swapped out (others could not run them any more), so the next acquire should not wait.
  bool may_have_evaluations() const { return engine_.weights().version != 0 && !evaluations_are_out_; }
  WeightsId weights() const { return engine_.weights(); }
  // Training tickets that are not wholly answered: what the heartbeat names.
  std::vector<uint64_t> training_tickets() const;
  int64_t unanswered_pushes() const { return unanswered_; }
  // Weights taken from the subscriber so far.
  int64_t weights_taken() const { return weights_taken_; }
  // Metric name -> value, cumulative since construction or current.
  std::map<std::string, double> Gauges() const;

 private:
  // Evaluation tickets sort first, then by id.
  using TicketKey = std::tuple<bool, uint64_t, uint32_t>;  // (is training, id, issue)
  struct TicketRecord {
    std::shared_ptr<const v1::Ticket> ticket;
    MonotonicTime received;
    MonotonicTime deadline;
    std::vector<uint32_t> unstarted;  // last first
    int running = 0;
    int unanswered = 0;  // pushed
  };
  using TicketMap = std::map<TicketKey, TicketRecord>;
  enum class Startable { kNow, kLater, kNever };

  static TicketKey KeyOf(const v1::Ticket& ticket) { return {!ticket.evaluation(), ticket.id(), ticket.issue()}; }
  Startable CanStart(const v1::Ticket& ticket) const;
  // Whether an evaluation of the current weights is unfinished, here or (as far as is known) at the queue.
  bool IsPinned() const;
  absl::StatusOr<bool> TakeAndSwapWeights();
  absl::Status Swap(const CommittedWeights& weights);
  bool StartMembers();
  void EnforceDeadlines();
  bool PushFinished();
  // Takes the record's unstarted members away.
  void ClearUnstarted(TicketRecord* record);
  void EraseIfDone(TicketMap::iterator it);

  const RolloutOptions options_;
  const Dependencies dependencies_;
  Engine engine_;
  EpisodeRunner runner_;

  TicketMap tickets_;
  int unstarted_ = 0;
  int64_t unanswered_ = 0;
  MonotonicTime oldest_unanswered_ =
      MonotonicTime::InfiniteFuture();  // since when at least one push has been unanswered
  MonotonicTime next_deadline_ = MonotonicTime::InfiniteFuture();
  std::optional<CommittedWeights> pending_;  // newest weights not yet swapped in
  std::string digest_;                       // of the engine's weights
  int64_t weights_taken_ = 0;
  // The queue was asked while holding these weights, and had no evaluation of them left.
  bool evaluations_are_out_ = false;
  // The queue's last empty answer.
  std::string queue_cause_;
  MonotonicTime queue_cause_since_;

  std::vector<FinishedTurn> turns_;           // reused
  std::vector<v1::Trajectory> trajectories_;  // reused
  std::map<std::string, int64_t> answers_;    // by PushResult name
  double swap_seconds_ = 0;
};

}  // namespace leeway

#endif  // LEEWAY_ROLLOUT_WORKER_LOOP_H_
