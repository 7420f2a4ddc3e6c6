#ifndef LEEWAY_QUEUE_LEDGER_LEDGER_H_
#define LEEWAY_QUEUE_LEDGER_LEDGER_H_

// The one table that says what became of every ticket. A row is one issue of a ticket.
//
//  IssueNew, Reissue
//      │
//      ▼  Start          MarkReady          Lease            Train                  SettleThrough
//   issued ───► running ───────────► ready ───────► leased ───────► trained(step) ───────────────► settled
//      ▲           │ ReturnToIssued             │        │
//      └───────────┘ (worker lost: next         ├─ Filter ──► filtered
//                     issue number,             └─ MarkStale ► stale          (MarkStale also from issued, running)
//                     acknowledged members kept)
//   issued · running · ready · leased ── Fail ──► failed            issued · running · ready ── Cancel ──► cancelled
//
//   RestoreTo(c):  leased, trained(step > c) ──► ready;
//                  then any row that is not folded, closed ones (not cancelled ones) included, with a void token, or
//                  without tokens and issued at a void version, or whose trajectories are gone ──► rewound, to be
//                  Reissued under the same id.
//
// Words: a row is *closed* when filtered, stale, failed or cancelled; a ticket is *live* unless its row is closed. A
// ticket is *open* when it is live and neither leased, trained nor settled.

#include <array>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "leeway/v1/queue.pb.h"
#include "leeway/v1/queue_records.pb.h"
#include "leeway/v1/queue_snapshot.pb.h"
#include "leeway/v1/types.pb.h"
#include "queue/ledger/lineage_history.h"
#include "queue/ledger/ticket_set.h"
#include "queue/ledger/trajectory_summary.h"

namespace leeway {

// The values are part of the snapshot's format.
enum class RowState : uint8_t {
  kIssued = 1,
  kRunning = 2,
  kReady = 3,
  kLeased = 4,
  kTrained = 5,
  kSettled = 6,
  kFiltered = 7,
  kStale = 8,
  kFailed = 9,
  kCancelled = 10,
  kRewound = 11,
};
inline constexpr int kRowStates = 12;  // index 0 unused
// "issued", "running", ...
const char* RowStateName(RowState state);

struct MemberRecord {
  enum class State : uint8_t { kMissing, kDelivered, kFailed };
  State state = State::kMissing;
  // Of a delivered member whose score is SCORED.
  std::optional<double> reward;
  // Of a delivered member: its payload.
  uint64_t bytes = 0;
};

struct TicketRow {
  uint64_t ticket = 0;
  // Rises with every issue of the ticket, also when a lost worker's ticket is issued again without a new row.
  uint32_t issue = 0;
  RowState state = RowState::kIssued;
  // Newest committed version at the latest issue.
  v1::WeightsVersion issued_at;
  // Leased, trained: the step. Closed: the step that would have trained next (filtered: that it was judged for).
  // Otherwise 0.
  uint64_t step = 0;
  // Of all tokens of delivered members.
  VersionUse versions;
  // By member number; empty when the trajectories are not held (trained rows of a snapshot).
  std::vector<MemberRecord> members;
  // Takes part in its step with advantage 0.
  bool zero_advantage = false;
  // Ready: its number in the order in which groups became ready.
  uint64_t completion = 0;

  uint32_t CountMembers(MemberRecord::State in_state) const;
};

// Role: holds the rows, moves them by the transitions above and by nothing else, derives all counts from them, answers
// rank questions. `issued_total` is the one independent counter: raised where a row is made. Knows no workers, no
// bytes' bounds, no time. Threads: thread-compatible. Never blocks. Errors: every transition answers
// FAILED_PRECONDITION, naming ticket and state, when the row is not in a state it starts from, and NOT_FOUND when the
// ticket has no row (never issued, or folded); then nothing has changed. Memory: rows of settled steps are folded into
// ranges of ids and 1.5 bits an id; rewound rows into a count. Cost: O(log n) a transition.
class Ledger {
 public:
  explicit Ledger(uint32_t group_size) : group_size_(group_size) {}

  // ---- transitions --------------------------------------------------------------------------------------------------

