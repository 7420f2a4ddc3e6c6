#ifndef LEEWAY_QUEUE_CORE_QUEUE_CORE_H_
#define LEEWAY_QUEUE_CORE_QUEUE_CORE_H_

// The queue as a plain class: ledger, staleness policy, workers' identities, bounds, leases and evaluation in one
// place.

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/histogram.h"
#include "leeway/v1/queue.pb.h"
#include "leeway/v1/queue_records.pb.h"
#include "leeway/v1/types.pb.h"
#include "queue/ledger/ledger.h"
#include "queue/ledger/trajectory_summary.h"
#include "queue/policy/evaluation_plan.h"
#include "queue/policy/staleness_policy.h"
#include "queue/store/queue_store.h"

namespace leeway {

// What becomes of a group when a member failed for good.
enum class ShortGroupPolicy {
  kRefill,     // the ticket fails, a new one is issued at the end
  kTrainShort  // trained on the members that completed, if at least `min_group_size` did
};

struct QueueCoreOptions {
  // Pacing, order, breach, budget, B and the number of steps.
  StalenessOptions staleness;
  // G.
  uint32_t group_size = 1;

  // Bound on issued + running + ready + leased.
  uint64_t max_groups = 1;
  // Bound on payload bytes: those held (until settled) and those reserved for members still missing.
  uint64_t max_bytes = 0;
  // The largest serialised trajectory; what is reserved per member when a ticket is issued.
  uint64_t max_trajectory_bytes = 0;

  ShortGroupPolicy short_group = ShortGroupPolicy::kRefill;
  uint32_t min_group_size = 1;

  // Zero-variance filter: a group whose members all have the same reward is replaced, at most filter_max_refills * B
  // times a step; beyond that it is trained with advantage 0.
  bool filter_zero_variance = false;
  double filter_max_refills = 1.0;

  // A worker that is not heard of for so long is lost.
  absl::Duration worker_lease = absl::Seconds(10);
  absl::Duration heartbeat_interval = absl::Seconds(1);
  // Time a worker has for a whole ticket; then its missing members fail with code `deadline`.
  absl::Duration ticket_deadline = absl::Minutes(10);
  // A ticket whose workers were lost so many times in a row, while other groups finished, fails as `suspected_poison`.
  uint32_t poison_losses = 5;
  // How long tickets are kept back from a worker that already has its share, for the benefit of the others.
  absl::Duration share_patience = absl::Milliseconds(100);

  // What tickets name: the environment and its instances. The seeds are pure functions of the index (ticket id - 1,
  // evaluation id - 1).
  std::string task;
  std::function<uint64_t(uint64_t task_index)> train_seed;
  std::function<uint64_t(uint64_t task_index)> evaluation_seed;

  EvaluationOptions evaluation;

  // The epoch of every name's first identity: above all epochs of this queue's earlier lives, so that a worker that
  // outlived one is told to register again.
  uint64_t first_epoch = 1;

