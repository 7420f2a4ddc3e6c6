#ifndef LEEWAY_QUEUE_FAKE_QUEUE_CLIENT_H_
#define LEEWAY_QUEUE_FAKE_QUEUE_CLIENT_H_

// In-memory queues for tests of rollout and trainer: no network, no threads of their own, no ledger. A test scripts
// what the queue says and reads back what it was told. Both are thread-safe, and both refuse what the real queue
// refuses for identity: a fenced epoch, an old lineage. Everything else is up to the test.

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "leeway/v1/queue.pb.h"
#include "leeway/v1/types.pb.h"
#include "queue/queue_client.h"

namespace leeway {

// The queue for one worker.
//
//   FakeQueueWorkerClient queue;
//   queue.SetCommitted({lineage 1, version 1}, digest);
//   queue.AddTicket(ticket);                        // handed out in this order, at most `max_members` wanted members a
//   call queue.SetPushHandler([](const v1::Trajectory& t) { return answer; });   // default: ACCEPTED
//   ... run the worker ...
//   queue.pushed()
class FakeQueueWorkerClient : public QueueWorkerClient {
 public:
  using PushHandler = std::function<absl::StatusOr<v1::PushAnswer>(const v1::Trajectory& trajectory)>;

  FakeQueueWorkerClient();

  // ---- the queue's interface
  // ----------------------------------------------------------------------------------------------------- Producer id
  // 1; the epoch counts up. Lifts a fence.
  absl::StatusOr<v1::RegisterResponse> Register(const std::string& name, const std::string& run_fingerprint,
                                                absl::Duration timeout) override LEEWAY_EXCLUDES(mutex_);
  // Waits up to `wait` of real time for a ticket (or completion, a fence, a scripted error); then empty with the
  // scripted cause. A ticket is given whole, also if it wants more members than asked for and is the first of its
  // answer.
  absl::StatusOr<v1::AcquireTicketsResponse> AcquireTickets(uint32_t max_members, const v1::WeightsVersion& holds,
                                                            absl::Duration wait) override LEEWAY_EXCLUDES(mutex_);
  // Calls `done` before it returns, unless answers are held.
  void Push(v1::Trajectory trajectory, std::function<void(absl::StatusOr<v1::PushAnswer>)> done) override
      LEEWAY_EXCLUDES(mutex_);
  int64_t unanswered_pushes() const override LEEWAY_EXCLUDES(mutex_);
  absl::StatusOr<v1::HeartbeatResponse> Heartbeat(const v1::HeartbeatRequest& request, absl::Duration timeout) override
      LEEWAY_EXCLUDES(mutex_);

  // ---- the script
  // ----------------------------------------------------------------------------------------------------------------
  void AddTicket(v1::Ticket ticket) LEEWAY_EXCLUDES(mutex_);
  // What answers and heartbeats call committed.
  void SetCommitted(const v1::WeightsVersion& weights, const std::string& digest) LEEWAY_EXCLUDES(mutex_);
  // Cause of empty answers; "waiting_for_version" at first.
  void SetCause(const std::string& cause) LEEWAY_EXCLUDES(mutex_);
  // From now on the run is complete: acquires answer at once, without tickets, with cause "run_complete".
  void SetRunComplete() LEEWAY_EXCLUDES(mutex_);
  void SetDraining(bool draining) LEEWAY_EXCLUDES(mutex_);
  // The next heartbeat tells the worker to abandon this ticket.
  void Abandon(uint64_t ticket) LEEWAY_EXCLUDES(mutex_);
  // Every call is ABORTED until Register is called again; held pushes are answered so too.
  void Fence() LEEWAY_EXCLUDES(mutex_);
  // The next call of the method ("Register", "AcquireTickets", "Push", "Heartbeat") fails so. Queued: call twice for
  // two failures.
  void FailNext(const std::string& method, absl::Status status) LEEWAY_EXCLUDES(mutex_);
  void SetPushHandler(PushHandler handler) LEEWAY_EXCLUDES(mutex_);
  // While held, pushes stay unanswered; releasing answers them in order, on the caller's thread.
  void HoldAnswers() LEEWAY_EXCLUDES(mutex_);
  void ReleaseAnswers() LEEWAY_EXCLUDES(mutex_);
  // What Register answers besides the identity (heartbeat interval, lease, limits).
  void SetHandshake(const v1::RegisterResponse& handshake) LEEWAY_EXCLUDES(mutex_);

