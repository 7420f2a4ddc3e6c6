// QueueCore towards the trainer: lineages, restores, batches, commits.

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "base/status_macros.h"
#include "queue/core/queue_core.h"

namespace leeway {
namespace {

constexpr uint32_t kSnapshotFormat = 1;
constexpr size_t kDigestLength = 32;

}  // namespace

// ---- lineages -------------------------------------------------------------------------------------------------------

uint64_t QueueCore::AllocateLineage(v1::WeightsVersion* committed) {
  ++lineage_;
  phase_ = Phase::kNoTrainer;
  trainer_wait_cause_.clear();
  *committed = committed_;
  Changed();
  return lineage_;
}

absl::Status QueueCore::CheckLineage(uint64_t lineage) const {
  if (lineage == 0) return absl::InvalidArgumentError("lineage must be set");
  if (lineage < lineage_) {
    return absl::AbortedError(
        absl::StrCat("lineage ", lineage, " is fenced: lineage ", lineage_, " is current; exit and restore"));
  }
  if (lineage > lineage_)
    return absl::FailedPreconditionError(absl::StrCat("lineage ", lineage, " was never allocated"));
  return absl::OkStatus();
}

absl::Status QueueCore::CheckOpen(uint64_t lineage, const std::string& call) const {
  LEEWAY_RETURN_IF_ERROR(CheckLineage(lineage));
  if (phase_ == Phase::kOpen) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(call, " before the initial commit of lineage ", lineage));
}

const char* QueueCore::OrderName(StalenessOrder order) {
  switch (order) {
    case StalenessOrder::kTicket:
      return "ticket";
    case StalenessOrder::kOldest:
      return "oldest";
    case StalenessOrder::kReady:
      return "ready";
  }
  return "";
}

// ---- snapshot -------------------------------------------------------------------------------------------------------

absl::StatusOr<std::string> QueueCore::Snapshot(uint64_t lineage) const {
  LEEWAY_RETURN_IF_ERROR(CheckOpen(lineage, "snapshot"));
  LEEWAY_RETURN_IF_ERROR(ledger_.CheckConservation());
  v1::LedgerSnapshot snapshot;
  snapshot.set_format(kSnapshotFormat);
  snapshot.set_task(options_.task);
  snapshot.set_groups_per_step(options_.staleness.groups_per_step);
  snapshot.set_order(OrderName(options_.staleness.order));
  snapshot.set_budget(options_.staleness.budget);
  *snapshot.mutable_committed() = committed_;
  for (const LineageHistory::Life& life : history_.lives()) {
    v1::LineageLife* saved = snapshot.add_lives();
    saved->set_lineage(life.lineage);
    saved->set_restored_step(life.restored_step);
    saved->set_last_committed(life.last_committed);
  }
  ledger_.Save(&snapshot);
  const std::string bytes = snapshot.SerializeAsString();
  return Digest128(bytes.data(), bytes.size()) + bytes;
}

