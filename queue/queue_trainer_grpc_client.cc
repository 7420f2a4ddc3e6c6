// The trainer's half of queue_grpc_client.h.

#include <memory>
#include <string>
#include <utility>

#include "base/hash.h"
#include "base/status_macros.h"
#include "leeway/v1/queue.grpc.pb.h"
#include "queue/queue_grpc_client.h"
#include "queue/wire/connection.h"
#include "queue/wire/lease_stream.h"
#include "rpc/channel.h"
#include "rpc/retrying_caller.h"

namespace leeway {
namespace {

// A queue cuts its leases into pieces of at most this (QueueServer refuses larger ones), and its trajectories fit into
// protobuf.
constexpr uint64_t kLargestChunk = 4 << 20;
constexpr uint64_t kLargestTrajectory = uint64_t{2} << 30;

}  // namespace

struct GrpcQueueTrainerClient::State {
  State(const QueueGrpcClientOptions& options, std::shared_ptr<grpc::Channel> channel)
      : options(options),
        caller(std::move(channel), options.retry_for, Hash64(options.name.data(), options.name.size())) {}

  // One try of LeaseBatch.
  absl::Status ReadBatch(const v1::LeaseBatchRequest& request, absl::Duration wait, LeasedBatch* batch);

  const QueueGrpcClientOptions options;
  RetryingCaller<v1::Queue> caller;
};

absl::StatusOr<std::unique_ptr<GrpcQueueTrainerClient>> GrpcQueueTrainerClient::Create(
    const QueueGrpcClientOptions& options) {
  ConnectionOptions connection = QueueConnectionOptions();
  connection.security = options.security;
  LEEWAY_ASSIGN_OR_RETURN(std::shared_ptr<grpc::Channel> channel, OpenChannel(options.target, connection));
  return std::unique_ptr<GrpcQueueTrainerClient>(
      new GrpcQueueTrainerClient(std::make_unique<State>(options, std::move(channel))));
}

GrpcQueueTrainerClient::GrpcQueueTrainerClient(std::unique_ptr<State> state) : state_(std::move(state)) {}

GrpcQueueTrainerClient::~GrpcQueueTrainerClient() { Cancel(); }

void GrpcQueueTrainerClient::Cancel() { state_->caller.calls()->CancelAll(); }

absl::StatusOr<v1::AllocateLineageResponse> GrpcQueueTrainerClient::AllocateLineage(absl::Duration timeout) {
  v1::AllocateLineageRequest request;
  request.set_trainer(state_->options.name);
  v1::AllocateLineageResponse response;
  LEEWAY_RETURN_IF_ERROR(
      state_->caller.Call(&v1::Queue::Stub::AllocateLineage, request, &response, timeout, "AllocateLineage"));
  return response;
}

absl::StatusOr<v1::LedgerCounts> GrpcQueueTrainerClient::Restore(uint64_t lineage, uint64_t step,
                                                                 const std::string& ledger_snapshot,
                                                                 absl::Duration timeout) {
  v1::RestoreRequest request;
  request.set_lineage(lineage);
  request.set_step(step);
  request.set_ledger_snapshot(ledger_snapshot);
  v1::RestoreResponse response;
  LEEWAY_RETURN_IF_ERROR(state_->caller.Call(&v1::Queue::Stub::Restore, request, &response, timeout, "Restore"));
  return response.counts();
}

absl::StatusOr<LeasedBatch> GrpcQueueTrainerClient::LeaseBatch(uint64_t lineage, uint64_t step, absl::Duration wait) {
  v1::LeaseBatchRequest request;
  request.set_lineage(lineage);
  request.set_step(step);
  LeasedBatch batch;
  LEEWAY_RETURN_IF_ERROR(state_->caller.Poll(wait, [&](absl::Duration left) {
    request.set_wait_ms(absl::ToInt64Milliseconds(left));
    return state_->ReadBatch(request, left, &batch);
  }));
  return batch;
}

absl::Status GrpcQueueTrainerClient::State::ReadBatch(const v1::LeaseBatchRequest& request, absl::Duration wait,
                                                      LeasedBatch* batch) {
  OpenCalls* const calls = caller.calls();
  LeaseJoiner joiner(kLargestTrajectory, kLargestChunk);
  absl::Status joined;
  grpc::Status ended;
  {
    grpc::ClientContext context;
    // A batch is as large as its trajectories: the margin is for its transfer too.
    context.set_deadline(CallDeadline(wait + 6 * options.network_margin));
    if (!calls->Add(&context)) return absl::CancelledError("the client is shutting down");
    std::unique_ptr<grpc::ClientReader<v1::LeaseBatchResponse>> reader = caller.stub()->LeaseBatch(&context, request);
    v1::LeaseBatchResponse response;
    while (joined.ok() && reader->Read(&response)) joined = joiner.Add(&response);
    if (!joined.ok()) context.TryCancel();
    ended = reader->Finish();
    calls->Remove(&context);
  }
  LEEWAY_RETURN_IF_ERROR(joined);
  LEEWAY_RETURN_IF_ERROR(FromGrpcStatus(ended, "LeaseBatch", calls->cancelled()));
  LEEWAY_ASSIGN_OR_RETURN(*batch, joiner.Finish());
  return absl::OkStatus();
}

absl::StatusOr<v1::LedgerCounts> GrpcQueueTrainerClient::Commit(const v1::CommitRequest& request,
                                                                absl::Duration timeout) {
  v1::CommitResponse response;
  LEEWAY_RETURN_IF_ERROR(state_->caller.Call(&v1::Queue::Stub::Commit, request, &response, timeout, "Commit"));
  return response.counts();
}

absl::StatusOr<v1::LedgerCounts> GrpcQueueTrainerClient::Settle(uint64_t lineage, uint64_t step,
                                                                absl::Duration timeout) {
  v1::SettleRequest request;
  request.set_lineage(lineage);
  request.set_step(step);
  v1::SettleResponse response;
  LEEWAY_RETURN_IF_ERROR(state_->caller.Call(&v1::Queue::Stub::Settle, request, &response, timeout, "Settle"));
  return response.counts();
}

absl::StatusOr<std::string> GrpcQueueTrainerClient::LedgerSnapshot(uint64_t lineage, absl::Duration timeout) {
  v1::LedgerSnapshotRequest request;
  request.set_lineage(lineage);
  v1::LedgerSnapshotResponse response;
  LEEWAY_RETURN_IF_ERROR(
      state_->caller.Call(&v1::Queue::Stub::LedgerSnapshot, request, &response, timeout, "LedgerSnapshot"));
  return std::move(*response.mutable_snapshot());
}

absl::Status GrpcQueueTrainerClient::RetireGroup(uint64_t lineage, uint64_t step, uint64_t ticket,
                                                 const std::string& reason, absl::Duration timeout) {
  v1::RetireGroupRequest request;
  request.set_lineage(lineage);
  request.set_step(step);
  request.set_ticket(ticket);
  request.set_reason(reason);
  v1::RetireGroupResponse response;
  return state_->caller.Call(&v1::Queue::Stub::RetireGroup, request, &response, timeout, "RetireGroup");
}

absl::Status GrpcQueueTrainerClient::FenceWorker(uint64_t lineage, const v1::WorkerIdentity& identity,
                                                 const std::string& reason, absl::Duration timeout) {
  v1::FenceWorkerRequest request;
  request.set_lineage(lineage);
  *request.mutable_identity() = identity;
  request.set_reason(reason);
  v1::FenceWorkerResponse response;
  return state_->caller.Call(&v1::Queue::Stub::FenceWorker, request, &response, timeout, "FenceWorker");
}

absl::StatusOr<v1::StatusResponse> GrpcQueueTrainerClient::GetStatus(absl::Duration timeout) {
  v1::StatusResponse response;
  LEEWAY_RETURN_IF_ERROR(
      state_->caller.Call(&v1::Queue::Stub::Status, v1::StatusRequest(), &response, timeout, "Status"));
  return response;
}

absl::StatusOr<v1::LedgerCounts> GrpcQueueTrainerClient::Drain(absl::Duration timeout) {
  v1::DrainResponse response;
  LEEWAY_RETURN_IF_ERROR(state_->caller.Call(&v1::Queue::Stub::Drain, v1::DrainRequest(), &response, timeout, "Drain"));
  return response.counts();
}

}  // namespace leeway