  // Makes the first row of the next ticket id. Refused while a rewound ticket waits (it goes first).
  absl::StatusOr<const TicketRow*> IssueNew(const v1::WeightsVersion& issued_at);
  // REQUIRES rewound. Makes the ticket's next row, with all members missing.
  absl::StatusOr<const TicketRow*> Reissue(uint64_t ticket, const v1::WeightsVersion& issued_at);
  // REQUIRES issued. The row is handed to a worker, at the version committed now.
  absl::Status Start(uint64_t ticket, const v1::WeightsVersion& issued_at);
  // REQUIRES running, member missing. The row stays running.
  absl::Status Deliver(uint64_t ticket, uint32_t member, const VersionUse& versions, std::optional<double> reward,
                       uint64_t bytes);
  absl::Status FailMember(uint64_t ticket, uint32_t member);
  // REQUIRES running, no member missing, at least one delivered.
  absl::Status MarkReady(uint64_t ticket);
  // REQUIRES ready.
  absl::Status SetCompletion(uint64_t ticket, uint64_t completion);
  // REQUIRES running. Members that were delivered or failed stay so.
  absl::Status ReturnToIssued(uint64_t ticket);
  // REQUIRES ready.
  absl::Status Lease(uint64_t ticket, uint64_t step);
  // REQUIRES ready. Marks that the group has no variance but is trained.
  absl::Status SetZeroAdvantage(uint64_t ticket, bool zero_advantage);
  // REQUIRES leased.
  absl::Status Train(uint64_t ticket);
  // REQUIRES ready.
  absl::Status Filter(uint64_t ticket, uint64_t step);
  // REQUIRES issued, running or ready.
  absl::Status MarkStale(uint64_t ticket, uint64_t step);
  // REQUIRES issued, running, ready or leased.
  absl::Status Fail(uint64_t ticket, uint64_t step);
  // REQUIRES issued, running or ready.
  absl::Status Cancel(uint64_t ticket, uint64_t step);
  // REQUIRES a row that is neither trained nor settled nor rewound. For a single row that turned out to carry a void
  // token.
  absl::Status Rewind(uint64_t ticket);
  // trained(step <= `step`) -> settled, folded together with closed rows of those steps. Returns the ids that were
  // settled, ascending. Idempotent.
  std::vector<uint64_t> SettleThrough(uint64_t step);

  struct Restored {
    // Ascending. Rows that left what they were: their trajectories are to be erased.
    std::vector<uint64_t> rewound;
    // Ascending. Leased or trained before.
    std::vector<uint64_t> ready;
  };
  // Goes back to the end of step `step`, by the rule in the drawing; `history` already knows of this restore. Where
  // `step` lies below a settled step, settled tickets that are not consumed (trained or settled) in `checkpoint` are
  // rewound as well; nullptr: all of them.
  Restored RestoreTo(uint64_t step, const LineageHistory& history, const Ledger* checkpoint);

  // ---- questions ----------------------------------------------------------------------------------------------------

  // nullptr: never issued, or folded. Valid until the ticket is folded.
  const TicketRow* Find(uint64_t ticket) const;
  // Trained in a step <= `step`, or settled.
  bool IsConsumed(uint64_t ticket, uint64_t step) const;

  // Number of live tickets with id <= `ticket`; for next_ticket() the rank that a new one would have.
  uint64_t Rank(uint64_t ticket) const;
  uint64_t next_ticket() const { return next_ticket_; }
  // Steps <= this are settled.
  uint64_t settled_step() const { return settled_step_; }

  // Ids by state, ascending: what is to be handed out, what is to be issued again, and what no step has taken yet
  // (issued, running, ready, rewound).
  const absl::btree_set<uint64_t>& issued() const { return issued_; }
  const absl::btree_set<uint64_t>& rewound() const { return rewound_; }
  const absl::btree_set<uint64_t>& open() const { return open_; }

  uint64_t count(RowState state) const { return counts_[static_cast<size_t>(state)]; }
  // issued + running + ready + leased.
  uint64_t groups() const;
  v1::LedgerCounts counts() const;
  // The conservation law, from the counters alone: issued_total is the sum of the states. O(1), for every status.
  bool CountsAreConserved() const;
  // Recounts everything from the rows: the conservation law, every id accounted for once, every index. INTERNAL says
  // what is wrong. O(n log n), for every snapshot.
  absl::Status CheckConservation() const;
  // Ascending by ticket. For restores, snapshots and checks: O(n log n).
  std::vector<const TicketRow*> SortedRows() const;

  // ---- snapshot -----------------------------------------------------------------------------------------------------

