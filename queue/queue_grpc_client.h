#ifndef LEEWAY_QUEUE_QUEUE_GRPC_CLIENT_H_
#define LEEWAY_QUEUE_QUEUE_GRPC_CLIENT_H_

// The queue over gRPC, as its two kinds of users see it (queue/queue_client.h).

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "queue/queue_client.h"
#include "rpc/security/connection_security.h"

namespace leeway {

struct QueueGrpcClientOptions {
  // Where the queue listens: "unix:/path" or "host:port".
  std::string target;
  // Who calls: the trainer's name in the queue's log. Workers give theirs to Register.
  std::string name;
  // Calls are tried again for so long when the queue cannot be reached (never beyond their own timeout).
  absl::Duration retry_for = absl::Seconds(5);
  // How much longer than its `wait` a long poll may take on the way.
  absl::Duration network_margin = absl::Seconds(10);
  // Small pushes are held back at most so long, so that they share messages; the first one after a pause is not.
  absl::Duration push_linger = absl::Milliseconds(4);
  // Unanswered pushes are given up (UNAVAILABLE) when nothing was heard of the queue for so long.
  absl::Duration push_patience = absl::Seconds(60);
  // At most so many pushes are sent and unanswered, also where the queue allows more. 0 = as many as it allows.
  uint64_t max_unanswered_pushes = 0;
  // How the queue is to know this caller, over TCP.
  ConnectionSecurity security;
};

// A worker's client. Thread-safe. Calls block as queue_client.h says; Push never does.
//
// While the queue is away (restarting), all calls are tried again, with back-off and jitter, for as long as their own
// time and retry_for allow.
//
// AcquireTickets, one call at a time: as long as no answer was heard the next try, and the next call, is the same
// request for the queue, so it gives the tickets of an answer that was lost on the way.
//
// Pushes: one stream, pipelined, many to a message. A broken connection is made again and what was not answered is sent
// again under the same sequence numbers. When the queue refuses the identity (ABORTED: fenced, or a restarted queue
// that does not know it) every unanswered push, and every later one, is answered so until Register gives a new
// identity. A trajectory larger than the queue takes is replaced, before it is sent, by a FAILED one
// (`trajectory_too_large`), so that its group does not wait for it. Callbacks of Push run on threads of the client, one
// at a time, without a lock: they may call Push, but nothing that blocks. The destructor cancels blocking calls and
// answers what is unanswered with CANCELLED.
class GrpcQueueWorkerClient : public QueueWorkerClient {
 public:
  // Does not connect yet. INVALID_ARGUMENT: the target.
  static absl::StatusOr<std::unique_ptr<GrpcQueueWorkerClient>> Create(const QueueGrpcClientOptions& options);
  ~GrpcQueueWorkerClient() override;

  absl::StatusOr<v1::RegisterResponse> Register(const std::string& name, const std::string& run_fingerprint,
                                                absl::Duration timeout) override;
  absl::StatusOr<v1::AcquireTicketsResponse> AcquireTickets(uint32_t max_members, const v1::WeightsVersion& holds,
                                                            absl::Duration wait) override;
  void Push(v1::Trajectory trajectory, std::function<void(absl::StatusOr<v1::PushAnswer>)> done) override;
  // The same of a trajectory that the caller keeps: it is serialised before this returns.
  void PushKept(const v1::Trajectory& trajectory, std::function<void(absl::StatusOr<v1::PushAnswer>)> done);
  int64_t unanswered_pushes() const override;
  // `request.identity` is set by the client.
  absl::StatusOr<v1::HeartbeatResponse> Heartbeat(const v1::HeartbeatRequest& request, absl::Duration timeout) override;

  // Ends every blocking call now and later with CANCELLED: for a worker that stops.
  void Cancel();

 private:
  struct State;
  explicit GrpcQueueWorkerClient(std::unique_ptr<State> state);

  const std::unique_ptr<State> state_;
};

// The trainer's client, and the launcher's. Thread-safe. All calls but LeaseBatch are idempotent on the queue's side
// and tried again when it cannot be reached; LeaseBatch gives the same batch again when it is asked again.
class GrpcQueueTrainerClient : public QueueTrainerClient {
 public:
  // Does not connect yet. INVALID_ARGUMENT: the target.
  static absl::StatusOr<std::unique_ptr<GrpcQueueTrainerClient>> Create(const QueueGrpcClientOptions& options);
  ~GrpcQueueTrainerClient() override;

  absl::StatusOr<v1::AllocateLineageResponse> AllocateLineage(absl::Duration timeout) override;
  absl::StatusOr<v1::LedgerCounts> Restore(uint64_t lineage, uint64_t step, const std::string& ledger_snapshot,
                                           absl::Duration timeout) override;
  absl::StatusOr<LeasedBatch> LeaseBatch(uint64_t lineage, uint64_t step, absl::Duration wait) override;
  absl::StatusOr<v1::LedgerCounts> Commit(const v1::CommitRequest& request, absl::Duration timeout) override;
  absl::StatusOr<v1::LedgerCounts> Settle(uint64_t lineage, uint64_t step, absl::Duration timeout) override;
  absl::StatusOr<std::string> LedgerSnapshot(uint64_t lineage, absl::Duration timeout) override;
  absl::Status RetireGroup(uint64_t lineage, uint64_t step, uint64_t ticket, const std::string& reason,
                           absl::Duration timeout) override;
  absl::Status FenceWorker(uint64_t lineage, const v1::WorkerIdentity& identity, const std::string& reason,
                           absl::Duration timeout) override;
  absl::StatusOr<v1::StatusResponse> GetStatus(absl::Duration timeout) override;

  // The launcher's: the queue issues nothing more.
  absl::StatusOr<v1::LedgerCounts> Drain(absl::Duration timeout);
  // Ends every blocking call now and later with CANCELLED.
  void Cancel();

 private:
  struct State;
  explicit GrpcQueueTrainerClient(std::unique_ptr<State> state);

  const std::unique_ptr<State> state_;
};

}  // namespace leeway

#endif  // LEEWAY_QUEUE_QUEUE_GRPC_CLIENT_H_
