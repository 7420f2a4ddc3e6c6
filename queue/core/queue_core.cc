#include "queue/core/queue_core.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace leeway {

void SaveHistogram(const Histogram& histogram, v1::HistogramCounts* counts) {
  counts->mutable_upper_bounds()->Assign(histogram.upper_bounds().begin(), histogram.upper_bounds().end());
  counts->mutable_counts()->Assign(histogram.counts().begin(), histogram.counts().end());
  counts->set_sum(histogram.sum());
}

absl::StatusOr<std::unique_ptr<QueueCore>> QueueCore::Create(QueueCoreOptions options,
                                                             std::unique_ptr<QueueStore> store, MonotonicTime now) {
  std::string errors;
  const auto require = [&](bool holds, const std::string& error) {
    if (!holds) absl::StrAppend(&errors, errors.empty() ? "" : "; ", error);
  };
  const absl::StatusOr<StalenessPolicy> policy = StalenessPolicy::Create(options.staleness);
  if (!policy.ok()) require(false, std::string(policy.status().message()));
  const uint64_t batch = options.staleness.groups_per_step;
  require(options.group_size > 0, "trainer.group_size must be at least 1");
  require(options.max_groups >= batch,
          absl::StrCat("queue.max_groups = ", options.max_groups,
                       " cannot hold one batch: at least trainer.groups_per_step = ", batch));
  require(options.max_trajectory_bytes > 0, "queue.max_trajectory_bytes must be at least 1");
  const uint64_t batch_bytes = batch * options.group_size * options.max_trajectory_bytes;
  require(options.max_bytes >= batch_bytes,
          absl::StrCat("queue.max_bytes = ", options.max_bytes,
                       " cannot hold one batch: at least groups_per_step * group_size * "
                       "max_trajectory_bytes = ",
                       batch_bytes));
  require(options.min_group_size >= 1 && options.min_group_size <= options.group_size,
          absl::StrCat("the minimum group size ", options.min_group_size,
                       " must lie between 1 and trainer.group_size = ", options.group_size));
  require(!options.filter_zero_variance || options.group_size > 1,
          "the zero-variance filter needs trainer.group_size >= 2");
  require(options.filter_max_refills >= 0.0, "queue.filter_max_refills must not be negative");
  require(options.poison_losses > 0, "the number of losses that make a ticket suspect must be at least 1");
  for (absl::Duration duration :
       {options.worker_lease, options.heartbeat_interval, options.ticket_deadline, options.evaluation.deadline}) {
    require(duration > absl::ZeroDuration(), "all time limits must be positive");
  }
  require(options.heartbeat_interval < options.worker_lease,
          "the heartbeat interval must be shorter than the worker's lease");
  require(options.train_seed != nullptr && options.evaluation_seed != nullptr, "a task's seeds are missing");
  if (!errors.empty()) return absl::InvalidArgumentError(errors);
  std::unique_ptr<QueueCore> core(new QueueCore(std::move(options), *policy, std::move(store)));
  if (core->store_->is_durable()) LEEWAY_RETURN_IF_ERROR(core->Recover(now));
  return core;
}

QueueCore::QueueCore(QueueCoreOptions options, StalenessPolicy policy, std::unique_ptr<QueueStore> store)
    : options_(std::move(options)),
      policy_(policy),
      store_(std::move(store)),
      ledger_(options_.group_size),
      evaluation_(options_.evaluation, options_.staleness.steps + 1),
      lineage_(options_.last_lineage) {}

// ---- launcher -------------------------------------------------------------------------------------------------------

void QueueCore::Drain(MonotonicTime now) {
  if (draining_) return;
  draining_ = true;
  std::vector<uint64_t> tickets;
  for (const auto& [ticket, run] : running_) tickets.push_back(ticket);
  for (uint64_t ticket : tickets) {
    StopRunning(ticket);
    LEEWAY_CHECK(ledger_.ReturnToIssued(ticket).ok()) << ticket;
  }
  Changed();
}

absl::Status QueueCore::CancelTicket(uint64_t ticket) {
  const TicketRow* row = ledger_.Find(ticket);
  const bool is_open = row != nullptr && (row->state == RowState::kIssued || row->state == RowState::kRunning ||
                                          row->state == RowState::kReady);
  if (!is_open) {
    return absl::FailedPreconditionError(absl::StrCat("cancel: ticket ", ticket, " is ",
                                                      row == nullptr ? "not in the table" : RowStateName(row->state)));
  }
  CloseTicket(ticket, RowState::kCancelled, step_);
  return absl::OkStatus();
}

// ---- inspection -----------------------------------------------------------------------------------------------------

