#include "queue/queue_service.h"

#include <atomic>
#include <memory>
#include <utility>

#include "base/executor.h"
#include "leeway/v1/queue.grpc.pb.h"
#include "queue/wire/lease_stream.h"
#include "rpc/request_errors.h"
#include "rpc/status_mapping.h"
#include "rpc/streams/byte_buffer.h"
#include "rpc/streams/server_stream.h"

namespace leeway {
namespace {

// A call whose answer may come later than its handler returns, on another thread; gRPC keeps the reactor and `response`
// until it is finished.
template <class Response>
grpc::ServerUnaryReactor* Later(grpc::CallbackServerContext* context, Response* response,
                                const std::function<void(QueueFrontend::Done<Response>)>& call) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  call([reactor, response](absl::StatusOr<Response> result) {
    if (result.ok()) *response = *std::move(result);
    reactor->Finish(ToGrpcStatus(result.status()));
  });
  return reactor;
}

// One long poll for tickets. Deletes itself when gRPC is through with it.
class TicketPoll final : public grpc::ServerUnaryReactor {
 public:
  TicketPoll(QueueFrontend* frontend, const v1::AcquireTicketsRequest& request, v1::AcquireTicketsResponse* response)
      : frontend_(frontend) {
    // The answer may come before the call below returns; gRPC's last call cannot, since this runs in the handler.
    wait_ = frontend_->AcquireTickets(request, [this, response](absl::StatusOr<v1::AcquireTicketsResponse> answer) {
      if (answer.ok()) *response = *std::move(answer);
      Finish(ToGrpcStatus(answer.status()));
    });
  }
  // Never before the handler has returned: wait_ is set.
  void OnCancel() override {
    if (frontend_->Cancel(wait_)) Finish(grpc::Status::CANCELLED);
  }
  void OnDone() override { delete this; }

 private:
  QueueFrontend* const frontend_;
  QueueFrontend::WaitId wait_ = 0;
};

using PushStream = ServerStream<v1::PushRequest, v1::PushResponse>;

class PushHandler final : public StreamHandler<v1::PushRequest> {
 public:
  PushHandler(QueueFrontend* frontend, std::shared_ptr<PushStream> stream)
      : frontend_(frontend), session_(frontend->NewPushSession()), stream_(std::move(stream)) {
    // An idle stream would hold up a shutdown for all of its grace.
    hook_ = frontend_->AddShutdownHook([weak = std::weak_ptr<PushStream>(stream_)] {
      if (const std::shared_ptr<PushStream> open = weak.lock()) {
        open->Finish(absl::UnavailableError("the queue is shutting down"));
      }
    });
  }

  void OnMessage(v1::PushRequest* request) override {
    // A message is answered by at most one message; reading pauses while many answers are to come, so none is refused
    // for space.
    stream_->ExpectWrite();
    session_->Handle(request, [stream = stream_](v1::PushResponse response, const absl::Status& status) {
      response.answers_size() > 0 ? static_cast<void>(stream->Write(std::move(response))) : stream->ForgoWrite();
      if (!status.ok()) stream->Finish(status);
    });
  }
  void OnHalfClose() override {
    frontend_->AfterAnswers([stream = stream_] { stream->Finish(absl::OkStatus()); });
  }
  void OnEnd(const absl::Status&) override { frontend_->RemoveShutdownHook(hook_); }

 private:
  QueueFrontend* const frontend_;
  uint64_t hook_ = 0;
  const std::unique_ptr<QueueFrontend::PushSession> session_;
  const std::shared_ptr<PushStream> stream_;
};

// Leases go out as bytes: see PayloadMessage.
using LeaseStream = ServerWriteStream<grpc::ByteBuffer>;

class QueueService final : public v1::Queue::WithRawCallbackMethod_LeaseBatch<v1::Queue::CallbackService> {
 public:
  QueueService(QueueFrontend* frontend, std::function<void(v1::ProcessReport*)> fill_report)
      : frontend_(frontend), fill_report_(std::move(fill_report)) {}

  grpc::ServerUnaryReactor* Register(grpc::CallbackServerContext* context, const v1::RegisterRequest* request,
                                     v1::RegisterResponse* response) override {
    return Later<v1::RegisterResponse>(context, response,
                                       [&](auto done) { frontend_->Register(*request, std::move(done)); });
  }

  grpc::ServerUnaryReactor* AcquireTickets(grpc::CallbackServerContext*, const v1::AcquireTicketsRequest* request,
                                           v1::AcquireTicketsResponse* response) override {
    return new TicketPoll(frontend_, *request, response);
  }

  grpc::ServerBidiReactor<v1::PushRequest, v1::PushResponse>* Push(grpc::CallbackServerContext*) override {
    // Handling a message takes microseconds for small trajectories: a hop to another thread would cost more than it
    // saves.
    static InlineExecutor* const executor = new InlineExecutor();
    return PushStream::Start(executor, {.max_queued_writes = 64}, [this](std::shared_ptr<PushStream> stream) {
      return std::make_unique<PushHandler>(frontend_, std::move(stream));
    });
  }

  grpc::ServerUnaryReactor* Heartbeat(grpc::CallbackServerContext* context, const v1::HeartbeatRequest* request,
                                      v1::HeartbeatResponse* response) override {
    return Later<v1::HeartbeatResponse>(context, response,
                                        [&](auto done) { frontend_->Heartbeat(*request, std::move(done)); });
  }