absl::StatusOr<QueueCore::Checkpoint> QueueCore::LoadSnapshot(const std::string& bytes, uint64_t step) const {
  v1::LedgerSnapshot snapshot;
  if (bytes.size() < kDigestLength ||
      Digest128(bytes.data() + kDigestLength, bytes.size() - kDigestLength) != bytes.substr(0, kDigestLength) ||
      !snapshot.ParseFromArray(bytes.data() + kDigestLength, static_cast<int>(bytes.size() - kDigestLength))) {
    return absl::DataLossError(
        absl::StrCat("ledger snapshot of step ", step, " is damaged (", bytes.size(), " bytes)"));
  }
  std::string errors;
  const auto require = [&](const char* what, auto saved, auto here) {
    if (saved != here) absl::StrAppend(&errors, what, " is ", saved, " in the checkpoint and ", here, " here; ");
  };
  require("snapshot format", snapshot.format(), kSnapshotFormat);
  require("task", snapshot.task(), options_.task);
  require("trainer.group_size", snapshot.group_size(), options_.group_size);
  require("trainer.groups_per_step", snapshot.groups_per_step(), options_.staleness.groups_per_step);
  require("staleness.order", snapshot.order(), std::string(OrderName(options_.staleness.order)));
  if (snapshot.budget() > options_.staleness.budget) {
    absl::StrAppend(&errors, "staleness.budget is ", snapshot.budget(), " in the checkpoint and may not be lowered to ",
                    options_.staleness.budget, "; ");
  }
  if (snapshot.committed().version() < step + 1) {
    absl::StrAppend(&errors, "it was taken at version ", snapshot.committed().version(), ", before step ", step,
                    " was over; ");
  }
  if (!errors.empty()) return absl::InvalidArgumentError(absl::StrCat("ledger snapshot of step ", step, ": ", errors));

  Checkpoint checkpoint{Ledger(options_.group_size), LineageHistory(), snapshot.committed()};
  for (const v1::LineageLife& life : snapshot.lives()) {
    LEEWAY_RETURN_IF_ERROR(checkpoint.history.Restore(life.lineage(), life.restored_step()));
    checkpoint.history.AdoptCommits(life.last_committed());
  }
  LEEWAY_ASSIGN_OR_RETURN(checkpoint.ledger, Ledger::Load(snapshot, options_.group_size));
  return checkpoint;
}

// ---- restore --------------------------------------------------------------------------------------------------------

absl::Status QueueCore::Restore(uint64_t lineage, uint64_t step, const std::string& snapshot, MonotonicTime now) {
  LEEWAY_RETURN_IF_ERROR(CheckLineage(lineage));
  if (phase_ == Phase::kRestored && step_ == step + 1) return absl::OkStatus();
  if (phase_ != Phase::kNoTrainer) {
    return absl::FailedPreconditionError(
        absl::StrCat("lineage ", lineage, " has restored step ", step_ - 1, " already"));
  }
  if (step > options_.staleness.steps) {
    return absl::InvalidArgumentError(
        absl::StrCat("restores the end of step ", step, ", but trainer.steps is ", options_.staleness.steps));
  }
  std::optional<Checkpoint> checkpoint;
  if (!snapshot.empty()) {
    LEEWAY_ASSIGN_OR_RETURN(checkpoint, LoadSnapshot(snapshot, step));
    const auto& lives = checkpoint->history.lives();
    if (!lives.empty() && lives.back().lineage >= lineage) {
      // The record of lineages is gone, or older than the checkpoint: the next one given is new.
      lineage_ = lives.back().lineage;
      return absl::AbortedError(absl::StrCat("lineage ", lineage, " was given again: the checkpoint of step ", step,
                                             " knows lineage ", lineage_,
                                             " already; a new start is given a newer one"));
    }
  }
  const bool is_new = ledger_.next_ticket() == 1 && history_.lives().empty();
  if (is_new) {
    if (step > 0 && !checkpoint) {
      return absl::InvalidArgumentError(absl::StrCat("this queue is new: to go on after step ", step,
                                                     " it needs the ledger snapshot of the checkpoint"));
    }
    if (checkpoint) {
      ledger_ = std::move(checkpoint->ledger);
      if (store_->is_durable()) {
        ledger_.TrackChanges();
        ledger_.MarkAllChanged();
      }
      // No worker runs them and no room is reserved for them here: they are issued again, lowest first.
      for (const TicketRow* row : ledger_.SortedRows()) {
        if (row->state != RowState::kIssued && row->state != RowState::kRunning) continue;
        LEEWAY_CHECK(ledger_.Rewind(row->ticket).ok()) << row->ticket;
      }
      history_ = std::move(checkpoint->history);
      checkpoint.reset();
    }
  } else {
    const auto& lives = history_.lives();
    const auto reached = [&](const LineageHistory::Life& life) { return history_.Exists(life.lineage, step + 1); };
    if (step > 0 && std::none_of(lives.begin(), lives.end(), reached)) {
      const bool was_reached = std::any_of(lives.begin(), lives.end(), [&](const LineageHistory::Life& life) {
        return history_.Check(life.lineage, step + 1) == LineageHistory::Existence::kVoid;
      });
      if (was_reached) {
        return absl::FailedPreconditionError(
            absl::StrCat("the checkpoint of step ", step, " belongs to a history that a later restore has left"));
      }
      return absl::DataLossError(absl::StrCat(
          "version ", step + 1, ", the end of step ", step,
          ", does not exist in this queue: its store (the "
          "run's folder `queue`) is older than the checkpoint; move it away to go on from the checkpoint"));
    }
    if (checkpoint && step > 0) {
      // The life in which the checkpoint was written must not have been thrown away before that version.
      const auto& saved = checkpoint->history.lives();
      if (saved.empty() || !history_.Exists(saved.back().lineage, step + 1)) {
        return absl::FailedPreconditionError(
            absl::StrCat("the checkpoint of step ", step, " belongs to a history that a later restore has left"));
      }
    }
    if (step > 0 && step < ledger_.settled_step() && !checkpoint) {
      return absl::InvalidArgumentError(absl::StrCat("step ", step, " lies below the settled step ",
                                                     ledger_.settled_step(),
                                                     ": the ledger snapshot of the checkpoint is needed"));
    }
  }

  now_ = now;
  LEEWAY_RETURN_IF_ERROR(history_.Restore(lineage, step));
  const Ledger::Restored restored =
      ledger_.RestoreTo(step, history_, checkpoint && step > 0 ? &checkpoint->ledger : nullptr);
  for (uint64_t ticket : restored.rewound) {
    StopRunning(ticket);
    suspicions_.erase(ticket);
    ErasePayloads(ticket);
  }
  RebuildAfterRestore(step);
  evaluation_.OnRestore(step);
  phase_ = Phase::kRestored;
  Changed();
  return absl::OkStatus();
}

