#include "trainer/checkpoint/checkpoint_keeper.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/failpoint.h"
#include "base/logging.h"
#include "base/status_macros.h"

namespace leeway {
namespace {

// The ranks wait so long before they answer that they still write, and the log says so this often.
constexpr absl::Duration kAskEvery = absl::Milliseconds(50);
constexpr absl::Duration kSayEvery = absl::Seconds(10);

}  // namespace

absl::Status CheckpointKeeper::Save(uint64_t step, const Make& make) {
  if (saved_step_ == step || (under_way_.has_value() && under_way_->step() == step)) return absl::OkStatus();
  LEEWAY_RETURN_IF_ERROR(Wait());
  ScopedState busy(states_, "busy:checkpoint");
  const MonotonicTime begin = clock_->Now();
  LEEWAY_ASSIGN_OR_RETURN(const Checkpoint checkpoint, make());
  const absl::StatusOr<std::string> folder = store_->Begin(step, checkpoint.lineage);
  unsaved_because_ = folder.status();
  if (folder.ok()) {
    LEEWAY_RETURN_IF_ERROR(ranks_->BeginSave(*folder, CheckpointTexts(checkpoint)));
    under_way_.emplace(step, *folder);
  } else {
    LEEWAY_LOG_ERROR("the checkpoint of step {} could not be begun: {}", step, unsaved_because_.ToString());
  }
  times_.wait += absl::ToDoubleSeconds(clock_->Now() - begin);
  return absl::OkStatus();
}

absl::Status CheckpointKeeper::Look() {
  if (!under_way_.has_value()) return absl::OkStatus();
  ScopedState busy(states_, "busy:checkpoint");
  const MonotonicTime begin = clock_->Now();
  const absl::Status status = Ask(absl::ZeroDuration());
  times_.wait += absl::ToDoubleSeconds(clock_->Now() - begin);
  return status;
}

absl::Status CheckpointKeeper::Wait() {
  if (!under_way_.has_value()) return absl::OkStatus();
  ScopedState busy(states_, "busy:checkpoint");
  const MonotonicTime begin = clock_->Now();
  absl::Duration next_word = kSayEvery;
  while (under_way_.has_value()) {
    LEEWAY_RETURN_IF_ERROR(Ask(kAskEvery));
    const absl::Duration waited = clock_->Now() - begin;
    if (!under_way_.has_value() || waited < next_word) continue;
    LEEWAY_LOG_WARNING("training waits for the checkpoint of step {} since {:.0f} s: rank {} still writes into {}",
                       under_way_->step(), absl::ToDoubleSeconds(waited), absl::StrJoin(under_way_->writing(), ", "),
                       under_way_->folder());
    next_word += kSayEvery;
  }
  times_.wait += absl::ToDoubleSeconds(clock_->Now() - begin);
  return absl::OkStatus();
}

absl::Status CheckpointKeeper::Ask(absl::Duration wait) {
  LEEWAY_ASSIGN_OR_RETURN(const std::vector<ShareOutcome> outcomes, ranks_->SaveOutcomes(wait));
  under_way_->Take(outcomes);
  if (!under_way_->is_over()) return absl::OkStatus();
  const CheckpointInProgress over = *std::move(under_way_);
  under_way_.reset();
  times_.write += over.seconds();
  // Whoever stood still while a later trainer took over must not put an older life's checkpoint above that one's.
  LEEWAY_RETURN_IF_ERROR(settle_(settled_step_));
  unsaved_because_ = over.status().ok() ? store_->Complete(over.step(), over.folder(), over.files()) : over.status();
  if (!unsaved_because_.ok()) {
    // Older checkpoints are untouched and the next one may work: a full disk must not end the training that it can not
    // record.
    LEEWAY_LOG_ERROR("the checkpoint of step {} could not be written: {}", over.step(), unsaved_because_.ToString());
    store_->Abandon(over.folder());
    return absl::OkStatus();
  }
  saved_step_ = over.step();
  LEEWAY_FAILPOINT("trainer_after_checkpoint");
  return SettleCovered();
}

absl::Status CheckpointKeeper::Need(uint64_t step, absl::string_view reason, const Make& make) {
  LEEWAY_RETURN_IF_ERROR(Wait());
  LEEWAY_RETURN_IF_ERROR(Save(step, make));
  LEEWAY_RETURN_IF_ERROR(Wait());
  if (saved_step_ == step) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("the checkpoint of step ", step, " could not be written (", std::string(unsaved_because_.message()),
                   ") and ", reason, "; make room on the disk of ", run_directory_, " and start the run again"));
}

absl::Status CheckpointKeeper::MakeRoom(uint64_t step, const Make& make) {
  const uint64_t settled_before = settled_step_;
  LEEWAY_RETURN_IF_ERROR(Need(step, "the queue is full of trained groups that only checkpoints settle", make));
  LEEWAY_RETURN_IF_ERROR(SettleCovered());
  if (settled_step_ > settled_before) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "queue.max_bytes is too small: step ", step + 1, " has no room beside the steps after ", settled_step_,
      ", which stay in the queue until a second checkpoint covers them; raise it and start the run again"));
}

absl::Status CheckpointKeeper::SettleCovered() {
  // What only the newest checkpoint covers stays unsettled until there is a second one.
  const std::vector<uint64_t>& verified = store_->verified_steps();
  return verified.size() < 2 ? absl::OkStatus() : SettleStep(verified[verified.size() - 2]);
}

absl::Status CheckpointKeeper::SettleStep(uint64_t step) {
  if (step <= settled_step_) return absl::OkStatus();
  LEEWAY_RETURN_IF_ERROR(settle_(step));
  settled_step_ = step;
  return absl::OkStatus();
}

}  // namespace leeway