  // The largest lineage ever allocated for this run, as the service read it from its file; 0 for a new run.
  uint64_t last_lineage = 0;
};

// One trajectory at the door. The service parses and checks it (lengths, finiteness, vocabulary); the core judges
// identity, sequence, versions, staleness and duplicates.
struct PushedTrajectory {
  TrajectorySummary summary;
  // The serialised v1::Trajectory; moved into the store.
  std::string payload;
  // Not empty: validation refused it. "code" or "code: detail"; the code is a counter's name. The key in `summary` may
  // be unset then.
  std::string reject_reason;
};

void SaveHistogram(const Histogram& histogram, v1::HistogramCounts* counts);

// One group of a leased batch.
struct LeasedGroup {
  uint64_t ticket = 0;
  uint32_t issue = 0;
  // Counts for the step but trains with advantage 0 (filter's refill limit reached).
  bool zero_advantage = false;
  // Trajectories of the completed members, by member number. Failed members of a short group are left out.
  std::vector<std::shared_ptr<const StoredPayload>> members;
};

struct LeaseResult {
  // Exactly B groups in ticket order, or none and a cause.
  std::vector<LeasedGroup> groups;
  // waiting_for_groups | waiting_for_rollouts (no live worker) | queue_needs_checkpoint (payloads of trained, unsettled
  // groups fill max_bytes) | waiting_for_evaluation (the committed version is to be evaluated, and no worker holds it
  // yet) | draining
  std::string cause;
  // A token with a larger lag must have no gradient (`mask`), or must not occur (all others).
  uint64_t lag_limit = 0;
};

// Role: everything that the queue decides. The service around it translates messages, holds the lock, the long polls
// and the files. Threads: none of its own; thread-compatible (callers hold one lock around every call, const ones too).
// Blocking: never. Time comes in as an argument and must not go backwards. Every method is O(log n) per ticket it
// touches, except Restore and Snapshot (O(unsettled tickets)) and FillStatus (O(open tickets)). Determinism: the same
// calls with the same arguments give the same answers.
//
// Long polls: AcquireTickets (after one BeginAcquire) and Lease answer at once. When an answer is empty, keep the
// caller waiting and ask again when changes() has moved or NextEvent() has come, until its wait is over; then pass on
// the last empty answer with its cause.
//
// Errors of all methods: ABORTED = the caller is fenced (worker: register again; trainer: exit and restore).
// FAILED_PRECONDITION = a call out of order. INVALID_ARGUMENT = unset or impossible fields.
class QueueCore {
 public:
  // Goes on from what a durable `store` holds: ledger, identities, answers, running tickets, leases, evaluations and
  // counters are as they were; what was to happen at a time (lost workers, deadlines) has all of its time again from
  // `now`. INVALID_ARGUMENT lists everything that is wrong with the options, also capacities that would deadlock
  // (max_groups < B, bytes that cannot hold B groups), and what differs from the run that the store belongs to.
  // DATA_LOSS: the store's records contradict each other.
  static absl::StatusOr<std::unique_ptr<QueueCore>> Create(QueueCoreOptions options, std::unique_ptr<QueueStore> store,
                                                           MonotonicTime now = MonotonicTime());
  QueueCore(const QueueCore&) = delete;
  QueueCore& operator=(const QueueCore&) = delete;

  // ---- workers ----------------------------------------------------------------------------------------------------

  // A name's first identity has epoch `first_epoch`. Registering it again raises the epoch: the old one is fenced and
  // its unfinished tickets return to issued, acknowledged members kept.
  v1::WorkerIdentity RegisterWorker(const std::string& name, MonotonicTime now);
  // ABORTED if `identity` is unknown, older, fenced or lost.
  absl::Status CheckIdentity(const v1::WorkerIdentity& identity) const;
  // A worker asks for tickets: a sign of life. Once for every request that arrives. FAILED_PRECONDITION: the number is
  // lower than its last one's.
  absl::Status BeginAcquire(const v1::AcquireTicketsRequest& request, MonotonicTime now);
  // What the worker asked for: tickets for at most `max_members` free episode slots (the last ticket may exceed them: a
  // ticket goes to one worker whole), evaluation tickets first. Without tickets the cause is set: waiting_for_trainer |
  // waiting_for_version | queue_full | waiting_for_share (kept back, for a moment, for workers that have less) |
  // draining | run_complete. Tickets once given under a number are given again: the answer may have been lost on the
  // way. FAILED_PRECONDITION: a newer request has begun.
  absl::StatusOr<v1::AcquireTicketsResponse> AcquireTickets(const v1::WorkerIdentity& identity, uint64_t sequence,
                                                            MonotonicTime now);
  // The answer is what happened. The same sequence number again gets the same answer, whatever comes with it; FULL is
  // not remembered. FAILED_PRECONDITION: gap in the sequence, the message names the number expected. OUT_OF_RANGE:
  // answered so long ago that the answer is forgotten (kRememberedAnswers later ones were given). A trajectory is in
  // quarantine's domain exactly when the answer is REJECTED. A rejected member, like one with outcome FAILED, has
  // failed for good. `*trajectory` is moved from, except when the answer is REJECTED or FULL: then it is left as it
  // was. A call is a sign of life.
  absl::StatusOr<v1::PushAnswer> Push(const v1::WorkerIdentity& identity, uint64_t sequence,
                                      PushedTrajectory* trajectory, MonotonicTime now);
  // The remembered answer of a sequence number, so that the bytes of a repeated push need not be parsed. Nothing: call
  // Push.
  std::optional<v1::PushAnswer> RememberedAnswer(const v1::WorkerIdentity& identity, uint64_t sequence) const;
  // Keeps the leases and the report; `abandon` names training tickets of the request that are not this worker's any
  // more. (Evaluation tickets do not belong in the request.)
  absl::StatusOr<v1::HeartbeatResponse> Heartbeat(const v1::HeartbeatRequest& request, MonotonicTime now);

