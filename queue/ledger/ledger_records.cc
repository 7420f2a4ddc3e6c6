// The ledger leaving and entering memory: the snapshot of a checkpoint, and the records of a durable queue.

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "queue/ledger/ledger.h"

namespace leeway {
namespace {

// Rows that a snapshot restores with all members missing, hence without tokens.
bool LosesMembers(RowState state) {
  return state == RowState::kIssued || state == RowState::kRunning || state == RowState::kRewound;
}

}  // namespace

// ---- snapshot -------------------------------------------------------------------------------------------------------

void Ledger::Save(v1::LedgerSnapshot* snapshot) const {
  snapshot->set_group_size(group_size_);
  snapshot->set_next_ticket(next_ticket_);
  snapshot->set_settled_step(settled_step_);
  snapshot->set_last_issue(last_issue_);
  *snapshot->mutable_counts() = counts();
  for (const TicketRow* row : SortedRows()) {
    v1::LedgerRow* saved = snapshot->add_rows();
    saved->set_ticket(row->ticket);
    saved->set_issue(row->issue);
    saved->set_state(static_cast<uint32_t>(row->state));
    *saved->mutable_issued_at() = row->issued_at;
    saved->set_step(row->step);
    if (LosesMembers(row->state)) continue;
    for (const LineageUse& use : row->versions) {
      for (uint64_t number : {use.lineage, use.oldest, use.newest}) saved->add_versions(number);
    }
  }
  uint64_t end = 0;
  uint64_t last_dead = 0;
  for (const auto& [first, last] : folded_) {
    snapshot->add_folded(first - end);
    snapshot->add_folded(last - first + 1);
    end = last + 1;
  }
  for (uint64_t ticket : dead_.ToVector()) {
    if (rows_.contains(ticket)) continue;
    snapshot->add_folded_dead(ticket - last_dead);
    last_dead = ticket;
  }
}

absl::StatusOr<Ledger> Ledger::Load(const v1::LedgerSnapshot& snapshot, uint32_t group_size) {
  Ledger ledger(group_size);
  ledger.next_ticket_ = snapshot.next_ticket();
  ledger.settled_step_ = snapshot.settled_step();
  ledger.last_issue_ = snapshot.last_issue();
  const v1::LedgerCounts& counts = snapshot.counts();
  ledger.issued_total_ = counts.issued_total();
  ledger.counts_ = {0,
                    counts.issued(),
                    counts.running(),
                    counts.ready(),
                    counts.leased(),
                    counts.trained(),
                    counts.settled(),
                    counts.filtered(),
                    counts.stale(),
                    counts.failed(),
                    counts.cancelled(),
                    counts.rewound()};
  ledger.folded_counts_ = ledger.counts_;
  for (const v1::LedgerRow& saved : snapshot.rows()) {
    if (saved.state() == 0 || saved.state() >= kRowStates || saved.versions_size() % 3 != 0) {
      return absl::DataLossError(absl::StrCat("ledger snapshot: row of ticket ", saved.ticket(), " is malformed"));
    }
    auto row = std::make_unique<TicketRow>();
    row->ticket = saved.ticket();
    row->issue = saved.issue();
    row->state = static_cast<RowState>(saved.state());
    row->issued_at = saved.issued_at();
    row->step = saved.step();
    if (LosesMembers(row->state)) row->members.resize(group_size);
    for (int i = 0; i < saved.versions_size(); i += 3) {
      row->versions.push_back(LineageUse{saved.versions(i), saved.versions(i + 1), saved.versions(i + 2)});
    }
    if (ledger.folded_counts_[saved.state()] == 0 || ledger.rows_.contains(saved.ticket())) {
      return absl::DataLossError(absl::StrCat("ledger snapshot: row of ticket ", saved.ticket(), " is one too many"));
    }
    --ledger.folded_counts_[saved.state()];
    ledger.AddToIndices(*row);
    ledger.rows_[saved.ticket()] = std::move(row);
  }
  for (RowState alive :
       {RowState::kIssued, RowState::kRunning, RowState::kReady, RowState::kLeased, RowState::kTrained}) {
    if (ledger.folded_counts_[static_cast<size_t>(alive)] == 0) continue;
    return absl::DataLossError(absl::StrCat("ledger snapshot: a ", RowStateName(alive), " ticket has no row"));
  }
  if (snapshot.folded_size() % 2 != 0) return absl::DataLossError("ledger snapshot: folded ranges are malformed");
  uint64_t end = 0;
  for (int i = 0; i < snapshot.folded_size(); i += 2) {
    const uint64_t first = end + snapshot.folded(i);
    end = first + snapshot.folded(i + 1);
    if (first == 0 || end <= first || end > ledger.next_ticket_) {
      return absl::DataLossError("ledger snapshot: folded ranges are malformed");
    }
    ledger.folded_.insert({first, end - 1});
  }
  uint64_t dead = 0;
  for (uint64_t difference : snapshot.folded_dead()) {
    dead += difference;
    if (!ledger.IsFolded(dead))
      return absl::DataLossError(absl::StrCat("ledger snapshot: ticket ", dead, " is not folded"));
    ledger.dead_.Add(dead);
  }
  if (absl::Status consistent = ledger.CheckConservation(); !consistent.ok()) {
    return absl::DataLossError(absl::StrCat("ledger snapshot: ", consistent.message()));
  }
  return ledger;
}

// ---- records --------------------------------------------------------------------------------------------------------

Ledger::Changes Ledger::TakeChanges() { return std::exchange(changes_, Changes()); }

void Ledger::MarkAllChanged() {
  for (const auto& [ticket, row] : rows_) changes_.rows.insert(ticket);
  for (const auto& [first, last] : folded_) changes_.folded.insert(first);
  for (uint64_t block = 0; block <= next_ticket_ / TicketSet::kBlockIds; ++block) changes_.closed_blocks.insert(block);
}

void Ledger::SaveRow(const TicketRow& row, v1::RowRecord* record) {
  record->set_issue(row.issue);
  record->set_state(static_cast<uint32_t>(row.state));
  *record->mutable_issued_at() = row.issued_at;
  record->set_step(row.step);
  for (const LineageUse& use : row.versions) {
    for (uint64_t number : {use.lineage, use.oldest, use.newest}) record->add_versions(number);
  }
  for (const MemberRecord& member : row.members) {
    v1::MemberState* saved = record->add_members();
    saved->set_state(static_cast<uint32_t>(member.state));
    if (member.reward.has_value()) saved->set_reward(*member.reward);
    saved->set_bytes(member.bytes);
  }
  record->set_zero_advantage(row.zero_advantage);
  record->set_completion(row.completion);
}

void Ledger::SaveCounters(v1::HeadRecord* head) const {
  head->set_next_ticket(next_ticket_);
  head->set_issued_total(issued_total_);
  head->set_settled_step(settled_step_);
  head->set_last_issue(last_issue_);
  head->mutable_folded_counts()->Assign(folded_counts_.begin(), folded_counts_.end());
}

absl::Status Ledger::RecoverCounters(const v1::HeadRecord& head) {
  if (head.next_ticket() == 0 || head.folded_counts_size() != kRowStates) {
    return absl::DataLossError("the ledger's counters are malformed");
  }
  next_ticket_ = head.next_ticket();
  issued_total_ = head.issued_total();
  settled_step_ = head.settled_step();
  last_issue_ = head.last_issue();
  std::copy(head.folded_counts().begin(), head.folded_counts().end(), folded_counts_.begin());
  counts_ = folded_counts_;
  return absl::OkStatus();
}

absl::Status Ledger::RecoverRow(uint64_t ticket, const v1::RowRecord& record) {
  const bool has_members = record.members_size() == static_cast<int>(group_size_);
  // Without members: what came out of a checkpoint's snapshot and is only counted.
  const bool needs_members = record.state() == static_cast<uint32_t>(RowState::kIssued) ||
                             record.state() == static_cast<uint32_t>(RowState::kRunning);
  if (ticket == 0 || ticket >= next_ticket_ || record.state() == 0 || record.state() >= kRowStates ||
      record.versions_size() % 3 != 0 || (!has_members && (needs_members || record.members_size() != 0))) {
    return absl::DataLossError(absl::StrCat("the row of ticket ", ticket, " is malformed"));
  }
  auto row = std::make_unique<TicketRow>();
  row->ticket = ticket;
  row->issue = record.issue();
  row->state = static_cast<RowState>(record.state());
  row->issued_at = record.issued_at();
  row->step = record.step();
  row->zero_advantage = record.zero_advantage();
  row->completion = record.completion();
  for (int i = 0; i < record.versions_size(); i += 3) {
    row->versions.push_back(LineageUse{record.versions(i), record.versions(i + 1), record.versions(i + 2)});
  }
  for (const v1::MemberState& saved : record.members()) {
    if (saved.state() > static_cast<uint32_t>(MemberRecord::State::kFailed)) {
      return absl::DataLossError(absl::StrCat("the row of ticket ", ticket, " is malformed"));
    }
    MemberRecord& member = row->members.emplace_back();
    member.state = static_cast<MemberRecord::State>(saved.state());
    if (saved.has_reward()) member.reward = saved.reward();
    member.bytes = saved.bytes();
  }
  ++counts_[record.state()];
  AddToIndices(*row);
  rows_[ticket] = std::move(row);
  return absl::OkStatus();
}

absl::Status Ledger::RecoverFolded(uint64_t first, uint64_t last) {
  const bool overlaps = !folded_.empty() && folded_.rbegin()->second >= first;
  if (first == 0 || last < first || last >= next_ticket_ || overlaps) {
    return absl::DataLossError(absl::StrCat("the folded range from ticket ", first, " to ", last, " is malformed"));
  }
  folded_.insert({first, last});
  return absl::OkStatus();
}

absl::Status Ledger::RecoverClosedBlock(uint64_t block, absl::string_view bitmap) {
  if (block > next_ticket_ / TicketSet::kBlockIds || !dead_.AddBlock(block, bitmap)) {
    return absl::DataLossError(absl::StrCat("block ", block, " of closed tickets is malformed"));
  }
  return absl::OkStatus();
}

}  // namespace leeway
