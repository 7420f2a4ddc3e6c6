#ifndef LEEWAY_QUEUE_QUEUE_CLIENT_H_
#define LEEWAY_QUEUE_QUEUE_CLIENT_H_

// The queue as its two kinds of users see it. gRPC implementations: queue_grpc_client.h; in memory, for tests:
// fake_queue_client.h.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "leeway/v1/queue.pb.h"
#include "leeway/v1/types.pb.h"

namespace leeway {

// Towards the queue as one rollout worker. Thread-safe. Errors of all calls: ABORTED = this identity is fenced,
// register again; UNAVAILABLE = the queue does not answer; DEADLINE_EXCEEDED.
class QueueWorkerClient {
 public:
  virtual ~QueueWorkerClient() = default;

  // Blocks until answered or `timeout`. A later call raises the epoch and makes this client use the new identity.
  virtual absl::StatusOr<v1::RegisterResponse> Register(const std::string& name, const std::string& run_fingerprint,
                                                        absl::Duration timeout) = 0;
  // Long poll, blocks at most `wait` (plus a margin for the network). One call at a time. After an error the next call
  // also gives what the lost answer had given.
  virtual absl::StatusOr<v1::AcquireTicketsResponse> AcquireTickets(uint32_t max_members,
                                                                    const v1::WeightsVersion& holds,
                                                                    absl::Duration wait) = 0;
  // Does not block. Sequence numbers, chunking, and sending again after FULL are the client's business; `done` is
  // called once, on a thread of the client, with the final answer (never FULL) or the error. Order of answers = order
  // of calls.
  virtual void Push(v1::Trajectory trajectory, std::function<void(absl::StatusOr<v1::PushAnswer>)> done) = 0;
  // Trajectories handed to Push and not answered yet: the worker's own back-pressure.
  virtual int64_t unanswered_pushes() const = 0;
  virtual absl::StatusOr<v1::HeartbeatResponse> Heartbeat(const v1::HeartbeatRequest& request,
                                                          absl::Duration timeout) = 0;
};

// One group of a leased batch: trajectories by member, complete.
struct BatchGroup {
  uint64_t ticket = 0;
  uint32_t issue = 0;
  std::vector<v1::Trajectory> members;
  // Counts for the step but trains with advantage 0 (filter's refill limit).
  bool zero_advantage = false;
};

struct LeasedBatch {
  // Exactly groups_per_step groups in ticket order, or none and a cause.
  std::vector<BatchGroup> groups;
  std::string cause;
  // Tokens with a larger lag must not be trained (breach `mask`), or must not occur (all other policies).
  uint64_t lag_limit = 0;
};

// Towards the queue as the trainer. Blocking calls, each at most `timeout`. ABORTED = another lineage is current: exit
// and restore.
class QueueTrainerClient {
 public:
  virtual ~QueueTrainerClient() = default;

  virtual absl::StatusOr<v1::AllocateLineageResponse> AllocateLineage(absl::Duration timeout) = 0;
  virtual absl::StatusOr<v1::LedgerCounts> Restore(uint64_t lineage, uint64_t step, const std::string& ledger_snapshot,
                                                   absl::Duration timeout) = 0;
  // Long poll. The same step again gives the same groups.
  virtual absl::StatusOr<LeasedBatch> LeaseBatch(uint64_t lineage, uint64_t step, absl::Duration wait) = 0;
  virtual absl::StatusOr<v1::LedgerCounts> Commit(const v1::CommitRequest& request, absl::Duration timeout) = 0;
  virtual absl::StatusOr<v1::LedgerCounts> Settle(uint64_t lineage, uint64_t step, absl::Duration timeout) = 0;
  virtual absl::StatusOr<std::string> LedgerSnapshot(uint64_t lineage, absl::Duration timeout) = 0;
  virtual absl::Status RetireGroup(uint64_t lineage, uint64_t step, uint64_t ticket, const std::string& reason,
                                   absl::Duration timeout) = 0;
  virtual absl::Status FenceWorker(uint64_t lineage, const v1::WorkerIdentity& identity, const std::string& reason,
                                   absl::Duration timeout) = 0;
  virtual absl::StatusOr<v1::StatusResponse> GetStatus(absl::Duration timeout) = 0;
};

}  // namespace leeway

#endif  // LEEWAY_QUEUE_QUEUE_CLIENT_H_