  // ---- what was told
  // -------------------------------------------------------------------------------------------------------------
  v1::WorkerIdentity identity() const LEEWAY_EXCLUDES(mutex_);
  std::string fingerprint() const LEEWAY_EXCLUDES(mutex_);
  std::vector<v1::Trajectory> pushed() const LEEWAY_EXCLUDES(mutex_);
  std::vector<v1::HeartbeatRequest> heartbeats() const LEEWAY_EXCLUDES(mutex_);
  int tickets_left() const LEEWAY_EXCLUDES(mutex_);
  // Blocks until `count` trajectories were pushed in all; false when `timeout` (real time) ends first.
  bool WaitForPushes(int count, absl::Duration timeout) const LEEWAY_EXCLUDES(mutex_);

 private:
  struct HeldPush {
    v1::Trajectory trajectory;
    std::function<void(absl::StatusOr<v1::PushAnswer>)> done;
  };

  // The scripted failure of `method`, the fence, or OK.
  absl::Status CheckCall(const std::string& method) LEEWAY_REQUIRES(mutex_);

  mutable Mutex mutex_;
  mutable CondVar changed_;
  v1::RegisterResponse handshake_ LEEWAY_GUARDED_BY(mutex_);
  v1::WorkerIdentity identity_ LEEWAY_GUARDED_BY(mutex_);
  std::string fingerprint_ LEEWAY_GUARDED_BY(mutex_);
  bool fenced_ LEEWAY_GUARDED_BY(mutex_) = false;
  std::deque<v1::Ticket> tickets_ LEEWAY_GUARDED_BY(mutex_);
  v1::WeightsVersion committed_ LEEWAY_GUARDED_BY(mutex_);
  std::string committed_digest_ LEEWAY_GUARDED_BY(mutex_);
  std::string cause_ LEEWAY_GUARDED_BY(mutex_) = "waiting_for_version";
  bool run_complete_ LEEWAY_GUARDED_BY(mutex_) = false;
  bool draining_ LEEWAY_GUARDED_BY(mutex_) = false;
  std::vector<uint64_t> abandon_ LEEWAY_GUARDED_BY(mutex_);
  std::map<std::string, std::deque<absl::Status>> failures_ LEEWAY_GUARDED_BY(mutex_);
  PushHandler handler_ LEEWAY_GUARDED_BY(mutex_);
  bool holding_ LEEWAY_GUARDED_BY(mutex_) = false;
  std::deque<HeldPush> held_ LEEWAY_GUARDED_BY(mutex_);
  int64_t unanswered_ LEEWAY_GUARDED_BY(mutex_) = 0;
  uint64_t next_sequence_ LEEWAY_GUARDED_BY(mutex_) = 1;
  std::vector<v1::Trajectory> pushed_ LEEWAY_GUARDED_BY(mutex_);
  std::vector<v1::HeartbeatRequest> heartbeats_ LEEWAY_GUARDED_BY(mutex_);
};

// The queue for one trainer.
//
//   FakeQueueTrainerClient queue;
//   queue.SetBatchSource([](uint64_t step) { return batch; });   // or AddBatch(step, batch)
//   ... run the trainer ...
//   queue.commits()
class FakeQueueTrainerClient : public QueueTrainerClient {
 public:
  using BatchSource = std::function<absl::StatusOr<LeasedBatch>(uint64_t step)>;

  absl::StatusOr<v1::AllocateLineageResponse> AllocateLineage(absl::Duration timeout) override LEEWAY_EXCLUDES(mutex_);
  absl::StatusOr<v1::LedgerCounts> Restore(uint64_t lineage, uint64_t step, const std::string& ledger_snapshot,
                                           absl::Duration timeout) override LEEWAY_EXCLUDES(mutex_);
  // The batch of that step; the same step again gives the same batch, also when a source made it. Without one: waits up
  // to `wait` of real time for AddBatch, then empty with cause "waiting_for_groups".
  absl::StatusOr<LeasedBatch> LeaseBatch(uint64_t lineage, uint64_t step, absl::Duration wait) override
      LEEWAY_EXCLUDES(mutex_);
  // Records the commit and its version. FAILED_PRECONDITION unless version = newest + 1 (or the request is `initial`,
  // or it repeats the newest with the same digest).
  absl::StatusOr<v1::LedgerCounts> Commit(const v1::CommitRequest& request, absl::Duration timeout) override
      LEEWAY_EXCLUDES(mutex_);
  absl::StatusOr<v1::LedgerCounts> Settle(uint64_t lineage, uint64_t step, absl::Duration timeout) override
      LEEWAY_EXCLUDES(mutex_);
  absl::StatusOr<std::string> LedgerSnapshot(uint64_t lineage, absl::Duration timeout) override LEEWAY_EXCLUDES(mutex_);
  absl::Status RetireGroup(uint64_t lineage, uint64_t step, uint64_t ticket, const std::string& reason,
                           absl::Duration timeout) override LEEWAY_EXCLUDES(mutex_);
  absl::Status FenceWorker(uint64_t lineage, const v1::WorkerIdentity& identity, const std::string& reason,
                           absl::Duration timeout) override LEEWAY_EXCLUDES(mutex_);
  absl::StatusOr<v1::StatusResponse> GetStatus(absl::Duration timeout) override LEEWAY_EXCLUDES(mutex_);

