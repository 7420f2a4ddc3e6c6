#include "queue/ledger/ledger.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace leeway {
namespace {

constexpr size_t Index(RowState state) { return static_cast<size_t>(state); }

bool IsClosed(RowState state) {
  return state == RowState::kFiltered || state == RowState::kStale || state == RowState::kFailed ||
         state == RowState::kCancelled;
}

bool IsOpen(RowState state) {
  return state == RowState::kIssued || state == RowState::kRunning || state == RowState::kReady ||
         state == RowState::kRewound;
}

bool HasVoidVersion(const TicketRow& row, const LineageHistory& history) {
  if (row.versions.empty()) return !history.Exists(row.issued_at.lineage(), row.issued_at.version());
  return std::any_of(row.versions.begin(), row.versions.end(),
                     [&](const LineageUse& use) { return !history.Exists(use.lineage, use.newest); });
}

}  // namespace

const char* RowStateName(RowState state) {
  static constexpr const char* kNames[kRowStates] = {"",       "issued",  "running",   "ready",
                                                     "leased", "trained", "settled",   "filtered",
                                                     "stale",  "failed",  "cancelled", "rewound"};
  return kNames[Index(state)];
}

uint32_t TicketRow::CountMembers(MemberRecord::State in_state) const {
  return std::count_if(members.begin(), members.end(), [&](const MemberRecord& m) { return m.state == in_state; });
}

// ---- the table ------------------------------------------------------------------------------------------------------

void Ledger::MarkChanged(uint64_t ticket) {
  if (is_tracking_) changes_.rows.insert(ticket);
}

void Ledger::MarkRangeChanged(uint64_t first) {
  if (is_tracking_) changes_.folded.insert(first);
}

void Ledger::SetClosed(uint64_t ticket, bool is_closed) {
  const bool has_changed = is_closed ? dead_.Add(ticket) : dead_.Remove(ticket);
  if (has_changed && is_tracking_) changes_.closed_blocks.insert(ticket / TicketSet::kBlockIds);
}

void Ledger::AddToIndices(const TicketRow& row) {
  if (row.state == RowState::kIssued) issued_.insert(row.ticket);
  if (row.state == RowState::kRewound) rewound_.insert(row.ticket);
  if (IsOpen(row.state)) open_.insert(row.ticket);
  if (IsClosed(row.state)) SetClosed(row.ticket, true);
  if (IsClosed(row.state) || row.state == RowState::kTrained) by_step_.insert({row.step, row.ticket});
}

void Ledger::RemoveFromIndices(const TicketRow& row) {
  issued_.erase(row.ticket);
  rewound_.erase(row.ticket);
  open_.erase(row.ticket);
  SetClosed(row.ticket, false);
  by_step_.erase({row.step, row.ticket});
}

void Ledger::Move(TicketRow* row, RowState to, uint64_t step) {
  RemoveFromIndices(*row);
  --counts_[Index(row->state)];
  row->state = to;
  row->step = step;
  ++counts_[Index(to)];
  AddToIndices(*row);
  MarkChanged(row->ticket);
}

const TicketRow* Ledger::MakeRow(uint64_t ticket, uint32_t issue, const v1::WeightsVersion& issued_at) {
  auto row = std::make_unique<TicketRow>();
  row->ticket = ticket;
  row->issue = issue;
  row->issued_at = issued_at;
  row->members.resize(group_size_);
  ++issued_total_;
  ++counts_[Index(RowState::kIssued)];
  last_issue_ = std::max(last_issue_, issue);
  AddToIndices(*row);
  MarkChanged(ticket);
  std::unique_ptr<TicketRow>& place = rows_[ticket];
  place = std::move(row);
  return place.get();
}

