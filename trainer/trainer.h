#ifndef LEEWAY_TRAINER_TRAINER_H_
#define LEEWAY_TRAINER_TRAINER_H_

// The trainer process's driving loop (rank 0, the queue's only consumer).
//
//   AllocateLineage -> newest whole checkpoint, or initial weights (+ warm start) -> Restore -> first publish
//   each step t:  lease -> train -> publish (prepare -> queue Commit -> commit) -> metrics line
//   every N steps: checkpoint, which the ranks write while the next steps train -> settle
//
// A step is finished when the queue's Commit(t+1) was answered. A step whose loss or gradients are not finite changes
// no weight, is counted (optimizer/skipped_steps) and dumped (failed_steps/), and is committed like any other.

#include <atomic>
#include <memory>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/executor.h"
#include "base/file_system.h"
#include "base/metrics.h"
#include "base/state_clock.h"
#include "collective/communicator.h"
#include "envs/environment.h"
#include "queue/queue_client.h"
#include "tokenizer/tokenizer.h"
#include "trainer/trainer_options.h"
#include "weightsync/weight_publisher.h"

namespace leeway {

// Everything the trainer talks to. Borrowed: all of it outlives the trainer.
struct TrainerEnvironment {
  QueueTrainerClient* queue = nullptr;
  WeightPublisher* publisher = nullptr;
  const Tokenizer* tokenizer = nullptr;
  const Task* task = nullptr;  // only for a warm start; may be null without one
  ParallelFor* parallel = nullptr;
  // Of a trainer on several ranks, of which this is rank 0: what they compute over, and what they are told over; the
  // others run FollowLeader. Null: it is alone.
  Communicator* world = nullptr;
  Communicator* commands = nullptr;
  StateClock* states = nullptr;
  Metrics* metrics = nullptr;  // gauges of the newest step, at once
  FileSystem* files = RealFileSystem();
  const Clock* clock = RealClock();
};

class Trainer {
 public:
  Trainer(TrainerOptions options, const TrainerEnvironment& environment);
  ~Trainer();

  // Runs to the end of the last step, a stop request or a drained queue; blocks the caller. Every wait has a limit and
  // a state
  // ("wait:waiting_for_groups", ...).
  //   OK                   done, or stopped after a checkpoint
  //   ABORTED              another lineage is current, or a commit was refused: start the process again, it restores
  //   UNAVAILABLE, DEADLINE_EXCEEDED   the queue is gone
  //   INVALID_ARGUMENT     the options or the initial weights are unusable, or the queue is too small for them
  //   RESOURCE_EXHAUSTED   a checkpoint that the run needs, the last one or one that makes room in the queue, could not
  //   be written
  //   DATA_LOSS            too many groups of one step had to be refused
  //   FAILED_PRECONDITION  a warm start on a task without demonstrations
  //   UNAVAILABLE, DEADLINE_EXCEEDED, ABORTED also: a rank is gone, naming it
  //   INTERNAL             a token beyond the staleness bound reached the trainer, or a batch of another size than
  //   asked
  absl::Status Run();

  // Ends the run after the current step, with a checkpoint. Any thread; only sets a flag (safe in a signal handler).
  void RequestStop() { stop_requested_.store(true); }

  // The last finished step. Any thread.
  int64_t finished_step() const { return finished_step_.load(); }

 private:
  class Impl;

  const TrainerOptions options_;
  const TrainerEnvironment environment_;
  std::atomic<bool> stop_requested_{false};
  std::atomic<int64_t> finished_step_{0};
  std::unique_ptr<Impl> impl_;
};

}  // namespace leeway

#endif  // LEEWAY_TRAINER_TRAINER_H_