  // ---- time -------------------------------------------------------------------------------------------------------

  // Does what is due: workers without a sign of life are lost, tickets past their deadline lose their missing members,
  // evaluations past theirs are closed. Returns one line per event, for the log.
  std::vector<std::string> Tick(MonotonicTime now);
  // The queue itself did not run for so long (stopped, starved): its workers were not silent, they were not heard.
  // Their silence starts later, and so do the deadlines of tickets and evaluations come. Before Tick.
  void ForgiveSilence(absl::Duration pause, MonotonicTime now);
  // When Tick has something to do at the earliest, or an empty AcquireTickets may have become non-empty by time alone.
  MonotonicTime NextEvent() const;
  // Moves with every change that may turn an empty answer into a full one.
  uint64_t changes() const { return changes_; }

  // ---- trainer ----------------------------------------------------------------------------------------------------

  // A new lineage; every call of an older one is ABORTED from now on, and no ticket is issued until the initial Commit.
  // The caller makes the number durable before it tells anybody. `*committed`: the newest commit, unset before any.
  uint64_t AllocateLineage(v1::WeightsVersion* committed);
  // The trainer restored the end of step `step` and will commit version step+1 of `lineage`. A core that has never
  // issued a ticket starts from `snapshot` (empty: from nothing); any other uses its own table, and `snapshot` only
  // where `step` lies below a settled one. Leased and later-trained groups become ready again, void ones are rewound.
  // Idempotent for the same arguments until the initial Commit. INVALID_ARGUMENT / DATA_LOSS: the snapshot does not
  // belong to this run, to this step, or is damaged.
  absl::Status Restore(uint64_t lineage, uint64_t step, const std::string& snapshot, MonotonicTime now);
  // The batch of `step` (= the committed version). The same step again gives the same groups, less retired ones, which
  // are replaced.
  absl::StatusOr<LeaseResult> Lease(uint64_t lineage, uint64_t step, MonotonicTime now);
  // Makes a version visible and marks the groups of its step trained. Repeating the newest commit is OK if the digest
  // agrees. FAILED_PRECONDITION: not the next version, another digest, or the groups are not exactly those leased for
  // the step.
  absl::Status Commit(const v1::CommitRequest& request, MonotonicTime now);
  // Steps <= `step` are covered by verified checkpoints: their groups settle and their payloads go. Idempotent.
  absl::Status Settle(uint64_t lineage, uint64_t step);
  // A leased group that the trainer refuses: failed with `reason` as its code, replaced. Returns its payloads, to be
  // kept aside.
  absl::StatusOr<std::vector<std::shared_ptr<const StoredPayload>>> RetireGroup(uint64_t lineage, uint64_t step,
                                                                                uint64_t ticket,
                                                                                const std::string& reason);
  // A trajectory of this leased group can not be read back: the ticket is rewound and issued again. Nothing if that
  // issue of it is not leased any more.
  void RewindDamaged(uint64_t ticket, uint32_t issue);
  // The worker of that identity is lost, unless it already has a newer one.
  absl::Status FenceWorker(uint64_t lineage, const v1::WorkerIdentity& identity, const std::string& reason,
                           MonotonicTime now);
  // REQUIRES a commit of this lineage. The ledger as it is now: 32 hexadecimal digits of digest, then a
  // v1::LedgerSnapshot.
  absl::StatusOr<std::string> Snapshot(uint64_t lineage) const;

