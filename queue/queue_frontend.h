#ifndef LEEWAY_QUEUE_QUEUE_FRONTEND_H_
#define LEEWAY_QUEUE_QUEUE_FRONTEND_H_

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/file_system.h"
#include "base/mutex.h"
#include "leeway/v1/queue.pb.h"
#include "queue/core/queue_core.h"
#include "queue/door/quarantine.h"
#include "queue/door/validation.h"
#include "queue/durable_replies.h"
#include "queue/store/queue_store.h"
#include "rpc/chunks.h"

namespace leeway {

struct QueueFrontendOptions {
  ValidationLimits limits;
  // Of one serialised trajectory, and of one piece of it.
  uint64_t max_trajectory_bytes = 64 << 20;
  uint64_t max_chunk_bytes = 1 << 20;
  // What a worker's Register must name: the digest of the configuration keys that have to agree.
  std::string run_fingerprint;
  // Handed to workers; the core judges by its own copies.
  absl::Duration heartbeat_interval = absl::Seconds(1);
  absl::Duration worker_lease = absl::Seconds(10);
  // What a worker may have on the wire without an answer.
  uint64_t max_unanswered_pushes = 1024;
  uint64_t max_unanswered_bytes = 64 << 20;
  // No long poll lasts longer, whatever it asks for.
  absl::Duration max_wait = absl::Seconds(60);
  // File that holds the newest lineage (its folder exists), so that none is ever given twice. Empty: kept in memory
  // only.
  std::string lineage_path;
};

// The newest lineage in the file; 0 when there is none. DATA_LOSS: the file holds something else.
absl::StatusOr<uint64_t> ReadLastLineage(FileSystem* file_system, const std::string& lineage_path);

// Role: the core behind one lock, with what needs more than one call of it: long polls, the door (chunks, parsing,
// validation, quarantine), the durable lineage. No gRPC, no sockets, no threads of its own: queue_service translates
// for it, QueueServer drives its time, and tests drive both.
//
// Threads: thread-safe. One mutex guards the core; parsing and validation happen outside of it. Callbacks (`done`) are
// called without a lock, on the thread that made the answer possible (or on the caller's, before the call returns), and
// must not block. Durability: with a durable store every answer waits until the store has written what it tells; while
// the disk fails none goes out, and at Shutdown those still waiting end with UNAVAILABLE. Time: every wait has a
// deadline. Call RunDue() at NextDue() at the latest; `on_due_earlier` says when NextDue() has moved forward.
class QueueFrontend {
 public:
  // `quarantine`, `file_system` and `clock` must outlive it. `on_due_earlier` is called without the lock, from any
  // thread.
  QueueFrontend(QueueFrontendOptions options, std::unique_ptr<QueueCore> core, Quarantine* quarantine,
                FileSystem* file_system, const Clock* clock, std::function<void()> on_due_earlier);
  QueueFrontend(const QueueFrontend&) = delete;
  QueueFrontend& operator=(const QueueFrontend&) = delete;

  template <typename Response>
  using Done = std::function<void(absl::StatusOr<Response>)>;

  // ---- long polls
  // ----------------------------------------------------------------------------------------------------------------
  using WaitId = uint64_t;
  using TicketsDone = Done<v1::AcquireTicketsResponse>;
  using LeaseDone = Done<LeaseResult>;

  // `done` is called once: as soon as there is something to give or it is certain that there will be nothing (draining,
  // run complete, a checkpoint is wanted), at the end of wait_ms with the cause, at Shutdown with UNAVAILABLE; never
  // after a Cancel that returned true.
  WaitId AcquireTickets(const v1::AcquireTicketsRequest& request, TicketsDone done) LEEWAY_EXCLUDES(mutex_);
  WaitId LeaseBatch(const v1::LeaseBatchRequest& request, LeaseDone done) LEEWAY_EXCLUDES(mutex_);
  // The caller is gone. True: `done` will not be called, and nothing was given out. False: it was called or is being
  // called.
  bool Cancel(WaitId id) LEEWAY_EXCLUDES(mutex_);