absl::StatusOr<TicketRow*> Ledger::FindIn(uint64_t ticket, std::initializer_list<RowState> states,
                                          const char* transition) const {
  const auto found = rows_.find(ticket);
  if (found == rows_.end()) {
    return absl::NotFoundError(
        absl::StrCat(transition, ": ticket ", ticket, IsFolded(ticket) ? " is settled" : " was never issued"));
  }
  TicketRow* row = found->second.get();
  if (std::find(states.begin(), states.end(), row->state) == states.end()) {
    return absl::FailedPreconditionError(
        absl::StrCat(transition, ": ticket ", ticket, " issue ", row->issue, " is ", RowStateName(row->state)));
  }
  return row;
}

absl::Status Ledger::Transition(uint64_t ticket, std::initializer_list<RowState> from, RowState to, uint64_t step,
                                const char* name) {
  LEEWAY_ASSIGN_OR_RETURN(TicketRow * row, FindIn(ticket, from, name));
  Move(row, to, step);
  return absl::OkStatus();
}

// ---- transitions ----------------------------------------------------------------------------------------------------

absl::StatusOr<const TicketRow*> Ledger::IssueNew(const v1::WeightsVersion& issued_at) {
  if (!rewound_.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("issue: ticket ", *rewound_.begin(), " is rewound and goes before any new one"));
  }
  return MakeRow(next_ticket_++, 1, issued_at);
}

absl::StatusOr<const TicketRow*> Ledger::Reissue(uint64_t ticket, const v1::WeightsVersion& issued_at) {
  LEEWAY_ASSIGN_OR_RETURN(TicketRow * row, FindIn(ticket, {RowState::kRewound}, "reissue"));
  // The rewound row stays counted; the table goes on with the new one.
  ++folded_counts_[Index(RowState::kRewound)];
  RemoveFromIndices(*row);
  return MakeRow(ticket, row->issue + 1, issued_at);
}

absl::Status Ledger::Start(uint64_t ticket, const v1::WeightsVersion& issued_at) {
  LEEWAY_ASSIGN_OR_RETURN(TicketRow * row, FindIn(ticket, {RowState::kIssued}, "start"));
  row->issued_at = issued_at;
  Move(row, RowState::kRunning, 0);
  return absl::OkStatus();
}

absl::Status Ledger::Deliver(uint64_t ticket, uint32_t member, const VersionUse& versions, std::optional<double> reward,
                             uint64_t bytes) {
  LEEWAY_ASSIGN_OR_RETURN(TicketRow * row, FindIn(ticket, {RowState::kRunning}, "deliver"));
  if (member >= row->members.size() || row->members[member].state != MemberRecord::State::kMissing) {
    return absl::FailedPreconditionError(absl::StrCat("deliver: ticket ", ticket, " is not missing member ", member));
  }
  row->members[member] = MemberRecord{MemberRecord::State::kDelivered, reward, bytes};
  AddVersions(versions, &row->versions);
  MarkChanged(ticket);
  return absl::OkStatus();
}

absl::Status Ledger::FailMember(uint64_t ticket, uint32_t member) {
  LEEWAY_ASSIGN_OR_RETURN(TicketRow * row, FindIn(ticket, {RowState::kRunning}, "fail member"));
  if (member >= row->members.size() || row->members[member].state != MemberRecord::State::kMissing) {
    return absl::FailedPreconditionError(
        absl::StrCat("fail member: ticket ", ticket, " is not missing member ", member));
  }
  row->members[member].state = MemberRecord::State::kFailed;
  MarkChanged(ticket);
  return absl::OkStatus();
}

absl::Status Ledger::MarkReady(uint64_t ticket) {
  LEEWAY_ASSIGN_OR_RETURN(TicketRow * row, FindIn(ticket, {RowState::kRunning}, "mark ready"));
  if (row->CountMembers(MemberRecord::State::kMissing) > 0 || row->CountMembers(MemberRecord::State::kDelivered) == 0) {
    return absl::FailedPreconditionError(absl::StrCat("mark ready: ticket ", ticket, " is incomplete"));
  }
  Move(row, RowState::kReady, 0);
  return absl::OkStatus();
}