  // ---- launcher, inspection ---------------------------------------------------------------------------------------

  // Stops issuing for good; unfinished tickets return to issued.
  void Drain(MonotonicTime now);
  // By explicit command of a user (the state `cancelled`; no call of the service reaches it yet): an issued, running or
  // ready group is given up, and replaced. FAILED_PRECONDITION otherwise.
  absl::Status CancelTicket(uint64_t ticket);

  // ---- durability -------------------------------------------------------------------------------------------------

  // Ends a section of calls: everything that changed since the last one becomes one write of the store. Returns the
  // number of the newest write: once the store has made it durable, all answers given so far may go out.
  uint64_t WriteChanges();
  // As if everything had changed: the next write repeats all records. For tests: it must change nothing.
  void MarkAllChanged();
  // The write that holds the newest commit.
  uint64_t commit_write() const { return commit_write_; }
  QueueStore* store() { return store_.get(); }

  v1::LedgerCounts counts() const { return ledger_.counts(); }
  using PayloadVisitor = std::function<absl::Status(const PayloadKey& key, const StoredPayload& payload)>;
  // Every trajectory that the store holds, by ticket and member. The first error of `visit` ends it.
  absl::Status VisitPayloads(const PayloadVisitor& visit) const;
  // Fills everything except `report` and the histogram of the answers' latency.
  void FillStatus(MonotonicTime now, v1::StatusResponse* status) const;
  // Whether tokens may carry this version: it was committed and is not void.
  bool VersionExists(const v1::WeightsVersion& weights) const;
  // Newest committed version, and the digest of its weights.
  const v1::WeightsVersion& committed() const { return committed_; }
  const std::string& committed_digest() const { return committed_digest_; }
  // All steps are trained and settled (until then a trainer that dies goes back and needs workers again), and all
  // evaluations are over.
  bool run_complete() const;
  bool draining() const { return draining_; }
  // Steps <= this are settled.
  uint64_t settled_step() const { return ledger_.settled_step(); }
  // REQUIRES CheckIdentity.
  const std::string& WorkerName(uint64_t producer) const { return workers_[producer - 1].name; }
  // Trained, unsettled payloads leave too little room for the next batch: the trainer should write a checkpoint.
  bool checkpoint_wanted() const;
  // Against max_groups and max_bytes.
  uint64_t groups() const { return ledger_.groups(); }
  uint64_t bytes() const { return store_->bytes() + reserved_bytes_; }

  // Every invariant that can be recounted: conservation, bounds, reservations, indices. For tests and for after faults.
  // INTERNAL names the first one broken. O(unsettled tickets).
  absl::Status CheckInvariants() const;

  static constexpr int kRememberedAnswers = 4096;
  static constexpr size_t kFailureCodes = 64;

 private:
  // Life of a trainer as the queue sees it.
  enum class Phase {
    kNoTrainer,  // a lineage may be allocated, nothing is restored: no tickets
    kRestored,   // waits for the initial Commit: no tickets
    kOpen
  };