  // ---- time
  // ----------------------------------------------------------------------------------------------------------------------
  // Does what is due: lost workers, deadlines of tickets and evaluations, ends of waits.
  void RunDue() LEEWAY_EXCLUDES(mutex_);
  // The process did not run for so long; before RunDue.
  void ForgiveSilence(absl::Duration pause) LEEWAY_EXCLUDES(mutex_);
  // When that is, as things are. What moves it forward after this call is told by `on_due_earlier`.
  MonotonicTime NextDue() LEEWAY_EXCLUDES(mutex_);
  // Answers all waits, also later ones, with UNAVAILABLE, and ends the open push streams.
  void Shutdown() LEEWAY_EXCLUDES(mutex_);
  // `end` is called at Shutdown (at once if that has been), from its thread and without the lock, unless it was removed
  // before.
  uint64_t AddShutdownHook(std::function<void()> end) LEEWAY_EXCLUDES(mutex_);
  void RemoveShutdownHook(uint64_t id) LEEWAY_EXCLUDES(mutex_);

  // ---- pushes
  // --------------------------------------------------------------------------------------------------------------------
  // One worker's stream of pushes. Not thread-safe; the frontend must outlive it.
  class PushSession;
  std::unique_ptr<PushSession> NewPushSession();

  // ---- calls that answer as soon as they are durable
  // -------------------------------------------------------------------------------------------------
  // FAILED_PRECONDITION names both fingerprints.
  void Register(const v1::RegisterRequest& request, Done<v1::RegisterResponse> done) LEEWAY_EXCLUDES(mutex_);
  void Heartbeat(const v1::HeartbeatRequest& request, Done<v1::HeartbeatResponse> done) LEEWAY_EXCLUDES(mutex_);
  // In the file too before it is told. INTERNAL and such: that could not be written; asking again gives a newer
  // lineage.
  void AllocateLineage(const v1::AllocateLineageRequest& request, Done<v1::AllocateLineageResponse> done)
      LEEWAY_EXCLUDES(mutex_, lineage_mutex_);
  void Restore(const v1::RestoreRequest& request, Done<v1::RestoreResponse> done) LEEWAY_EXCLUDES(mutex_);
  void Commit(const v1::CommitRequest& request, Done<v1::CommitResponse> done) LEEWAY_EXCLUDES(mutex_);
  void Settle(const v1::SettleRequest& request, Done<v1::SettleResponse> done) LEEWAY_EXCLUDES(mutex_);
  void LedgerSnapshot(const v1::LedgerSnapshotRequest& request, Done<v1::LedgerSnapshotResponse> done)
      LEEWAY_EXCLUDES(mutex_);
  // The group's trajectories go to the quarantine.
  void RetireGroup(const v1::RetireGroupRequest& request, Done<v1::RetireGroupResponse> done) LEEWAY_EXCLUDES(mutex_);
  void FenceWorker(const v1::FenceWorkerRequest& request, Done<v1::FenceWorkerResponse> done) LEEWAY_EXCLUDES(mutex_);
  void Drain(Done<v1::DrainResponse> done) LEEWAY_EXCLUDES(mutex_);
  // A trajectory of this leased group is damaged (`why`): its ticket is issued again, and the batch with it.
  void OnDamagedGroup(uint64_t ticket, uint32_t issue, const absl::Status& why) LEEWAY_EXCLUDES(mutex_);
  // As things are now, durable or not. Everything but `report`.
  v1::StatusResponse Status() LEEWAY_EXCLUDES(mutex_, latency_mutex_);
  // Calls `done` after the answers to everything that came before.
  void AfterAnswers(std::function<void()> done) LEEWAY_EXCLUDES(mutex_);

  const QueueFrontendOptions& options() const { return options_; }

 private:
  // A long poll that has no answer yet; exactly one of the two callbacks is set.
  struct Wait {
    WaitId id = 0;
    MonotonicTime deadline;
    v1::AcquireTicketsRequest tickets;
    TicketsDone tickets_done;
    v1::LeaseBatchRequest lease;
    LeaseDone lease_done;
  };
  // What a section under the lock leaves to be done after it.
  struct Outcome {
    // Go out once write `number` is durable.
    std::vector<DurableReplies::Reply> replies;
    uint64_t number = 0;
    // NextDue() moved forward.
    bool is_due_earlier = false;
  };