absl::Status Ledger::ReturnToIssued(uint64_t ticket) {
  LEEWAY_ASSIGN_OR_RETURN(TicketRow * row, FindIn(ticket, {RowState::kRunning}, "return to issued"));
  ++row->issue;
  last_issue_ = std::max(last_issue_, row->issue);
  Move(row, RowState::kIssued, 0);
  return absl::OkStatus();
}

absl::Status Ledger::SetCompletion(uint64_t ticket, uint64_t completion) {
  LEEWAY_ASSIGN_OR_RETURN(TicketRow * row, FindIn(ticket, {RowState::kReady}, "set completion"));
  row->completion = completion;
  MarkChanged(ticket);
  return absl::OkStatus();
}

absl::Status Ledger::Lease(uint64_t ticket, uint64_t step) {
  return Transition(ticket, {RowState::kReady}, RowState::kLeased, step, "lease");
}

absl::Status Ledger::SetZeroAdvantage(uint64_t ticket, bool zero_advantage) {
  LEEWAY_ASSIGN_OR_RETURN(TicketRow * row, FindIn(ticket, {RowState::kReady}, "set zero advantage"));
  row->zero_advantage = zero_advantage;
  MarkChanged(ticket);
  return absl::OkStatus();
}

absl::Status Ledger::Train(uint64_t ticket) {
  LEEWAY_ASSIGN_OR_RETURN(TicketRow * row, FindIn(ticket, {RowState::kLeased}, "train"));
  Move(row, RowState::kTrained, row->step);
  return absl::OkStatus();
}

absl::Status Ledger::Filter(uint64_t ticket, uint64_t step) {
  return Transition(ticket, {RowState::kReady}, RowState::kFiltered, step, "filter");
}

absl::Status Ledger::MarkStale(uint64_t ticket, uint64_t step) {
  return Transition(ticket, {RowState::kIssued, RowState::kRunning, RowState::kReady}, RowState::kStale, step,
                    "mark stale");
}

absl::Status Ledger::Fail(uint64_t ticket, uint64_t step) {
  return Transition(ticket, {RowState::kIssued, RowState::kRunning, RowState::kReady, RowState::kLeased},
                    RowState::kFailed, step, "fail");
}

absl::Status Ledger::Cancel(uint64_t ticket, uint64_t step) {
  return Transition(ticket, {RowState::kIssued, RowState::kRunning, RowState::kReady}, RowState::kCancelled, step,
                    "cancel");
}

absl::Status Ledger::Rewind(uint64_t ticket) {
  LEEWAY_ASSIGN_OR_RETURN(
      TicketRow * row,
      FindIn(ticket, {RowState::kIssued, RowState::kRunning, RowState::kReady, RowState::kLeased}, "rewind"));
  RewindRow(row);
  return absl::OkStatus();
}

void Ledger::RewindRow(TicketRow* row) {
  Move(row, RowState::kRewound, 0);
  row->versions.clear();
  row->members.assign(group_size_, MemberRecord{});
  row->zero_advantage = false;
}

// ---- settling and restoring -----------------------------------------------------------------------------------------

std::vector<uint64_t> Ledger::SettleThrough(uint64_t step) {
  settled_step_ = std::max(settled_step_, step);
  std::vector<uint64_t> settled;
  while (!by_step_.empty() && by_step_.begin()->first <= step) {
    const uint64_t ticket = by_step_.begin()->second;
    TicketRow* row = rows_.at(ticket).get();
    if (row->state == RowState::kTrained) {
      Move(row, RowState::kSettled, row->step);
      settled.push_back(ticket);
    }
    Fold(ticket);
  }
  std::sort(settled.begin(), settled.end());
  return settled;
}