void QueueCore::RebuildAfterRestore(uint64_t step) {
  step_ = step + 1;
  requested_step_ = 0;
  leased_.clear();
  ready_.clear();
  ready_keys_.clear();
  unjudged_.clear();
  filtered_in_step_.clear();
  reserved_bytes_ = 0;
  trained_bytes_ = 0;
  judged_kept_ = step * options_.staleness.groups_per_step;
  judged_through_ = (ledger_.open().empty() ? ledger_.next_ticket() : *ledger_.open().begin()) - 1;
  for (const TicketRow* row : ledger_.SortedRows()) {
    reserved_bytes_ += MissingBytes(*row);
    if (row->state == RowState::kReady) {
      LEEWAY_CHECK(ledger_.SetZeroAdvantage(row->ticket, false).ok()) << row->ticket;
      AddReady(*row);
    } else if (row->state == RowState::kTrained) {
      for (const MemberRecord& member : row->members) trained_bytes_ += member.bytes;
    } else if (row->state == RowState::kFiltered && row->step > step) {
      ++filtered_in_step_[row->step];
    }
  }
  if (IsOrderTicket()) JudgeVariance();
}

void QueueCore::AddReady(const TicketRow& row) {
  LEEWAY_CHECK(ledger_.SetCompletion(row.ticket, ++last_completion_).ok()) << row.ticket;
  IndexReady(row);
}

void QueueCore::IndexReady(const TicketRow& row) {
  const auto key = policy_.KeyOf(row.ticket, OldestVersion(row.versions), row.completion);
  ready_.insert({key, row.ticket});
  ready_keys_[row.ticket] = {key, now_};
  if (options_.filter_zero_variance && !IsOrderTicket() && !row.zero_advantage) unjudged_.insert(row.ticket);
}

// ---- zero-variance filter -------------------------------------------------------------------------------------------

