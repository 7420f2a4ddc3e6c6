// QueueCore at the door: what is answered to a trajectory, and how groups complete, fail and close.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/status_macros.h"
#include "queue/core/queue_core.h"

namespace leeway {
namespace {

v1::PushAnswer MakeAnswer(v1::PushResult result, std::string reason) {
  v1::PushAnswer answer;
  answer.set_result(result);
  answer.set_reason(std::move(reason));
  return answer;
}

// "code: detail" -> "code".
std::string CodeOf(const std::string& reason) { return reason.substr(0, reason.find(':')); }

}  // namespace

// ---- sequence -------------------------------------------------------------------------------------------------------

std::optional<v1::PushAnswer> QueueCore::RememberedAnswer(const v1::WorkerIdentity& identity, uint64_t sequence) const {
  if (!CheckIdentity(identity).ok()) return std::nullopt;
  const Worker& worker = workers_[identity.producer_id() - 1];
  if (sequence >= worker.next_sequence || worker.next_sequence - sequence > worker.answers.size()) return std::nullopt;
  return worker.answers[worker.answers.size() - (worker.next_sequence - sequence)];
}

absl::StatusOr<v1::PushAnswer> QueueCore::Push(const v1::WorkerIdentity& identity, uint64_t sequence,
                                               PushedTrajectory* trajectory, MonotonicTime now) {
  LEEWAY_ASSIGN_OR_RETURN(Worker * worker, FindWorker(identity));
  worker->last_seen = now;
  now_ = now;
  if (sequence == 0) return absl::InvalidArgumentError("sequence must be set: numbers start at 1 in every epoch");
  if (sequence < worker->next_sequence) {
    if (auto remembered = RememberedAnswer(identity, sequence)) return *std::move(remembered);
    return absl::OutOfRangeError(absl::StrCat("worker ", worker->name, ": the answer to sequence ", sequence,
                                              " is forgotten, ", worker->next_sequence, " is expected"));
  }
  if (sequence > worker->next_sequence) {
    return absl::FailedPreconditionError(absl::StrCat("worker ", worker->name, ": gap in the sequence, ", sequence,
                                                      " came and ", worker->next_sequence, " is expected"));
  }
  LEEWAY_ASSIGN_OR_RETURN(v1::PushAnswer answer, JudgePush(worker, trajectory));
  answer.set_sequence(sequence);
  ++answers_[v1::PushResult_Name(answer.result())];
  if (answer.result() == v1::FULL) return answer;
  if (answer.result() == v1::REJECTED) ++answers_[CodeOf(answer.reason())];
  ++worker->trajectories;
  if (answer.result() == v1::REJECTED || !trajectory->summary.completed) ++worker->failures;
  ++worker->next_sequence;
  worker->answers.push_back(answer);
  ++worker->unwritten_answers;
  if (worker->answers.size() > kRememberedAnswers) worker->answers.pop_front();
  MarkChanged(*worker);
  return answer;
}

// ---- judgement ------------------------------------------------------------------------------------------------------

std::string QueueCore::CheckVersions(const TicketRow& row, const VersionUse& versions, bool* is_void) const {
  *is_void = false;
  for (const LineageUse& use : versions) {
    for (uint64_t version : {use.oldest, use.newest}) {
      const LineageHistory::Existence existence = history_.Check(use.lineage, version);
      if (existence == LineageHistory::Existence::kUnknown) {
        return absl::StrCat("unknown_version: version ", version, " of lineage ", use.lineage, " was never committed");
      }
      *is_void |= existence == LineageHistory::Existence::kVoid;
    }
  }
  if (OldestVersion(versions) < row.issued_at.version() && !versions.empty() && !*is_void) {
    return absl::StrCat("version_before_ticket: tokens of version ", OldestVersion(versions),
                        ", but the ticket was issued at version ", row.issued_at.version());
  }
  return "";
}

v1::PushAnswer QueueCore::JudgeEvaluation(const Worker& worker, const PushedTrajectory& trajectory) {
  const uint64_t producer = worker.identity.producer_id();
  std::string reason = trajectory.reject_reason;
  v1::PushResult result = v1::REJECTED;
  if (reason.empty()) {
    result = evaluation_.Push(producer, trajectory.summary, &reason);
  } else {
    evaluation_.Fail(producer, trajectory.summary.key);
  }
  if (!trajectory.summary.completed && result == v1::ACCEPTED) CountFailure(trajectory.summary.failure_code);
  // The run may be complete; the version may be gone, and its episode another worker's.
  is_reach_changed_ = true;
  Changed();
  return MakeAnswer(result, std::move(reason));
}

absl::StatusOr<v1::PushAnswer> QueueCore::JudgePush(Worker* worker, PushedTrajectory* trajectory) {
  const TrajectorySummary& summary = trajectory->summary;
  if (summary.evaluation) return JudgeEvaluation(*worker, *trajectory);
  const uint64_t ticket = summary.key.ticket();
  const uint32_t member = summary.key.member();
  if (ticket == 0 || ticket >= ledger_.next_ticket() || member >= options_.group_size) {
    if (!trajectory->reject_reason.empty()) return MakeAnswer(v1::REJECTED, trajectory->reject_reason);
    return MakeAnswer(v1::REJECTED, absl::StrCat("unknown_ticket: ticket ", ticket, " member ", member));
  }

  // Is it still wanted?
  const TicketRow* row = ledger_.Find(ticket);
  if (row == nullptr) return MakeAnswer(v1::GROUP_CLOSED, "settled");
  const bool is_kept = row->state == RowState::kIssued || row->state == RowState::kRunning ||
                       row->state == RowState::kReady || row->state == RowState::kLeased ||
                       row->state == RowState::kTrained;
  if (is_kept && member < row->members.size() && row->members[member].state == MemberRecord::State::kDelivered) {
    return MakeAnswer(v1::DUPLICATE, "delivered before");
  }
  if (row->state != RowState::kRunning) return MakeAnswer(v1::GROUP_CLOSED, RowStateName(row->state));
  if (row->issue != summary.key.issue() || running_.at(ticket).producer != worker->identity.producer_id()) {
    return MakeAnswer(v1::GROUP_CLOSED, absl::StrCat("issued_again: issue ", row->issue, " is current"));
  }
  if (row->members[member].state == MemberRecord::State::kFailed) return MakeAnswer(v1::GROUP_CLOSED, "member_failed");

  // Is it right?
  std::string refusal = trajectory->reject_reason;
  bool is_void = false;
  if (refusal.empty() && trajectory->payload.size() > options_.max_trajectory_bytes) {
    refusal =
        absl::StrCat("too_large: ", trajectory->payload.size(), " bytes, the limit is ", options_.max_trajectory_bytes);
  }
  if (refusal.empty()) refusal = CheckVersions(*row, summary.versions, &is_void);
  if (!refusal.empty()) {
    FailMembers(ticket, {member}, "rejected");
    return MakeAnswer(v1::REJECTED, std::move(refusal));
  }
  if (is_void) {
    RewindTicket(ticket);
    return MakeAnswer(v1::GROUP_CLOSED, "void_version");
  }
  if (!summary.completed) {
    FailMembers(ticket, {member}, summary.failure_code.empty() ? "unspecified" : summary.failure_code);
    return MakeAnswer(v1::ACCEPTED, "");
  }

  // Is it in time?
  VersionUse versions = row->versions;
  AddVersions(summary.versions, &versions);
  if (policy_.Judge(step_, OldestVersion(versions)) == StalenessPolicy::Verdict::kStale) {
    CloseTicket(ticket, RowState::kStale, step_);
    return MakeAnswer(v1::TOO_STALE, absl::StrCat("oldest token of version ", OldestVersion(versions), ", step ", step_,
                                                  " trains next, the budget is ", policy_.lag_limit()));
  }

  const uint64_t size_bytes = trajectory->payload.size();
  const auto payload = std::make_shared<std::string>(std::move(trajectory->payload));
  if (absl::Status stored = store_->Put({ticket, member}, payload); !stored.ok()) {
    trajectory->payload = std::move(*payload);
    if (!absl::IsResourceExhausted(stored)) return stored;
    v1::PushAnswer full = MakeAnswer(v1::FULL, std::string(stored.message()));
    full.set_retry_after_ms(1000);
    return full;
  }
  LEEWAY_CHECK(ledger_.Deliver(ticket, member, summary.versions, summary.reward, size_bytes).ok()) << ticket;
  MemberResolved(ticket);
  ++completed_trajectories_;
  generated_tokens_ += summary.sampled_tokens;
  if (running_.at(ticket).missing == 0) CompleteGroup(ticket);
  return MakeAnswer(v1::ACCEPTED, "");
}

// ---- groups ---------------------------------------------------------------------------------------------------------

void QueueCore::MemberResolved(uint64_t ticket) {
  Run& run = running_.at(ticket);
  --run.missing;
  --workers_[run.producer - 1].busy;
  const uint64_t room = GroupsOfRoom();
  reserved_bytes_ -= options_.max_trajectory_bytes;
  if (GroupsOfRoom() > room) Changed();
  suspicions_.erase(ticket);  // it makes progress
}

void QueueCore::CountFailure(const std::string& code) {
  const bool is_told_apart = episode_failures_.size() < kFailureCodes || episode_failures_.count(code) > 0;
  ++episode_failures_[is_told_apart ? code : "other"];
}

void QueueCore::FailMembers(uint64_t ticket, const std::vector<uint32_t>& members, const std::string& code) {
  for (uint32_t member : members) {
    LEEWAY_CHECK(ledger_.FailMember(ticket, member).ok()) << ticket << "/" << member;
    MemberResolved(ticket);
    CountFailure(code);
  }
  const uint32_t failed = ledger_.Find(ticket)->CountMembers(MemberRecord::State::kFailed);
  const bool is_hopeless =
      options_.short_group == ShortGroupPolicy::kRefill || options_.group_size - failed < options_.min_group_size;
  if (is_hopeless) {
    CloseTicket(ticket, RowState::kFailed, step_);
  } else if (running_.at(ticket).missing == 0) {
    CompleteGroup(ticket);
  }
}

void QueueCore::CompleteGroup(uint64_t ticket) {
  StopRunning(ticket);
  LEEWAY_CHECK(ledger_.MarkReady(ticket).ok()) << ticket;
  ++groups_finished_;
  AddReady(*ledger_.Find(ticket));
  if (IsOrderTicket()) JudgeVariance();
  Changed();
}

void QueueCore::StopRunning(uint64_t ticket) {
  const auto found = running_.find(ticket);
  if (found == running_.end()) return;
  const Run& run = found->second;
  Worker& worker = workers_[run.producer - 1];
  worker.running.erase(ticket);
  worker.busy -= run.missing;
  ticket_deadlines_.erase({run.deadline.since_origin, ticket});
  running_.erase(found);
}

uint64_t QueueCore::MissingBytes(const TicketRow& row) const {
  if (row.state != RowState::kIssued && row.state != RowState::kRunning) return 0;
  return row.CountMembers(MemberRecord::State::kMissing) * options_.max_trajectory_bytes;
}

void QueueCore::ErasePayloads(uint64_t ticket) {
  for (uint32_t member = 0; member < options_.group_size; ++member) store_->Erase({ticket, member});
}

void QueueCore::CloseTicket(uint64_t ticket, RowState to, uint64_t step) {
  const TicketRow& row = *ledger_.Find(ticket);
  const bool was_judged =
      row.state == RowState::kLeased || (row.state == RowState::kReady && ticket <= judged_through_);
  if (was_judged && options_.filter_zero_variance && IsOrderTicket()) --judged_kept_;
  StopRunning(ticket);
  reserved_bytes_ -= MissingBytes(row);
  RemoveFromReady(ticket);
  unjudged_.erase(ticket);
  leased_.erase(ticket);
  suspicions_.erase(ticket);
  ErasePayloads(ticket);
  absl::Status moved;
  switch (to) {
    case RowState::kFiltered:
      moved = ledger_.Filter(ticket, step);
      break;
    case RowState::kStale:
      moved = ledger_.MarkStale(ticket, step);
      break;
    case RowState::kCancelled:
      moved = ledger_.Cancel(ticket, step);
      break;
    default:
      moved = ledger_.Fail(ticket, step);
      break;
  }
  LEEWAY_CHECK(moved.ok()) << moved;
  if (IsOrderTicket()) JudgeVariance();
  Changed();
}

void QueueCore::RemoveFromReady(uint64_t ticket) {
  const auto key = ready_keys_.find(ticket);
  if (key == ready_keys_.end()) return;
  ready_.erase({key->second.key, ticket});
  ready_keys_.erase(key);
}

void QueueCore::RewindTicket(uint64_t ticket) {
  StopRunning(ticket);
  RemoveFromReady(ticket);
  reserved_bytes_ -= MissingBytes(*ledger_.Find(ticket));
  suspicions_.erase(ticket);
  ErasePayloads(ticket);
  LEEWAY_CHECK(ledger_.Rewind(ticket).ok()) << ticket;
  Changed();
}

}  // namespace leeway