  // ---- the script
  // ----------------------------------------------------------------------------------------------------------------
  void AddBatch(uint64_t step, LeasedBatch batch) LEEWAY_EXCLUDES(mutex_);
  void SetBatchSource(BatchSource source) LEEWAY_EXCLUDES(mutex_);
  // After a retirement: what LeaseBatch gives for that step from now on (a replacement group in the batch).
  void ReplaceBatch(uint64_t step, LeasedBatch batch) LEEWAY_EXCLUDES(mutex_);
  void SetCounts(const v1::LedgerCounts& counts) LEEWAY_EXCLUDES(mutex_);
  void SetStatus(const v1::StatusResponse& status) LEEWAY_EXCLUDES(mutex_);
  void SetSnapshot(const std::string& snapshot) LEEWAY_EXCLUDES(mutex_);
  // The next call of the method ("Commit", "LeaseBatch", "GetStatus", ...) fails so.
  void FailNext(const std::string& method, absl::Status status) LEEWAY_EXCLUDES(mutex_);

  // ---- what was told
  // -------------------------------------------------------------------------------------------------------------
  struct RestoreCall {
    uint64_t lineage = 0;
    uint64_t step = 0;
    std::string ledger_snapshot;
  };
  struct RetireCall {
    uint64_t step = 0;
    uint64_t ticket = 0;
    std::string reason;
  };
  struct FenceCall {
    v1::WorkerIdentity identity;
    std::string reason;
  };
  uint64_t lineage() const LEEWAY_EXCLUDES(mutex_);
  std::vector<v1::CommitRequest> commits() const LEEWAY_EXCLUDES(mutex_);
  std::vector<RestoreCall> restores() const LEEWAY_EXCLUDES(mutex_);
  // Steps given to Settle that it had not settled, in order.
  std::vector<uint64_t> settled() const LEEWAY_EXCLUDES(mutex_);
  std::vector<RetireCall> retired() const LEEWAY_EXCLUDES(mutex_);
  std::vector<FenceCall> fenced() const LEEWAY_EXCLUDES(mutex_);

 private:
  absl::Status CheckCall(const std::string& method, uint64_t lineage) LEEWAY_REQUIRES(mutex_);

  mutable Mutex mutex_;
  CondVar changed_;
  uint64_t lineage_ LEEWAY_GUARDED_BY(mutex_) = 0;
  v1::WeightsVersion committed_ LEEWAY_GUARDED_BY(mutex_);
  std::string committed_digest_ LEEWAY_GUARDED_BY(mutex_);
  std::map<uint64_t, LeasedBatch> batches_ LEEWAY_GUARDED_BY(mutex_);
  BatchSource source_ LEEWAY_GUARDED_BY(mutex_);
  v1::LedgerCounts counts_ LEEWAY_GUARDED_BY(mutex_);
  v1::StatusResponse status_ LEEWAY_GUARDED_BY(mutex_);
  std::string snapshot_ LEEWAY_GUARDED_BY(mutex_) = "ledger";
  std::map<std::string, std::deque<absl::Status>> failures_ LEEWAY_GUARDED_BY(mutex_);
  std::vector<v1::CommitRequest> commits_ LEEWAY_GUARDED_BY(mutex_);
  std::vector<RestoreCall> restores_ LEEWAY_GUARDED_BY(mutex_);
  std::vector<uint64_t> settled_ LEEWAY_GUARDED_BY(mutex_);
  std::vector<RetireCall> retired_ LEEWAY_GUARDED_BY(mutex_);
  std::vector<FenceCall> fenced_ LEEWAY_GUARDED_BY(mutex_);
};

}  // namespace leeway

#endif  // LEEWAY_QUEUE_FAKE_QUEUE_CLIENT_H_