bool QueueCore::KeepOrFilter(const TicketRow& row, uint64_t step) {
  // Of the members that were scored; a group in which none was is not judged.
  std::optional<double> first;
  for (const MemberRecord& member : row.members) {
    if (!member.reward.has_value()) continue;
    if (!first.has_value()) first = member.reward;
    if (member.reward != first) return true;
  }
  if (!first.has_value()) return true;
  const double limit = options_.filter_max_refills * static_cast<double>(options_.staleness.groups_per_step);
  if (static_cast<double>(filtered_in_step_[step] + 1) <= limit) {
    ++filtered_in_step_[step];
    CloseTicket(row.ticket, RowState::kFiltered, step);
    return false;
  }
  LEEWAY_CHECK(ledger_.SetZeroAdvantage(row.ticket, true).ok()) << row.ticket;
  ++zero_advantage_groups_;
  return true;
}

void QueueCore::JudgeVariance() {
  if (!options_.filter_zero_variance || is_judging_) return;
  is_judging_ = true;
  if (IsOrderTicket()) {
    for (auto next = ledger_.open().upper_bound(judged_through_); next != ledger_.open().end();
         next = ledger_.open().upper_bound(judged_through_)) {
      const TicketRow& row = *ledger_.Find(*next);
      if (row.state != RowState::kReady) break;
      const uint64_t ticket = row.ticket;
      if (KeepOrFilter(row, judged_kept_ / options_.staleness.groups_per_step + 1)) ++judged_kept_;
      judged_through_ = ticket;
    }
  } else {
    const std::vector<uint64_t> unjudged(unjudged_.begin(), unjudged_.end());
    for (uint64_t ticket : unjudged) KeepOrFilter(*ledger_.Find(ticket), step_);
    unjudged_.clear();
  }
  is_judging_ = false;
}

// ---- batches --------------------------------------------------------------------------------------------------------

absl::StatusOr<std::vector<uint64_t>> QueueCore::PickGroups(uint64_t wanted) {
  std::vector<uint64_t> picked;
  if (IsOrderTicket()) {
    // Strictly by id: the next groups, or none yet.
    for (uint64_t ticket : ledger_.open()) {
      if (picked.size() == wanted) break;
      const TicketRow& row = *ledger_.Find(ticket);
      if (row.state != RowState::kReady) return std::vector<uint64_t>();
      if (options_.filter_zero_variance && ticket > judged_through_) return std::vector<uint64_t>();
      const StalenessPolicy::Verdict verdict = policy_.Judge(step_, OldestVersion(row.versions));
      if (verdict != StalenessPolicy::Verdict::kTrain && verdict != StalenessPolicy::Verdict::kMask) {
        return absl::InternalError(
            absl::StrCat("ticket ", ticket, " has tokens of version ", OldestVersion(row.versions), " at step ", step_,
                         ": beyond the budget of ", policy_.lag_limit(), " although order `ticket` keeps it"));
      }
      picked.push_back(ticket);
    }
  } else {
    JudgeVariance();
    std::vector<uint64_t> stale;
    for (const auto& [key, ticket] : ready_) {
      if (picked.size() == wanted) break;
      const uint64_t oldest = OldestVersion(ledger_.Find(ticket)->versions);
      const bool is_stale = policy_.Judge(step_, oldest) == StalenessPolicy::Verdict::kStale;
      (is_stale ? stale : picked).push_back(ticket);
    }
    for (uint64_t ticket : stale) CloseTicket(ticket, RowState::kStale, step_);
  }
  if (picked.size() < wanted) picked.clear();
  return picked;
}

uint64_t QueueCore::LagOf(const TicketRow& row, uint64_t step) {
  const uint64_t oldest = OldestVersion(row.versions);
  return oldest == 0 ? 0 : step - std::min(step, oldest);
}

bool QueueCore::HasLiveWorker() const {
  return std::any_of(workers_.begin(), workers_.end(), [](const Worker& worker) { return worker.alive; });
}