  struct Worker {
    std::string name;
    v1::WorkerIdentity identity;
    bool alive = true;
    // Why it is not alive.
    std::string lost_because;
    MonotonicTime last_seen;
    v1::WeightsVersion holds;
    // Tickets it is running.
    absl::btree_set<uint64_t> running;
    // Its last request for tickets: number, free slots, and what it was given.
    uint64_t acquire_sequence = 0;
    uint64_t free_slots = 0;
    std::vector<v1::Ticket> acquired;
    // Episode slots as far as known: those free at the last request plus those busy then. 0 = has not asked yet.
    uint64_t slots = 0;
    // Members that its running tickets still miss.
    uint64_t busy = 0;
    // Until when tickets are kept back from it for the others; infinite = they are not.
    MonotonicTime limited_until = MonotonicTime::InfiniteFuture();
    // Nobody else came for them: its next call takes what it likes.
    bool is_share_lifted = false;
    uint64_t next_sequence = 1;
    // The last answers, ending with next_sequence - 1.
    std::deque<v1::PushAnswer> answers;
    // So many of them, the newest, are not written yet.
    size_t unwritten_answers = 0;
    // Epoch and first sequence number of every record of answers.
    std::deque<std::pair<uint64_t, uint64_t>> answer_records;
    // Why it has no new tickets, and since when; empty = its last call brought some.
    std::string wait_cause;
    MonotonicTime wait_since;
    uint64_t trajectories = 0;
    uint64_t failures = 0;
    v1::ProcessReport report;
  };

  // A ticket in state running.
  struct Run {
    uint64_t producer = 0;
    MonotonicTime started;
    MonotonicTime deadline;
    uint32_t missing = 0;
  };

  // A ticket that lost its worker at least once since it last made progress.
  struct Suspicion {
    uint32_t losses = 0;
    // groups_finished_ at the first of them.
    uint64_t finished_before = 0;
  };

  QueueCore(QueueCoreOptions options, StalenessPolicy policy, std::unique_ptr<QueueStore> store);

  // ---- queue_core_workers.cc: identities, tickets out ----
  absl::StatusOr<Worker*> FindWorker(const v1::WorkerIdentity& identity);
  void LoseWorker(Worker* worker, const std::string& why);
  static absl::Status Overtaken(const Worker& worker, uint64_t sequence);
  void SetHolds(Worker* worker, const v1::WeightsVersion& holds);
  void AcquireEvaluation(const Worker& worker, uint64_t* free_slots, v1::AcquireTicketsResponse* response);
  std::string AcquireTraining(Worker* worker, uint64_t* free_slots, MonotonicTime now,
                              v1::AcquireTicketsResponse* response);
  // Why no ticket can be started now; empty if one can.
  std::string StartCause() const;
  bool HasRoomForGroup() const;
  // Groups for which there are bytes.
  uint64_t GroupsOfRoom() const;
  // The ticket to start next, in state issued. REQUIRES StartCause() empty.
  uint64_t PrepareTicket();
  // Order `ticket`: a rewound ticket may find its room taken by groups that are to be trained after it. Those last in
  // order give way and are rewound too; nothing else would end that wait.
  void MakeRoomForRewound();
  uint64_t StartableGroups() const;
  // The part of `amount` that falls to `worker` by its slots, rounded up.
  uint64_t ShareOf(const Worker& worker, uint64_t amount) const;
  void StartTicket(uint64_t ticket, Worker* worker, MonotonicTime now, v1::Ticket* message);
  void RetireStaleIssued();

  // ---- queue_core_push.cc: trajectories in, groups closed ----
  absl::StatusOr<v1::PushAnswer> JudgePush(Worker* worker, PushedTrajectory* trajectory);
  v1::PushAnswer JudgeEvaluation(const Worker& worker, const PushedTrajectory& trajectory);
  // Why the tokens' versions are refused; empty if they are not. `*is_void`: they were right once.
  std::string CheckVersions(const TicketRow& row, const VersionUse& versions, bool* is_void) const;
  // Counts a failed episode or group; codes beyond kFailureCodes different ones count as "other".
  void CountFailure(const std::string& code);
  void FailMembers(uint64_t ticket, const std::vector<uint32_t>& members, const std::string& code);
  void CompleteGroup(uint64_t ticket);
  // To filtered, stale, failed or cancelled.
  void CloseTicket(uint64_t ticket, RowState to, uint64_t step);
  void RewindTicket(uint64_t ticket);
  void RemoveFromReady(uint64_t ticket);
  // No worker runs it any more.
  void StopRunning(uint64_t ticket);
  void MemberResolved(uint64_t ticket);
  void ErasePayloads(uint64_t ticket);
  // What is reserved for members still missing.
  uint64_t MissingBytes(const TicketRow& row) const;

