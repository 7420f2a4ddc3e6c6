// QueueCore towards workers: who they are, and which tickets they get.

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "queue/core/queue_core.h"
#include "queue/store/record_keys.h"

namespace leeway {

// ---- identities -----------------------------------------------------------------------------------------------------

v1::WorkerIdentity QueueCore::RegisterWorker(const std::string& name, MonotonicTime now) {
  const auto [found, is_new] = producer_by_name_.try_emplace(name, workers_.size() + 1);
  if (is_new) {
    workers_.emplace_back();
    workers_.back().name = name;
    workers_.back().identity.set_producer_id(found->second);
  }
  Worker& worker = workers_[found->second - 1];
  if (!is_new && worker.alive) LoseWorker(&worker, "registered again");
  for (const auto& [epoch, first] : worker.answer_records) {
    forgotten_answers_.push_back(RecordKey(RecordKind::kAnswers, {worker.identity.producer_id(), epoch, first}));
  }
  Worker fresh;
  fresh.name = name;
  fresh.identity = worker.identity;
  fresh.identity.set_epoch(is_new ? options_.first_epoch : worker.identity.epoch() + 1);
  fresh.last_seen = now;
  fresh.trajectories = worker.trajectories;
  fresh.failures = worker.failures;
  worker = std::move(fresh);
  MarkChanged(worker);
  Changed();
  return worker.identity;
}

absl::StatusOr<QueueCore::Worker*> QueueCore::FindWorker(const v1::WorkerIdentity& identity) {
  LEEWAY_RETURN_IF_ERROR(CheckIdentity(identity));
  return &workers_[identity.producer_id() - 1];
}

absl::Status QueueCore::CheckIdentity(const v1::WorkerIdentity& identity) const {
  if (identity.producer_id() == 0 || identity.epoch() == 0) {
    return absl::InvalidArgumentError("identity.producer_id and identity.epoch must be set");
  }
  if (identity.producer_id() > workers_.size()) {
    return absl::AbortedError(absl::StrCat("producer ", identity.producer_id(), " is unknown: register"));
  }
  const Worker& worker = workers_[identity.producer_id() - 1];
  if (identity.epoch() != worker.identity.epoch()) {
    return absl::AbortedError(absl::StrCat("worker ", worker.name, ": epoch ", identity.epoch(), " is fenced, epoch ",
                                           worker.identity.epoch(), " is current: register again"));
  }
  if (!worker.alive) {
    return absl::AbortedError(absl::StrCat("worker ", worker.name, " epoch ", identity.epoch(), " is fenced (",
                                           worker.lost_because, "): register again"));
  }
  return absl::OkStatus();
}

void QueueCore::LoseWorker(Worker* worker, const std::string& why) {
  worker->alive = false;
  worker->lost_because = why;
  worker->limited_until = MonotonicTime::InfiniteFuture();
  worker->wait_cause.clear();
  MarkChanged(*worker);
  const std::vector<uint64_t> tickets(worker->running.begin(), worker->running.end());
  for (uint64_t ticket : tickets) {
    Suspicion& suspicion = suspicions_[ticket];
    if (suspicion.losses == 0) suspicion.finished_before = groups_finished_;
    if (++suspicion.losses >= options_.poison_losses && groups_finished_ > suspicion.finished_before) {
      CountFailure("suspected_poison");
      CloseTicket(ticket, RowState::kFailed, step_);
      continue;
    }
    StopRunning(ticket);
    LEEWAY_CHECK(ledger_.ReturnToIssued(ticket).ok()) << ticket;
  }
  evaluation_.WorkerLost(worker->identity.producer_id());
  is_reach_changed_ = true;
  Changed();
}

void QueueCore::SetHolds(Worker* worker, const v1::WeightsVersion& holds) {
  if (worker->holds.lineage() == holds.lineage() && worker->holds.version() == holds.version()) return;
  worker->holds = holds;
  MarkChanged(*worker);
  if (evaluation_.idle()) return;
  evaluation_.OnHeld(holds);
  is_reach_changed_ = true;
  Changed();
}

absl::Status QueueCore::FenceWorker(uint64_t lineage, const v1::WorkerIdentity& identity, const std::string& reason,
                                    MonotonicTime now) {
  LEEWAY_RETURN_IF_ERROR(CheckLineage(lineage));
  // Not CheckOpen: the first publish of a lineage fences before its commit.
  if (phase_ == Phase::kNoTrainer) {
    return absl::FailedPreconditionError(absl::StrCat("lineage ", lineage, " fences before a restore"));
  }
  if (identity.producer_id() == 0 || identity.producer_id() > workers_.size()) {
    return absl::NotFoundError(absl::StrCat("producer ", identity.producer_id(), " never registered"));
  }
  Worker& worker = workers_[identity.producer_id() - 1];
  if (worker.alive && worker.identity.epoch() == identity.epoch()) LoseWorker(&worker, reason);
  return absl::OkStatus();
}

absl::StatusOr<v1::HeartbeatResponse> QueueCore::Heartbeat(const v1::HeartbeatRequest& request, MonotonicTime now) {
  LEEWAY_ASSIGN_OR_RETURN(Worker * worker, FindWorker(request.identity()));
  worker->last_seen = now;
  SetHolds(worker, request.holds());
  if (request.has_report()) worker->report = request.report();
  v1::HeartbeatResponse response;
  for (uint64_t ticket : request.tickets()) {
    if (!worker->running.contains(ticket)) response.add_abandon(ticket);
  }
  *response.mutable_committed() = committed_;
  response.set_committed_digest(committed_digest_);
  response.set_draining(draining_);
  response.set_run_complete(run_complete());
  return response;
}

// ---- time -----------------------------------------------------------------------------------------------------------

std::vector<std::string> QueueCore::Tick(MonotonicTime now) {
  now_ = now;
  std::vector<std::string> events;
  for (Worker& worker : workers_) {
    if (!worker.alive) continue;
    if (worker.last_seen + options_.worker_lease <= now) {
      events.push_back(absl::StrCat("worker ", worker.name, " lost: no sign of life for ",
                                    absl::FormatDuration(now - worker.last_seen), ", ", worker.running.size(),
                                    " tickets return"));
      LoseWorker(&worker, "no sign of life");
    } else if (worker.limited_until <= now) {
      worker.limited_until = MonotonicTime::InfiniteFuture();
      worker.is_share_lifted = true;
      Changed();
    }
  }
  while (!ticket_deadlines_.empty() && ticket_deadlines_.begin()->first <= now.since_origin) {
    const uint64_t ticket = ticket_deadlines_.begin()->second;
    const TicketRow& row = *ledger_.Find(ticket);
    std::vector<uint32_t> missing;
    for (uint32_t member = 0; member < row.members.size(); ++member) {
      if (row.members[member].state == MemberRecord::State::kMissing) missing.push_back(member);
    }
    events.push_back(absl::StrCat("ticket ", ticket, " issue ", row.issue, " passed its deadline on ",
                                  workers_[running_.at(ticket).producer - 1].name, " with ", missing.size(), " of ",
                                  row.members.size(), " members missing"));
    FailMembers(ticket, missing, "deadline");
  }
  is_reach_changed_ = false;
  std::vector<std::string> evaluation_events = evaluation_.Tick(now);
  if (!evaluation_.idle()) {
    std::vector<EvaluationPlan::Holder> live;
    for (const Worker& worker : workers_) {
      if (worker.alive) live.push_back({worker.identity.producer_id(), worker.holds});
    }
    for (std::string& event : evaluation_.EndUnreachable(live)) evaluation_events.push_back(std::move(event));
  }
  for (std::string& event : evaluation_events) {
    events.push_back(std::move(event));
    Changed();
  }
  return events;
}

void QueueCore::ForgiveSilence(absl::Duration pause, MonotonicTime now) {
  for (Worker& worker : workers_) worker.last_seen = std::min(now, worker.last_seen + pause);
  ticket_deadlines_.clear();
  for (auto& [ticket, run] : running_) {
    run.deadline = run.deadline + pause;
    ticket_deadlines_.insert({run.deadline.since_origin, ticket});
  }
  evaluation_.Postpone(pause);
}

MonotonicTime QueueCore::NextEvent() const {
  if (is_reach_changed_ && !evaluation_.idle()) return MonotonicTime();
  MonotonicTime next = evaluation_.NextDeadline();
  if (!ticket_deadlines_.empty()) next = std::min(next, MonotonicTime{ticket_deadlines_.begin()->first});
  for (const Worker& worker : workers_) {
    if (worker.alive) next = std::min({next, worker.last_seen + options_.worker_lease, worker.limited_until});
  }
  return next;
}

// ---- tickets out ----------------------------------------------------------------------------------------------------

absl::Status QueueCore::BeginAcquire(const v1::AcquireTicketsRequest& request, MonotonicTime now) {
  LEEWAY_ASSIGN_OR_RETURN(Worker * worker, FindWorker(request.identity()));
  if (request.max_members() == 0 || request.sequence() == 0) {
    return absl::InvalidArgumentError("max_members and sequence must be at least 1");
  }
  if (request.sequence() < worker->acquire_sequence) return Overtaken(*worker, request.sequence());
  worker->last_seen = now;
  SetHolds(worker, request.holds());
  MarkChanged(*worker);
  if (request.sequence() > worker->acquire_sequence) worker->acquired.clear();
  worker->acquire_sequence = request.sequence();
  // Asked again: what it has already been given is not free.
  if (!worker->acquired.empty()) return absl::OkStatus();
  worker->free_slots = request.max_members();
  worker->slots = worker->free_slots + worker->busy;
  return absl::OkStatus();
}

absl::Status QueueCore::Overtaken(const Worker& worker, uint64_t sequence) {
  return absl::FailedPreconditionError(absl::StrCat("worker ", worker.name, ": request ", sequence,
                                                    " for tickets was overtaken by ", worker.acquire_sequence));
}

absl::StatusOr<v1::AcquireTicketsResponse> QueueCore::AcquireTickets(const v1::WorkerIdentity& identity,
                                                                     uint64_t sequence, MonotonicTime now) {
  LEEWAY_ASSIGN_OR_RETURN(Worker * worker, FindWorker(identity));
  if (sequence == 0 || sequence != worker->acquire_sequence) return Overtaken(*worker, sequence);

  v1::AcquireTicketsResponse response;
  std::string cause;
  if (draining_) {
    cause = "draining";
  } else if (!worker->acquired.empty()) {
    response.mutable_tickets()->Add(worker->acquired.begin(), worker->acquired.end());
  } else if (phase_ != Phase::kOpen) {
    cause = "waiting_for_trainer";
  } else {
    uint64_t free_slots = worker->free_slots;
    AcquireEvaluation(*worker, &free_slots, &response);
    cause = AcquireTraining(worker, &free_slots, now, &response);
    if (run_complete()) cause = "run_complete";
    worker->acquired.assign(response.tickets().begin(), response.tickets().end());
    MarkChanged(*worker);
  }
  if (response.tickets_size() > 0) {
    worker->wait_cause.clear();
  } else {
    if (worker->wait_cause.empty()) worker->wait_since = now;
    worker->wait_cause = cause;
    response.set_cause(cause);
  }
  *response.mutable_committed() = committed_;
  response.set_committed_digest(committed_digest_);
  response.set_run_complete(run_complete());
  return response;
}

void QueueCore::AcquireEvaluation(const Worker& worker, uint64_t* free_slots, v1::AcquireTicketsResponse* response) {
  const uint64_t producer = worker.identity.producer_id();
  const uint64_t share = ShareOf(worker, evaluation_.Reachable(producer, worker.holds));
  for (const EvaluationPlan::Assignment& assignment :
       evaluation_.Acquire(producer, worker.holds, std::min(share, *free_slots))) {
    v1::Ticket* ticket = response->add_tickets();
    ticket->set_id(assignment.id);
    ticket->set_issue(assignment.issue);
    ticket->set_task(options_.task);
    ticket->set_task_index(assignment.id - 1);
    ticket->set_seed(options_.evaluation_seed(assignment.id - 1));
    ticket->set_member_count(1);
    ticket->add_members(0);
    *ticket->mutable_weights() = assignment.weights;
    ticket->set_deadline_ms(absl::ToInt64Milliseconds(options_.evaluation.deadline));
    ticket->set_evaluation(true);
    --*free_slots;
  }
}

std::string QueueCore::AcquireTraining(Worker* worker, uint64_t* free_slots, MonotonicTime now,
                                       v1::AcquireTicketsResponse* response) {
  RetireStaleIssued();
  MakeRoomForRewound();
  // Groups that run or could run, divided by slots: who has its part leaves the rest to the others, for a moment.
  const uint64_t target = ShareOf(*worker, StartableGroups() + running_.size());
  uint64_t share = target > worker->running.size() ? target - worker->running.size() : 0;
  if (worker->running.empty()) share = std::max<uint64_t>(share, 1);
  if (worker->is_share_lifted) share = options_.max_groups;
  worker->is_share_lifted = false;

  std::string cause = StartCause();
  while (*free_slots > 0 && cause.empty() && share > 0) {
    v1::Ticket* message = response->add_tickets();
    StartTicket(PrepareTicket(), worker, now, message);
    *free_slots -= std::min<uint64_t>(*free_slots, message->members_size());
    --share;
    cause = StartCause();
  }
  if (*free_slots > 0 && cause.empty()) {
    if (worker->limited_until == MonotonicTime::InfiniteFuture()) worker->limited_until = now + options_.share_patience;
    return "waiting_for_share";
  }
  worker->limited_until = MonotonicTime::InfiniteFuture();
  return cause;
}

uint64_t QueueCore::ShareOf(const Worker& worker, uint64_t amount) const {
  // Who has not asked yet counts as one like this one.
  uint64_t slots = 0;
  for (const Worker& other : workers_) {
    if (other.alive) slots += other.slots > 0 ? other.slots : worker.slots;
  }
  return (amount * worker.slots + slots - 1) / slots;
}

void QueueCore::RetireStaleIssued() {
  if (options_.staleness.breach != StalenessBreach::kDrop) return;
  std::vector<uint64_t> stale;
  for (uint64_t ticket : ledger_.issued()) {
    const uint64_t oldest = OldestVersion(ledger_.Find(ticket)->versions);
    if (policy_.Judge(step_, oldest) == StalenessPolicy::Verdict::kStale) stale.push_back(ticket);
  }
  for (uint64_t ticket : stale) CloseTicket(ticket, RowState::kStale, step_);
}

bool QueueCore::HasRoomForGroup() const { return ledger_.groups() < options_.max_groups && GroupsOfRoom() > 0; }

uint64_t QueueCore::GroupsOfRoom() const {
  return (options_.max_bytes - std::min(options_.max_bytes, bytes())) / GroupReservation();
}

void QueueCore::MakeRoomForRewound() {
  const auto& rewound = ledger_.rewound();
  if (!IsOrderTicket() || rewound.empty() || !running_.empty() || StartCause() != "queue_full") return;
  const uint64_t ticket = *rewound.begin();
  // Only where the next batch waits for it.
  const auto ahead = static_cast<uint64_t>(std::distance(ledger_.open().begin(), ledger_.open().find(ticket)));
  if (leased_.size() + ahead >= options_.staleness.groups_per_step) return;
  uint64_t wanted = bytes() + GroupReservation() - std::min(options_.max_bytes, bytes() + GroupReservation());
  std::vector<uint64_t> giving_way;
  for (auto last = ledger_.open().rbegin(); wanted > 0 && *last > ticket; ++last) {
    const TicketRow& row = *ledger_.Find(*last);
    if (row.state == RowState::kRewound) continue;
    uint64_t held = MissingBytes(row);
    for (const MemberRecord& member : row.members) held += member.bytes;
    wanted -= std::min(wanted, held);
    giving_way.push_back(*last);
  }
  // Else only a checkpoint can help.
  if (wanted > 0) return;
  for (uint64_t last : giving_way) RewindTicket(last);
}

std::string QueueCore::StartCause() const {
  const uint64_t limit = policy_.RankLimit(step_, requested_step_);
  const auto& issued = ledger_.issued();
  const auto& rewound = ledger_.rewound();
  if (!issued.empty() && ledger_.Rank(*issued.begin()) <= limit) return "";
  const uint64_t next = rewound.empty() ? ledger_.next_ticket() : *rewound.begin();
  if (ledger_.Rank(next) <= limit) return HasRoomForGroup() ? "" : "queue_full";
  const bool is_unrequested = options_.staleness.mode == StalenessMode::kSync && requested_step_ < step_;
  return is_unrequested ? "waiting_for_trainer" : "waiting_for_version";
}

uint64_t QueueCore::PrepareTicket() {
  const auto& issued = ledger_.issued();
  const auto& rewound = ledger_.rewound();
  const bool room = HasRoomForGroup();
  if (!issued.empty() && (rewound.empty() || *issued.begin() < *rewound.begin() || !room)) return *issued.begin();
  reserved_bytes_ += GroupReservation();
  const auto row = rewound.empty() ? ledger_.IssueNew(committed_) : ledger_.Reissue(*rewound.begin(), committed_);
  LEEWAY_CHECK(row.ok()) << row.status();
  return (*row)->ticket;
}

uint64_t QueueCore::StartableGroups() const {
  const uint64_t limit = policy_.RankLimit(step_, requested_step_);
  const uint64_t rank = ledger_.Rank(ledger_.next_ticket());
  const uint64_t paced = ledger_.rewound().size() + (rank <= limit ? limit - rank + 1 : 0);
  const uint64_t groups = ledger_.groups();
  const uint64_t bound = std::min(options_.max_groups - std::min(options_.max_groups, groups), GroupsOfRoom());
  return ledger_.issued().size() + std::min(paced, bound);
}

void QueueCore::StartTicket(uint64_t ticket, Worker* worker, MonotonicTime now, v1::Ticket* message) {
  LEEWAY_CHECK(ledger_.Start(ticket, committed_).ok()) << ticket;
  const TicketRow& row = *ledger_.Find(ticket);
  message->set_id(ticket);
  message->set_issue(row.issue);
  message->set_task(options_.task);
  message->set_task_index(ticket - 1);
  message->set_seed(options_.train_seed(ticket - 1));
  message->set_member_count(options_.group_size);
  for (uint32_t member = 0; member < row.members.size(); ++member) {
    if (row.members[member].state == MemberRecord::State::kMissing) message->add_members(member);
  }
  *message->mutable_weights() = committed_;
  message->set_deadline_ms(absl::ToInt64Milliseconds(options_.ticket_deadline));

  Run run;
  run.producer = worker->identity.producer_id();
  run.started = now;
  run.deadline = now + options_.ticket_deadline;
  run.missing = message->members_size();
  running_[ticket] = run;
  ticket_deadlines_.insert({run.deadline.since_origin, ticket});
  worker->running.insert(ticket);
  worker->busy += run.missing;
}

}  // namespace leeway