std::string QueueCore::LeaseCause() const {
  if (draining_) return "draining";
  if (!HasLiveWorker()) return "waiting_for_rollouts";
  const bool is_stuck = running_.empty() && ledger_.groups() < options_.max_groups && StartCause() == "queue_full";
  return is_stuck && trained_bytes_ > 0 ? "queue_needs_checkpoint" : "waiting_for_groups";
}

absl::StatusOr<LeaseResult> QueueCore::Lease(uint64_t lineage, uint64_t step, MonotonicTime now) {
  LEEWAY_RETURN_IF_ERROR(CheckOpen(lineage, absl::StrCat("lease for step ", step)));
  if (step != step_ || step > options_.staleness.steps) {
    return absl::FailedPreconditionError(absl::StrCat("lease for step ", step, ", but version ", step_,
                                                      " is committed and trainer.steps is ", options_.staleness.steps));
  }
  now_ = now;
  if (requested_step_ < step) {
    requested_step_ = step;
    if (options_.staleness.mode == StalenessMode::kSync) Changed();  // the request admits its groups
  }
  LeaseResult result;
  result.lag_limit = policy_.lag_limit();
  const uint64_t wanted = options_.staleness.groups_per_step - leased_.size();
  if (wanted > 0) {
    const bool has_to_wait = evaluation_.AwaitsHolder(now) && HasLiveWorker();
    LEEWAY_ASSIGN_OR_RETURN(const std::vector<uint64_t> picked,
                            has_to_wait ? std::vector<uint64_t>() : PickGroups(wanted));
    if (picked.empty()) {
      result.cause = has_to_wait ? "waiting_for_evaluation" : LeaseCause();
      if (trainer_wait_cause_.empty()) trainer_wait_since_ = now;
      trainer_wait_cause_ = result.cause;
      return result;
    }
    for (uint64_t ticket : picked) {
      LEEWAY_CHECK(ledger_.Lease(ticket, step).ok()) << ticket;
      const Ready ready = ready_keys_.at(ticket);
      lease_age_.Add(absl::ToDoubleSeconds(now - ready.since));
      lease_lag_.Add(static_cast<double>(LagOf(*ledger_.Find(ticket), step)));
      ready_.erase({ready.key, ticket});
      ready_keys_.erase(ticket);
      leased_.insert(ticket);
    }
  }
  trainer_wait_cause_.clear();
  for (uint64_t ticket : leased_) {
    const TicketRow& row = *ledger_.Find(ticket);
    LeasedGroup group{ticket, row.issue, row.zero_advantage, {}};
    for (uint32_t member = 0; member < row.members.size(); ++member) {
      if (row.members[member].state != MemberRecord::State::kDelivered) continue;
      LEEWAY_ASSIGN_OR_RETURN(auto payload, store_->Get({ticket, member}));
      group.members.push_back(std::move(payload));
    }
    result.groups.push_back(std::move(group));
  }
  return result;
}

absl::StatusOr<std::vector<std::shared_ptr<const StoredPayload>>> QueueCore::RetireGroup(uint64_t lineage,
                                                                                         uint64_t step, uint64_t ticket,
                                                                                         const std::string& reason) {
  using Payloads = std::vector<std::shared_ptr<const StoredPayload>>;
  LEEWAY_RETURN_IF_ERROR(CheckOpen(lineage, absl::StrCat("retirement of ticket ", ticket)));
  const TicketRow* row = ledger_.Find(ticket);
  const bool is_repeated = row != nullptr && row->state == RowState::kFailed && row->step == step;
  if (is_repeated) return Payloads();
  if (step != step_ || !leased_.contains(ticket)) {
    return absl::FailedPreconditionError(absl::StrCat("ticket ", ticket, " is not leased for step ", step));
  }
  Payloads payloads;
  for (uint32_t member = 0; member < row->members.size(); ++member) {
    if (row->members[member].state != MemberRecord::State::kDelivered) continue;
    LEEWAY_ASSIGN_OR_RETURN(auto payload, store_->Get({ticket, member}));
    payloads.push_back(std::move(payload));
  }
  CountFailure(reason);
  CloseTicket(ticket, RowState::kFailed, step_);
  return payloads;
}