void Ledger::Fold(uint64_t ticket) {
  const auto found = rows_.find(ticket);
  const TicketRow& row = *found->second;
  ++folded_counts_[Index(row.state)];
  by_step_.erase({row.step, ticket});
  rows_.erase(found);
  MarkChanged(ticket);

  auto next = folded_.upper_bound(ticket);
  uint64_t last = ticket;
  if (next != folded_.end() && next->first == ticket + 1) {
    last = next->second;
    MarkRangeChanged(next->first);
    next = folded_.erase(next);
  }
  if (next != folded_.begin() && std::prev(next)->second + 1 == ticket) {
    std::prev(next)->second = last;
    MarkRangeChanged(std::prev(next)->first);
  } else {
    folded_.insert({ticket, last});
    MarkRangeChanged(ticket);
  }
}

void Ledger::RemoveFromFolded(uint64_t ticket) {
  const auto range = std::prev(folded_.upper_bound(ticket));
  const auto [first, last] = *range;
  folded_.erase(range);
  if (first < ticket) folded_.insert({first, ticket - 1});
  if (ticket < last) folded_.insert({ticket + 1, last});
  MarkRangeChanged(first);
  MarkRangeChanged(ticket + 1);
}

bool Ledger::IsFolded(uint64_t ticket) const {
  const auto next = folded_.upper_bound(ticket);
  return next != folded_.begin() && std::prev(next)->second >= ticket;
}

void Ledger::UnsettleBeyond(uint64_t step, const Ledger* checkpoint, std::vector<uint64_t>* rewound) {
  if (step >= settled_step_) return;
  settled_step_ = step;
  std::vector<uint64_t> tickets;
  for (const auto& [first, last] : folded_) {
    for (uint64_t ticket = first; ticket <= last; ++ticket) {
      if (dead_.Contains(ticket)) continue;
      if (checkpoint == nullptr || !checkpoint->IsConsumed(ticket, step)) tickets.push_back(ticket);
    }
  }
  for (uint64_t ticket : tickets) {
    RemoveFromFolded(ticket);
    --folded_counts_[Index(RowState::kSettled)];
    auto row = std::make_unique<TicketRow>();
    row->ticket = ticket;
    row->issue = last_issue_;
    row->state = RowState::kSettled;
    TicketRow* placed = (rows_[ticket] = std::move(row)).get();
    RewindRow(placed);
    rewound->push_back(ticket);
  }
}

Ledger::Restored Ledger::RestoreTo(uint64_t step, const LineageHistory& history, const Ledger* checkpoint) {
  Restored restored;
  UnsettleBeyond(step, checkpoint, &restored.rewound);
  for (const TicketRow* found : SortedRows()) {
    TicketRow* row = rows_.at(found->ticket).get();
    // A user's command stands in every history.
    if (row->state == RowState::kRewound || row->state == RowState::kCancelled) continue;
    if (row->state == RowState::kTrained && row->step <= step) continue;
    const bool was_taken = row->state == RowState::kLeased || row->state == RowState::kTrained;
    const bool needs_payloads = was_taken || row->state == RowState::kReady;
    if (HasVoidVersion(*row, history) || (needs_payloads && row->members.empty())) {
      RewindRow(row);
      restored.rewound.push_back(row->ticket);
    } else if (was_taken) {
      Move(row, RowState::kReady, 0);
      row->zero_advantage = false;
      restored.ready.push_back(row->ticket);
    }
  }
  std::sort(restored.rewound.begin(), restored.rewound.end());
  return restored;
}

// ---- questions ------------------------------------------------------------------------------------------------------

const TicketRow* Ledger::Find(uint64_t ticket) const {
  const auto found = rows_.find(ticket);
  return found == rows_.end() ? nullptr : found->second.get();
}

bool Ledger::IsConsumed(uint64_t ticket, uint64_t step) const {
  if (const TicketRow* row = Find(ticket)) return row->state == RowState::kTrained && row->step <= step;
  return IsFolded(ticket) && !dead_.Contains(ticket);
}

uint64_t Ledger::Rank(uint64_t ticket) const { return ticket - dead_.CountUpTo(ticket); }

uint64_t Ledger::groups() const {
  return count(RowState::kIssued) + count(RowState::kRunning) + count(RowState::kReady) + count(RowState::kLeased);
}

