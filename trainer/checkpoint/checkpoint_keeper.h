#ifndef LEEWAY_TRAINER_CHECKPOINT_CHECKPOINT_KEEPER_H_
#define LEEWAY_TRAINER_CHECKPOINT_CHECKPOINT_KEEPER_H_

// When a run's checkpoints are begun, when they are waited for, and what they settle.
//
// Save returns once the ranks have copied what they hold; they write while the next steps train, and Look finds out
// when they are done. At most one checkpoint is under way: the next one waits for it. A checkpoint that cannot be
// written leaves the older ones as they are and does not end the run, unless the run needs it.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/state_clock.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/checkpoint_in_progress.h"
#include "trainer/checkpoint/checkpoint_store.h"

namespace leeway {

// Seconds since they were asked for the last time.
struct CheckpointTimes {
  double wait = 0;   // that training stood still
  double write = 0;  // of the ranks that wrote longest, beside training
};

// No threads; one caller at a time. Calls that wait do so in the state busy:checkpoint, asking the ranks all the time,
// so that one that is gone ends it; a slow disk does not, and is named in the log.
class CheckpointKeeper {
 public:
  // What the checkpoint of the moment holds beside the training state.
  using Make = std::function<absl::StatusOr<Checkpoint>()>;
  // Tells the queue that the steps up to this one are safe; the same again changes nothing. ABORTED: a later trainer
  // has taken over.
  using Settle = std::function<absl::Status(uint64_t step)>;

  // All outlive the object. `run_directory`: for messages.
  CheckpointKeeper(std::string run_directory, CheckpointRanks* ranks, CheckpointStore* store, Settle settle,
                   StateClock* states, const Clock* clock)
      : run_directory_(std::move(run_directory)),
        ranks_(ranks),
        store_(store),
        settle_(std::move(settle)),
        states_(states),
        clock_(clock) {}

  // The run goes on from the checkpoint of this step.
  void StartFrom(uint64_t step) { saved_step_ = step; }

  // Begins the checkpoint of the step that is finished, unless there is one or one is under way. OK also when it cannot
  // be written. Errors: of `make`, of settling, of the connection to the ranks; of Look and Wait too.
  absl::Status Save(uint64_t step, const Make& make);
  // What is under way may be done.
  absl::Status Look();
  // Until nothing is under way.
  absl::Status Wait();

  // The same where the run cannot go on without it, for the reason given; it is written when the call returns.
  // RESOURCE_EXHAUSTED: it could not be.
  absl::Status Need(uint64_t step, absl::string_view reason, const Make& make);
  // The queue is full of trained groups: writes a checkpoint and settles. INVALID_ARGUMENT: that does not help.
  absl::Status MakeRoom(uint64_t step, const Make& make);
  // Of a checkpoint that is known to suffice, the last one.
  absl::Status SettleStep(uint64_t step);

  // Of the newest one that is complete.
  const std::optional<uint64_t>& saved_step() const { return saved_step_; }
  CheckpointTimes TakeTimes() { return std::exchange(times_, CheckpointTimes()); }

 private:
  // Asks the ranks once; each waits up to `wait`.
  absl::Status Ask(absl::Duration wait);
  absl::Status SettleCovered();

  const std::string run_directory_;
  CheckpointRanks* const ranks_;
  CheckpointStore* const store_;
  const Settle settle_;
  StateClock* const states_;
  const Clock* const clock_;

  std::optional<CheckpointInProgress> under_way_;
  std::optional<uint64_t> saved_step_;
  // Why the last attempt failed.
  absl::Status unsaved_because_;
  // The newest step that this life has settled.
  uint64_t settled_step_ = 0;
  CheckpointTimes times_;
};

}  // namespace leeway

#endif  // LEEWAY_TRAINER_CHECKPOINT_CHECKPOINT_KEEPER_H_