  // ---- queue_core_trainer.cc: lineages, batches, commits ----
  absl::Status CheckLineage(uint64_t lineage) const;
  // The lineage is current and has committed here: a queue that started again under a living trainer knows its number,
  // but nothing of what it trained.
  absl::Status CheckOpen(uint64_t lineage, const std::string& call) const;
  struct Checkpoint {
    Ledger ledger;
    LineageHistory history;
    v1::WeightsVersion committed;
  };
  absl::StatusOr<Checkpoint> LoadSnapshot(const std::string& bytes, uint64_t step) const;
  void RebuildAfterRestore(uint64_t step);
  static const char* OrderName(StalenessOrder order);
  // The group has just become ready (again): the last one so far.
  void AddReady(const TicketRow& row);
  void IndexReady(const TicketRow& row);
  absl::StatusOr<std::vector<uint64_t>> PickGroups(uint64_t wanted);
  void JudgeVariance();
  // True if the group is kept.
  bool KeepOrFilter(const TicketRow& row, uint64_t step);
  std::string LeaseCause() const;
  bool HasLiveWorker() const;
  static uint64_t LagOf(const TicketRow& row, uint64_t step);

  // ---- queue_core_records.cc: into the store and back ----
  v1::HeadRecord MakeHead() const;
  std::string MakeRow(const TicketRow& row) const;
  v1::WorkerRecord MakeWorker(const Worker& worker) const;
  void WriteAnswers(Worker* worker, std::vector<StoreRecord>* records);
  void MarkChanged(const Worker& worker) { changed_workers_.insert(worker.identity.producer_id()); }
  absl::Status Recover(MonotonicTime now);
  absl::Status CheckSameRun(const v1::HeadRecord& head) const;
  absl::Status RecoverRecord(absl::string_view key, absl::string_view value, MonotonicTime now);
  absl::Status RecoverHead(const v1::HeadRecord& head);
  absl::Status RecoverRow(uint64_t ticket, const v1::RowRecord& record);
  absl::Status RecoverWorker(uint64_t producer, const v1::WorkerRecord& record, MonotonicTime now);
  absl::Status RecoverAnswers(absl::string_view key, const v1::PushResponse& answers);
  // What follows from the rows: bytes, ready groups, running tickets.
  absl::Status RebuildFromRows(MonotonicTime now);

  // ---- queue_core.cc ----
  std::string Blocker(MonotonicTime now) const;
  // CheckInvariants without the bounds: those of a resumed run may be lower than what it holds, then nothing is issued
  // until it holds less.
  absl::Status CheckConsistency() const;
  absl::Status CheckRuns() const;
  absl::Status CheckBytes() const;

  bool IsOrderTicket() const { return options_.staleness.order == StalenessOrder::kTicket; }
  uint64_t GroupReservation() const { return options_.group_size * options_.max_trajectory_bytes; }
  void Changed() { ++changes_; }

  const QueueCoreOptions options_;

  const StalenessPolicy policy_;

  const std::unique_ptr<QueueStore> store_;

  Ledger ledger_;

  LineageHistory history_;

  EvaluationPlan evaluation_;

  // ---- trainer ----

  Phase phase_ = Phase::kNoTrainer;

  // The newest lineage allocated; the only one whose calls are answered.
  uint64_t lineage_ = 0;

  // The step that trains next: the committed version, or c+1 between Restore and the initial Commit.
  uint64_t step_ = 1;