bool QueueCore::VersionExists(const v1::WeightsVersion& weights) const {
  return history_.Exists(weights.lineage(), weights.version());
}

bool QueueCore::run_complete() const {
  const uint64_t steps = options_.staleness.steps;
  return phase_ == Phase::kOpen && step_ > steps && ledger_.settled_step() >= steps && evaluation_.idle();
}

bool QueueCore::checkpoint_wanted() const {
  // Asked for two batches ahead: the checkpoint takes time, and only the one before it settles anything.
  const uint64_t ahead = 2 * options_.staleness.groups_per_step * GroupReservation();
  return trained_bytes_ > 0 && trained_bytes_ + ahead > options_.max_bytes;
}

std::string QueueCore::Blocker(MonotonicTime now) const {
  if (ledger_.open().empty()) return "no ticket is issued";
  // The lowest ticket that is not ready: with order `ticket` nothing else can be in the way.
  for (uint64_t ticket : ledger_.open()) {
    const TicketRow& row = *ledger_.Find(ticket);
    if (row.state == RowState::kReady) continue;
    std::string text = absl::StrCat("ticket ", ticket, " ", RowStateName(row.state));
    if (const auto run = running_.find(ticket); run != running_.end()) {
      absl::StrAppend(&text, " on ", workers_[run->second.producer - 1].name, " for ",
                      absl::FormatDuration(absl::Trunc(now - run->second.started, absl::Milliseconds(1))), ", ",
                      run->second.missing, " of ", options_.group_size, " members missing");
    }
    return text;
  }
  return absl::StrCat(ready_.size(), " groups ready, ", options_.staleness.groups_per_step, " wanted");
}

void QueueCore::FillStatus(MonotonicTime now, v1::StatusResponse* status) const {
  *status->mutable_counts() = counts();
  *status->mutable_committed() = committed_;
  status->set_groups(ledger_.groups());
  status->set_bytes(bytes());
  for (const Worker& worker : workers_) {
    v1::WorkerStatus* entry = status->add_workers();
    entry->set_name(worker.name);
    *entry->mutable_identity() = worker.identity;
    entry->set_alive(worker.alive);
    *entry->mutable_holds() = worker.holds;
    entry->set_running_tickets(worker.running.size());
    entry->set_seconds_since_heartbeat(absl::ToDoubleSeconds(now - worker.last_seen));
    entry->set_trajectories(worker.trajectories);
    entry->set_failures(worker.failures);
    *entry->mutable_report() = worker.report;
    if (worker.wait_cause.empty() || !worker.alive) continue;
    v1::OpenWait* wait = status->add_waits();
    wait->set_who(worker.name);
    wait->set_cause(worker.wait_cause);
    wait->set_seconds(absl::ToDoubleSeconds(now - worker.wait_since));
  }
  if (!trainer_wait_cause_.empty()) {
    v1::OpenWait* wait = status->add_waits();
    wait->set_who("trainer");
    wait->set_cause(trainer_wait_cause_);
    wait->set_seconds(absl::ToDoubleSeconds(now - trainer_wait_since_));
    wait->set_detail(Blocker(now));
  }
  status->set_next_ticket(ledger_.next_ticket());
  status->set_conservation_holds(ledger_.CountsAreConserved());
  for (v1::EvaluationResult& result : evaluation_.Results()) *status->add_evaluations() = std::move(result);
  for (const auto& [name, count] : answers_) (*status->mutable_answers())[name] = count;
  if (zero_advantage_groups_ > 0) (*status->mutable_answers())["zero_advantage_group"] = zero_advantage_groups_;
  for (const auto& [code, count] : episode_failures_) (*status->mutable_episode_failures())[code] = count;
  status->set_generated_tokens(generated_tokens_);
  if (completed_trajectories_ > 0) {
    status->set_generated_length_mean(static_cast<double>(generated_tokens_) /
                                      static_cast<double>(completed_trajectories_));
  }
  status->set_checkpoint_wanted(checkpoint_wanted());
  SaveHistogram(lease_age_, &(*status->mutable_histograms())["queue/lease_age_seconds"]);
  SaveHistogram(lease_lag_, &(*status->mutable_histograms())["queue/lease_lag"]);
  if (const std::string refusal = store_->refusal(); !refusal.empty()) {
    v1::OpenWait* wait = status->add_waits();
    wait->set_who("queue");
    wait->set_cause("store_refuses");
    wait->set_detail(refusal);
  }
}