  WaitId StartWait(Wait wait, uint64_t wait_ms) LEEWAY_EXCLUDES(mutex_);
  // Asks the core for what `wait` wants. True: answered (in `outcome`); `is_last`: empty answers count too.
  bool Attempt(Wait* wait, bool is_last, MonotonicTime now, Outcome* outcome) LEEWAY_REQUIRES(mutex_);
  // Ends a section that may have changed the core: answers the waits that can be answered, in the order in which they
  // came, and writes what changed.
  void Settled(MonotonicTime now, Outcome* outcome) LEEWAY_REQUIRES(mutex_);
  void OnPushesAnswered(MonotonicTime arrived, int count) LEEWAY_EXCLUDES(latency_mutex_);
  // Without the lock, right after the section.
  void Release(Outcome outcome) LEEWAY_EXCLUDES(mutex_);
  void AttemptAll(MonotonicTime now, Outcome* outcome) LEEWAY_REQUIRES(mutex_);
  MonotonicTime NextDueLocked() const LEEWAY_REQUIRES(mutex_);
  // Calls `section(core, now)` under the lock and answers waits; `done` gets what it returned, once that is durable.
  template <typename Result, typename Section>
  void WithCore(Section section, Done<Result> done) LEEWAY_EXCLUDES(mutex_);

  const QueueFrontendOptions options_;
  Quarantine* const quarantine_;
  FileSystem* const file_system_;
  const Clock* const clock_;
  const std::function<void()> on_due_earlier_;

  // Before the core: its store calls back until it is gone.
  Mutex latency_mutex_;
  // Seconds from the arrival of a push to its answer.
  Histogram push_answer_ LEEWAY_GUARDED_BY(latency_mutex_) = Histogram::Geometric(0.00005, 2.0, 22);

  // Held over allocation and writing of a lineage, so that the file never goes backwards.
  Mutex lineage_mutex_;

  mutable Mutex mutex_ LEEWAY_ACQUIRED_AFTER(lineage_mutex_);
  const std::unique_ptr<QueueCore> core_ LEEWAY_PT_GUARDED_BY(mutex_);
  // Oldest first.
  std::list<Wait> waits_ LEEWAY_GUARDED_BY(mutex_);
  WaitId next_wait_ LEEWAY_GUARDED_BY(mutex_) = 1;
  // core_->changes() when all waits were last attempted.
  uint64_t attempted_changes_ LEEWAY_GUARDED_BY(mutex_) = 0;
  // What NextDue() last returned, or on_due_earlier announced.
  MonotonicTime announced_due_ LEEWAY_GUARDED_BY(mutex_);
  bool shut_down_ LEEWAY_GUARDED_BY(mutex_) = false;
  absl::flat_hash_map<uint64_t, std::function<void()>> shutdown_hooks_ LEEWAY_GUARDED_BY(mutex_);
  uint64_t next_shutdown_hook_ LEEWAY_GUARDED_BY(mutex_) = 1;

  QueueStore* const store_;
  // Shared with the store's callbacks.
  const std::shared_ptr<DurableReplies> replies_;
};

// Puts chunks together, checks what they hold, gives it to the core, answers in order.
class QueueFrontend::PushSession {
 public:
  // `done` is called once, in the order of the calls: with the answers to what `request` completes (there may be none),
  // once they are durable. Not OK: the stream has to end with this status, after the answers are sent: ABORTED
  // (fenced), FAILED_PRECONDITION (gap), INVALID_ARGUMENT (broken chunks, changed identity), OUT_OF_RANGE, UNAVAILABLE
  // (shutdown). `request` is moved from.
  using Answered = std::function<void(v1::PushResponse answers, const absl::Status& status)>;
  void Handle(v1::PushRequest* request, Answered done) LEEWAY_EXCLUDES(frontend_->mutex_);

 private:
  friend class QueueFrontend;
  // One whole trajectory of a message.
  struct Arrived {
    uint64_t sequence = 0;
    PushedTrajectory trajectory;
  };
  // One refused one, to be kept aside once the lock is released.
  struct Refused {
    std::string reason;
    std::string bytes;
  };
  explicit PushSession(QueueFrontend* frontend);

  absl::Status CheckIdentity(const v1::WorkerIdentity& identity);
  absl::Status Collect(v1::PushRequest* request, std::vector<Arrived>* arrived);
  PushedTrajectory Inspect(std::string payload) const;
  // The core's answers to `arrived`, as far as there are any.
  absl::Status Deliver(std::vector<Arrived>* arrived, v1::PushResponse* response, std::vector<Refused>* refused)
      LEEWAY_REQUIRES(frontend_->mutex_);

  QueueFrontend* const frontend_;
  v1::WorkerIdentity identity_;
  // Of the worker, for the quarantine.
  std::string name_;
  ChunkAssembler assembler_;
  // FULL was the answer to this sequence number: what is in the pipe behind it is not consumed either, until it comes
  // again. 0 = none.
  uint64_t full_sequence_ = 0;
  uint64_t full_retry_after_ms_ = 0;
};

}  // namespace leeway

#endif  // LEEWAY_QUEUE_QUEUE_FRONTEND_H_