  grpc::ServerUnaryReactor* AllocateLineage(grpc::CallbackServerContext* context,
                                            const v1::AllocateLineageRequest* request,
                                            v1::AllocateLineageResponse* response) override {
    return Later<v1::AllocateLineageResponse>(
        context, response, [&](auto done) { frontend_->AllocateLineage(*request, std::move(done)); });
  }

  grpc::ServerUnaryReactor* Restore(grpc::CallbackServerContext* context, const v1::RestoreRequest* request,
                                    v1::RestoreResponse* response) override {
    return Later<v1::RestoreResponse>(context, response,
                                      [&](auto done) { frontend_->Restore(*request, std::move(done)); });
  }

  grpc::ServerWriteReactor<grpc::ByteBuffer>* LeaseBatch(grpc::CallbackServerContext*,
                                                         const grpc::ByteBuffer* request_bytes) override {
    // The stream may end before the wait has its number, and the other way round.
    auto wait = std::make_shared<std::atomic<QueueFrontend::WaitId>>(0);
    auto stream = LeaseStream::Start([this, wait](const absl::Status&) { frontend_->Cancel(wait->load()); });
    // gRPC makes its last call only after this handler returned, so the reactor outlives this function in any case.
    LeaseStream* const reactor = stream.get();
    v1::LeaseBatchRequest request;
    grpc::ByteBuffer bytes = *request_bytes;
    if (!grpc::SerializationTraits<v1::LeaseBatchRequest>::Deserialize(&bytes, &request).ok()) {
      reactor->Finish(absl::InvalidArgumentError(kMalformedRequest));
      return reactor;
    }
    const uint64_t max_chunk_bytes = frontend_->options().max_chunk_bytes;
    wait->store(frontend_->LeaseBatch(request, [this, stream, max_chunk_bytes](absl::StatusOr<LeaseResult> lease) {
      if (!lease.ok()) {
        stream->Finish(lease.status());
        return;
      }
      auto cutter = std::make_shared<LeaseCutter>(*std::move(lease), max_chunk_bytes);
      stream->WriteAll([this, cutter](grpc::ByteBuffer* bytes) {
        PayloadMessage message;
        absl::StatusOr<bool> more = cutter->Next(&message);
        *bytes = ToByteBuffer(std::move(message));
        if (more.ok()) return more;
        // The batch breaks off and is asked for again. What is damaged stays so: the group is generated again; what
        // could not be read for another reason may be readable then.
        if (absl::IsDataLoss(more.status())) {
          frontend_->OnDamagedGroup(cutter->group().ticket, cutter->group().issue, more.status());
        }
        return absl::StatusOr<bool>(absl::UnavailableError(more.status().message()));
      });
    }));
    return reactor;
  }

  grpc::ServerUnaryReactor* Commit(grpc::CallbackServerContext* context, const v1::CommitRequest* request,
                                   v1::CommitResponse* response) override {
    return Later<v1::CommitResponse>(context, response,
                                     [&](auto done) { frontend_->Commit(*request, std::move(done)); });
  }

  grpc::ServerUnaryReactor* Settle(grpc::CallbackServerContext* context, const v1::SettleRequest* request,
                                   v1::SettleResponse* response) override {
    return Later<v1::SettleResponse>(context, response,
                                     [&](auto done) { frontend_->Settle(*request, std::move(done)); });
  }

  grpc::ServerUnaryReactor* LedgerSnapshot(grpc::CallbackServerContext* context,
                                           const v1::LedgerSnapshotRequest* request,
                                           v1::LedgerSnapshotResponse* response) override {
    return Later<v1::LedgerSnapshotResponse>(context, response,
                                             [&](auto done) { frontend_->LedgerSnapshot(*request, std::move(done)); });
  }

  grpc::ServerUnaryReactor* RetireGroup(grpc::CallbackServerContext* context, const v1::RetireGroupRequest* request,
                                        v1::RetireGroupResponse* response) override {
    return Later<v1::RetireGroupResponse>(context, response,
                                          [&](auto done) { frontend_->RetireGroup(*request, std::move(done)); });
  }

  grpc::ServerUnaryReactor* FenceWorker(grpc::CallbackServerContext* context, const v1::FenceWorkerRequest* request,
                                        v1::FenceWorkerResponse* response) override {
    return Later<v1::FenceWorkerResponse>(context, response,
                                          [&](auto done) { frontend_->FenceWorker(*request, std::move(done)); });
  }

  grpc::ServerUnaryReactor* Status(grpc::CallbackServerContext* context, const v1::StatusRequest*,
                                   v1::StatusResponse* response) override {
    *response = frontend_->Status();
    fill_report_(response->mutable_report());
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

  grpc::ServerUnaryReactor* Drain(grpc::CallbackServerContext* context, const v1::DrainRequest*,
                                  v1::DrainResponse* response) override {
    return Later<v1::DrainResponse>(context, response, [&](auto done) { frontend_->Drain(std::move(done)); });
  }

 private:
  QueueFrontend* const frontend_;
  const std::function<void(v1::ProcessReport*)> fill_report_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeQueueService(QueueFrontend* frontend,
                                                std::function<void(v1::ProcessReport*)> fill_report) {
  return std::make_unique<QueueService>(frontend, std::move(fill_report));
}

}  // namespace leeway