absl::Status QueueCore::VisitPayloads(const PayloadVisitor& visit) const {
  for (const TicketRow* row : ledger_.SortedRows()) {
    for (uint32_t member = 0; member < row->members.size(); ++member) {
      const PayloadKey key = {row->ticket, member};
      const auto payload = store_->Get(key);
      if (payload.ok()) LEEWAY_RETURN_IF_ERROR(visit(key, **payload));
    }
  }
  return absl::OkStatus();
}

// ---- invariants -----------------------------------------------------------------------------------------------------

absl::Status QueueCore::CheckRuns() const {
  uint64_t running = 0;
  for (const Worker& worker : workers_) {
    uint64_t busy = 0;
    for (uint64_t ticket : worker.running) {
      const auto run = running_.find(ticket);
      if (run == running_.end() || run->second.producer != worker.identity.producer_id() || !worker.alive) {
        return absl::InternalError(absl::StrCat("ticket ", ticket, " is not run by ", worker.name));
      }
      const TicketRow* row = ledger_.Find(ticket);
      if (row == nullptr || row->state != RowState::kRunning ||
          row->CountMembers(MemberRecord::State::kMissing) != run->second.missing) {
        return absl::InternalError(absl::StrCat("run of ticket ", ticket, " disagrees with its row"));
      }
      busy += run->second.missing;
    }
    running += worker.running.size();
    if (busy != worker.busy)
      return absl::InternalError(absl::StrCat(worker.name, " has ", busy, " busy slots, not ", worker.busy));
  }
  if (running != running_.size() || running != ledger_.count(RowState::kRunning) ||
      running != ticket_deadlines_.size()) {
    return absl::InternalError(absl::StrCat(ledger_.count(RowState::kRunning), " rows run, ", running_.size(),
                                            " runs, ", running, " at workers, ", ticket_deadlines_.size(),
                                            " deadlines"));
  }
  return absl::OkStatus();
}

absl::Status QueueCore::CheckBytes() const {
  uint64_t held = 0;
  uint64_t reserved = 0;
  uint64_t trained = 0;
  uint64_t payloads = 0;
  for (const TicketRow* row : ledger_.SortedRows()) {
    reserved += MissingBytes(*row);
    const bool is_closed = row->state == RowState::kFiltered || row->state == RowState::kStale ||
                           row->state == RowState::kFailed || row->state == RowState::kCancelled;
    if (is_closed) continue;
    for (const MemberRecord& member : row->members) {
      held += member.bytes;
      payloads += member.state == MemberRecord::State::kDelivered ? 1 : 0;
      if (row->state == RowState::kTrained) trained += member.bytes;
    }
  }
  if (held != store_->bytes() || payloads != store_->payloads() || reserved != reserved_bytes_ ||
      trained != trained_bytes_) {
    return absl::InternalError(absl::StrCat("the rows hold ", held, " bytes in ", payloads, " payloads and reserve ",
                                            reserved, ", ", trained, " trained; counted are ", store_->bytes(), ", ",
                                            store_->payloads(), ", ", reserved_bytes_, ", ", trained_bytes_));
  }
  return absl::OkStatus();
}

absl::Status QueueCore::CheckInvariants() const {
  LEEWAY_RETURN_IF_ERROR(CheckConsistency());
  if (ledger_.groups() > options_.max_groups) {
    return absl::InternalError(absl::StrCat(ledger_.groups(), " groups, the bound is ", options_.max_groups));
  }
  if (bytes() > options_.max_bytes) {
    return absl::InternalError(absl::StrCat(bytes(), " bytes, the bound is ", options_.max_bytes));
  }
  return absl::OkStatus();
}

absl::Status QueueCore::CheckConsistency() const {
  LEEWAY_RETURN_IF_ERROR(ledger_.CheckConservation());
  LEEWAY_RETURN_IF_ERROR(CheckRuns());
  LEEWAY_RETURN_IF_ERROR(CheckBytes());
  if (ready_.size() != ledger_.count(RowState::kReady) || ready_.size() != ready_keys_.size() ||
      leased_.size() != ledger_.count(RowState::kLeased)) {
    return absl::InternalError("ready or leased groups disagree with the rows");
  }
  for (const auto& [key, ticket] : ready_) {
    if (ledger_.Find(ticket)->state != RowState::kReady)
      return absl::InternalError(absl::StrCat("ticket ", ticket, " is not ready"));
  }
  for (uint64_t ticket : leased_) {
    const TicketRow& row = *ledger_.Find(ticket);
    if (row.state != RowState::kLeased || row.step != step_)
      return absl::InternalError(absl::StrCat("ticket ", ticket, " is not leased"));
  }
  return absl::OkStatus();
}

}  // namespace leeway
