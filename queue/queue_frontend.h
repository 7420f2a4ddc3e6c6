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
#include "queue/door/quarantine.h"
#include "queue/door/validation.h"
#include "queue/queue_core.h"
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
// must not block. Time: every wait has a deadline. Call RunDue() at NextDue() at the latest; `on_due_earlier` says when
// NextDue() has moved forward.
class QueueFrontend {
 public:
  // `quarantine`, `file_system` and `clock` must outlive it. `on_due_earlier` is called without the lock, from any
  // thread.
  QueueFrontend(QueueFrontendOptions options, std::unique_ptr<QueueCore> core, Quarantine* quarantine,
                FileSystem* file_system, const Clock* clock, std::function<void()> on_due_earlier);
  QueueFrontend(const QueueFrontend&) = delete;
  QueueFrontend& operator=(const QueueFrontend&) = delete;

  // ---- long polls
  // ----------------------------------------------------------------------------------------------------------------
  using WaitId = uint64_t;
  using TicketsDone = std::function<void(absl::StatusOr<v1::AcquireTicketsResponse>)>;
  using LeaseDone = std::function<void(absl::StatusOr<LeaseResult>)>;

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

  // ---- calls that answer at once
  // -------------------------------------------------------------------------------------------------
  // FAILED_PRECONDITION names both fingerprints.
  absl::StatusOr<v1::RegisterResponse> Register(const v1::RegisterRequest& request) LEEWAY_EXCLUDES(mutex_);
  absl::StatusOr<v1::HeartbeatResponse> Heartbeat(const v1::HeartbeatRequest& request) LEEWAY_EXCLUDES(mutex_);
  // Durable before it returns. INTERNAL and such: the file could not be written; asking again gives a newer lineage.
  absl::StatusOr<v1::AllocateLineageResponse> AllocateLineage(const v1::AllocateLineageRequest& request)
      LEEWAY_EXCLUDES(mutex_, lineage_mutex_);
  absl::StatusOr<v1::RestoreResponse> Restore(const v1::RestoreRequest& request) LEEWAY_EXCLUDES(mutex_);
  absl::StatusOr<v1::CommitResponse> Commit(const v1::CommitRequest& request) LEEWAY_EXCLUDES(mutex_);
  absl::StatusOr<v1::SettleResponse> Settle(const v1::SettleRequest& request) LEEWAY_EXCLUDES(mutex_);
  absl::StatusOr<v1::LedgerSnapshotResponse> LedgerSnapshot(const v1::LedgerSnapshotRequest& request)
      LEEWAY_EXCLUDES(mutex_);
  // The group's trajectories go to the quarantine.
  absl::StatusOr<v1::RetireGroupResponse> RetireGroup(const v1::RetireGroupRequest& request) LEEWAY_EXCLUDES(mutex_);
  absl::StatusOr<v1::FenceWorkerResponse> FenceWorker(const v1::FenceWorkerRequest& request) LEEWAY_EXCLUDES(mutex_);
  // Everything but `report`.
  v1::StatusResponse Status() LEEWAY_EXCLUDES(mutex_);
  v1::DrainResponse Drain() LEEWAY_EXCLUDES(mutex_);

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
  // What is to be called after the lock is released.
  using Callbacks = std::vector<std::function<void()>>;

  WaitId StartWait(Wait wait, uint64_t wait_ms) LEEWAY_EXCLUDES(mutex_);
  // Asks the core for what `wait` wants. True: answered (in `callbacks`); `is_last`: empty answers count too.
  bool Attempt(Wait* wait, bool is_last, MonotonicTime now, Callbacks* callbacks) LEEWAY_REQUIRES(mutex_);
  // Ends a section that may have changed the core: answers the waits that can be answered, in the order in which they
  // came.
  void Settled(MonotonicTime now, Callbacks* callbacks) LEEWAY_REQUIRES(mutex_);
  void AttemptAll(MonotonicTime now, Callbacks* callbacks) LEEWAY_REQUIRES(mutex_);
  MonotonicTime NextDueLocked() const LEEWAY_REQUIRES(mutex_);
  // Calls `section(core, now)` under the lock, then answers waits, and returns what it returned.
  template <typename Section>
  auto WithCore(Section section) LEEWAY_EXCLUDES(mutex_);

  const QueueFrontendOptions options_;
  Quarantine* const quarantine_;
  FileSystem* const file_system_;
  const Clock* const clock_;
  const std::function<void()> on_due_earlier_;

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
  // Producer id -> name, for the quarantine.
  absl::flat_hash_map<uint64_t, std::string> names_ LEEWAY_GUARDED_BY(mutex_);
};

// Puts chunks together, checks what they hold, gives it to the core, answers in order.
class QueueFrontend::PushSession {
 public:
  // Adds the answers to what `request` completes to `response`. Not OK: the stream has to end with this status, after
  // `response` is sent: ABORTED (fenced), FAILED_PRECONDITION (gap), INVALID_ARGUMENT (broken chunks, changed
  // identity), OUT_OF_RANGE. `request` is moved from.
  absl::Status Handle(v1::PushRequest* request, v1::PushResponse* response) LEEWAY_EXCLUDES(frontend_->mutex_);

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