void QueueCore::RewindDamaged(uint64_t ticket, uint32_t issue) {
  if (!leased_.contains(ticket) || ledger_.Find(ticket)->issue != issue) return;
  leased_.erase(ticket);
  RewindTicket(ticket);
}

// ---- commits --------------------------------------------------------------------------------------------------------

absl::Status QueueCore::Commit(const v1::CommitRequest& request, MonotonicTime now) {
  LEEWAY_RETURN_IF_ERROR(CheckLineage(request.lineage()));
  if (request.version() == 0 || request.digest().empty())
    return absl::InvalidArgumentError("version and digest must be set");
  const std::string what = absl::StrCat("commit of version ", request.version(), " of lineage ", request.lineage());
  if (phase_ == Phase::kNoTrainer) return absl::FailedPreconditionError(absl::StrCat(what, " before a restore"));
  if (committed_.lineage() == request.lineage() && committed_.version() == request.version()) {
    if (request.digest() == committed_digest_) return absl::OkStatus();
    return absl::FailedPreconditionError(
        absl::StrCat(what, " again, with digest ", request.digest(), " after ", committed_digest_));
  }
  const bool is_initial = phase_ == Phase::kRestored;
  if (request.initial() != is_initial || request.version() != step_ + (is_initial ? 0 : 1)) {
    return absl::FailedPreconditionError(absl::StrCat(
        what, is_initial ? ": the initial commit of version " : ": the end of step ", step_, " is expected"));
  }
  const std::set<uint64_t> tickets(request.tickets().begin(), request.tickets().end());
  if (!std::equal(tickets.begin(), tickets.end(), leased_.begin(), leased_.end()) ||
      tickets.size() != static_cast<size_t>(request.tickets_size()) ||
      tickets.size() != (is_initial ? 0 : options_.staleness.groups_per_step)) {
    return absl::FailedPreconditionError(absl::StrCat(what, ": its ", request.tickets_size(),
                                                      " groups are not exactly the ", leased_.size(),
                                                      " leased for step ", step_));
  }

  LEEWAY_RETURN_IF_ERROR(history_.Commit(request.lineage(), request.version()));
  for (uint64_t ticket : leased_) {
    for (const MemberRecord& member : ledger_.Find(ticket)->members) trained_bytes_ += member.bytes;
    LEEWAY_CHECK(ledger_.Train(ticket).ok()) << ticket;
  }
  leased_.clear();
  filtered_in_step_.erase(filtered_in_step_.begin(), filtered_in_step_.upper_bound(step_ - (is_initial ? 1 : 0)));
  phase_ = Phase::kOpen;
  step_ = request.version();
  committed_.set_lineage(request.lineage());
  committed_.set_version(request.version());
  committed_digest_ = request.digest();
  has_committed_ = true;
  std::vector<uint64_t> members;
  for (const v1::WorkerIdentity& identity : request.members()) {
    if (CheckIdentity(identity).ok()) members.push_back(identity.producer_id());
  }
  evaluation_.OnCommit(committed_, members, now);
  is_reach_changed_ = true;
  Changed();
  return absl::OkStatus();
}

absl::Status QueueCore::Settle(uint64_t lineage, uint64_t step) {
  LEEWAY_RETURN_IF_ERROR(CheckOpen(lineage, absl::StrCat("settle through step ", step)));
  if (step >= step_) {
    return absl::FailedPreconditionError(
        absl::StrCat("settle through step ", step, ", but step ", step_, " is still to be trained"));
  }
  const uint64_t before = store_->bytes();
  for (uint64_t ticket : ledger_.SettleThrough(step)) ErasePayloads(ticket);
  trained_bytes_ -= before - store_->bytes();
  Changed();
  return absl::OkStatus();
}

}  // namespace leeway