v1::LedgerCounts Ledger::counts() const {
  v1::LedgerCounts counts;
  counts.set_issued_total(issued_total_);
  counts.set_issued(count(RowState::kIssued));
  counts.set_running(count(RowState::kRunning));
  counts.set_ready(count(RowState::kReady));
  counts.set_leased(count(RowState::kLeased));
  counts.set_trained(count(RowState::kTrained));
  counts.set_settled(count(RowState::kSettled));
  counts.set_filtered(count(RowState::kFiltered));
  counts.set_stale(count(RowState::kStale));
  counts.set_failed(count(RowState::kFailed));
  counts.set_cancelled(count(RowState::kCancelled));
  counts.set_rewound(count(RowState::kRewound));
  return counts;
}

std::vector<const TicketRow*> Ledger::SortedRows() const {
  std::vector<const TicketRow*> rows;
  rows.reserve(rows_.size());
  for (const auto& [ticket, row] : rows_) rows.push_back(row.get());
  std::sort(rows.begin(), rows.end(), [](const TicketRow* a, const TicketRow* b) { return a->ticket < b->ticket; });
  return rows;
}

bool Ledger::CountsAreConserved() const {
  return std::accumulate(counts_.begin(), counts_.end(), uint64_t{0}) == issued_total_;
}

absl::Status Ledger::CheckConservation() const {
  std::array<uint64_t, kRowStates> tally = folded_counts_;
  Ledger recount(group_size_);
  uint64_t folded_ids = 0;
  uint64_t folded_dead = 0;
  for (const auto& [first, last] : folded_) {
    folded_ids += last - first + 1;
    folded_dead += dead_.CountUpTo(last) - dead_.CountUpTo(first - 1);
    if (last >= next_ticket_) return absl::InternalError(absl::StrCat("folded ticket ", last, " was never issued"));
  }
  for (const auto& [ticket, row] : rows_) {
    ++tally[Index(row->state)];
    recount.AddToIndices(*row);
    if (row->ticket != ticket)
      return absl::InternalError(absl::StrCat("row of ticket ", ticket, " names ", row->ticket));
    if (IsFolded(ticket)) return absl::InternalError(absl::StrCat("ticket ", ticket, " has a row and is folded"));
  }
  uint64_t sum = 0;
  for (size_t i = 1; i < kRowStates; ++i) {
    sum += counts_[i];
    if (tally[i] != counts_[i]) {
      return absl::InternalError(absl::StrCat("counted ", counts_[i], " rows as ",
                                              RowStateName(static_cast<RowState>(i)), ", found ", tally[i]));
    }
  }
  if (sum != issued_total_)
    return absl::InternalError(absl::StrCat("issued_total is ", issued_total_, ", the states hold ", sum));
  const auto folded = [&](RowState state) { return folded_counts_[Index(state)]; };
  const uint64_t closed =
      folded(RowState::kFiltered) + folded(RowState::kStale) + folded(RowState::kFailed) + folded(RowState::kCancelled);
  if (folded_dead != closed || folded_ids != closed + folded(RowState::kSettled)) {
    return absl::InternalError(absl::StrCat(folded_ids, " ids are folded, ", folded_dead, " of them closed, but ",
                                            closed, " closed and ", folded(RowState::kSettled), " settled rows"));
  }
  if (rows_.size() + folded_ids != next_ticket_ - 1) {
    return absl::InternalError(
        absl::StrCat("of ", next_ticket_ - 1, " tickets ", rows_.size(), " have rows and ", folded_ids, " are folded"));
  }
  if (recount.issued_ != issued_ || recount.rewound_ != rewound_ || recount.open_ != open_ ||
      recount.by_step_ != by_step_ || recount.dead_.size() + folded_dead != dead_.size()) {
    return absl::InternalError("an index disagrees with the rows");
  }
  return absl::OkStatus();
}

}  // namespace leeway