  // Rows, counters and folded ranges. Members are left out: a snapshot goes where the trajectories are not.
  void Save(v1::LedgerSnapshot* snapshot) const;
  // The same ledger, with all members missing in issued and running rows, and no members in others. DATA_LOSS says what
  // contradicts.
  static absl::StatusOr<Ledger> Load(const v1::LedgerSnapshot& snapshot, uint32_t group_size);

  // ---- records of a durable queue -----------------------------------------------------------------------------------

  // What has to be written again, or (row, range or block gone) to be removed.
  struct Changes {
    absl::btree_set<uint64_t> rows;           // tickets
    absl::btree_set<uint64_t> folded;         // first tickets of ranges
    absl::btree_set<uint64_t> closed_blocks;  // blocks of closed tickets
  };
  // From now on changes are remembered until they are taken.
  void TrackChanges() { is_tracking_ = true; }
  // Everything has changed: nothing of this ledger was ever written.
  void MarkAllChanged();
  // What the caller keeps beside a row has changed.
  void MarkChanged(uint64_t ticket);
  Changes TakeChanges();
  static void SaveRow(const TicketRow& row, v1::RowRecord* record);
  void SaveCounters(v1::HeadRecord* head) const;
  // Ids below next_ticket() without a row: first -> last.
  const absl::btree_map<uint64_t, uint64_t>& folded() const { return folded_; }
  const TicketSet& closed() const { return dead_; }

  // An empty ledger becomes the one that was written: the counters first, then rows, ranges and blocks, each kind
  // ascending; at the end CheckConservation. DATA_LOSS names what is malformed.
  absl::Status RecoverCounters(const v1::HeadRecord& head);
  absl::Status RecoverRow(uint64_t ticket, const v1::RowRecord& record);
  absl::Status RecoverFolded(uint64_t first, uint64_t last);
  absl::Status RecoverClosedBlock(uint64_t block, absl::string_view bitmap);

 private:
  absl::StatusOr<TicketRow*> FindIn(uint64_t ticket, std::initializer_list<RowState> states,
                                    const char* transition) const;
  // The only place where a row's state and step, the counts and the indices change.
  void Move(TicketRow* row, RowState to, uint64_t step);
  absl::Status Transition(uint64_t ticket, std::initializer_list<RowState> from, RowState to, uint64_t step,
                          const char* name);
  void MarkRangeChanged(uint64_t first);
  void SetClosed(uint64_t ticket, bool is_closed);
  void AddToIndices(const TicketRow& row);
  void RemoveFromIndices(const TicketRow& row);
  const TicketRow* MakeRow(uint64_t ticket, uint32_t issue, const v1::WeightsVersion& issued_at);
  void RewindRow(TicketRow* row);
  // Back to rewound rows: settled tickets that the checkpoint of step `step` has not consumed.
  void UnsettleBeyond(uint64_t step, const Ledger* checkpoint, std::vector<uint64_t>* rewound);
  void Fold(uint64_t ticket);
  void RemoveFromFolded(uint64_t ticket);
  bool IsFolded(uint64_t ticket) const;

  uint32_t group_size_;

  uint64_t next_ticket_ = 1;

  // Raised in MakeRow only.
  uint64_t issued_total_ = 0;

  uint64_t settled_step_ = 0;

  // Largest issue number of any row, ever: a ticket whose row was folded goes on from here.
  uint32_t last_issue_ = 0;

  // Every ticket that is not folded, under its newest row.
  absl::flat_hash_map<uint64_t, std::unique_ptr<TicketRow>> rows_;

  // By state, of all rows: those in rows_, those folded, and rewound rows that a Reissue replaced.
  std::array<uint64_t, kRowStates> counts_{};

  // The part of counts_ that has no row in rows_ any more.
  std::array<uint64_t, kRowStates> folded_counts_{};

  // Ids below next_ticket_ without a row: ranges that neither overlap nor touch, first -> last.
  absl::btree_map<uint64_t, uint64_t> folded_;

  // Closed tickets, folded or not.
  TicketSet dead_;

  absl::btree_set<uint64_t> issued_;

  absl::btree_set<uint64_t> rewound_;

  absl::btree_set<uint64_t> open_;

  // Trained and closed rows in rows_, by their step: what SettleThrough folds.
  absl::btree_set<std::pair<uint64_t, uint64_t>> by_step_;

  bool is_tracking_ = false;

  Changes changes_;
};

}  // namespace leeway

#endif  // LEEWAY_QUEUE_LEDGER_LEDGER_H_