  // The newest step that the trainer asked a batch for.
  uint64_t requested_step_ = 0;

  v1::WeightsVersion committed_;

  std::string committed_digest_;

  // Groups leased for step_.
  absl::btree_set<uint64_t> leased_;

  // Why the trainer's last Lease was empty, and since when.
  std::string trainer_wait_cause_;

  MonotonicTime trainer_wait_since_;

  // ---- workers ----

  // By producer id; identities are dense from 1.
  std::vector<Worker> workers_;

  absl::flat_hash_map<std::string, uint64_t> producer_by_name_;

  bool draining_ = false;

  // Something happened after which an evaluation may be out of everybody's reach: Tick is due at once.
  bool is_reach_changed_ = false;

  // ---- tickets ----

  absl::flat_hash_map<uint64_t, Run> running_;

  absl::btree_set<std::pair<absl::Duration, uint64_t>> ticket_deadlines_;

  absl::flat_hash_map<uint64_t, Suspicion> suspicions_;

  // Ready groups in the order in which they are taken.
  absl::btree_set<std::pair<StalenessPolicy::OrderKey, uint64_t>> ready_;

  struct Ready {
    StalenessPolicy::OrderKey key;
    MonotonicTime since;
  };
  absl::flat_hash_map<uint64_t, Ready> ready_keys_;

  // Of groups when they were leased: seconds since they were ready, and lag.
  Histogram lease_age_ = Histogram::Geometric(0.001, 2.0, 22);
  Histogram lease_lag_ = Histogram({0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64});

  // The time of the latest call that told it.
  MonotonicTime now_;

  // Groups that became ready, ever.
  uint64_t groups_finished_ = 0;

  // Numbers groups in the order in which they became ready.
  uint64_t last_completion_ = 0;

  // ---- zero-variance filter ----

  // Order `ticket`: all live tickets up to this id are judged, ...
  uint64_t judged_through_ = 0;

  // ... and so many of all live ones, those of past steps included, were kept.
  uint64_t judged_kept_ = 0;

  // JudgeVariance is under way (it closes tickets, and closing a ticket judges).
  bool is_judging_ = false;

  // Other orders: ready groups that are not judged yet.
  absl::btree_set<uint64_t> unjudged_;

  absl::btree_map<uint64_t, uint64_t> filtered_in_step_;

  uint64_t zero_advantage_groups_ = 0;

  // ---- bytes ----

  // For missing members of issued and running tickets.
  uint64_t reserved_bytes_ = 0;

  // Payloads of trained, unsettled groups.
  uint64_t trained_bytes_ = 0;

  // ---- what happened ----

  uint64_t changes_ = 0;

  std::map<std::string, uint64_t> answers_;

  std::map<std::string, uint64_t> episode_failures_;

  uint64_t generated_tokens_ = 0;

  uint64_t completed_trajectories_ = 0;

  // ---- records ----

  uint64_t lives_ = 1;

  // As last written.
  std::string written_head_;

  // By producer id.
  absl::btree_set<uint64_t> changed_workers_;

  // Keys of answers of identities that are gone.
  std::vector<std::string> forgotten_answers_;

  std::vector<LineageHistory::Life> written_lives_;

  // During a recovery: who runs a ticket, ...
  absl::flat_hash_map<uint64_t, uint64_t> recovered_runs_;

  // ... and what was answered to whom.
  struct RecoveredAnswers {
    uint64_t next_sequence = 0;
    std::deque<v1::PushAnswer> answers;
    std::deque<std::pair<uint64_t, uint64_t>> records;
  };
  std::map<uint64_t, RecoveredAnswers> recovered_answers_;

  uint64_t last_write_ = 0;

  uint64_t commit_write_ = 0;
  // Since the last write.
  bool has_committed_ = false;
};

}  // namespace leeway

#endif  // LEEWAY_QUEUE_CORE_QUEUE_CORE_H_
