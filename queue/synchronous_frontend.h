#ifndef LEEWAY_QUEUE_SYNCHRONOUS_FRONTEND_H_
#define LEEWAY_QUEUE_SYNCHRONOUS_FRONTEND_H_

// For tests: a frontend's calls with their answers as results. REQUIRES a store that makes every write durable at once.

#include "queue/queue_frontend.h"

namespace leeway {

class SynchronousFrontend : public QueueFrontend {
 public:
  using QueueFrontend::QueueFrontend;

  auto Register(const v1::RegisterRequest& request) {
    return Answer<v1::RegisterResponse>([&](auto done) { QueueFrontend::Register(request, std::move(done)); });
  }
  auto Heartbeat(const v1::HeartbeatRequest& request) {
    return Answer<v1::HeartbeatResponse>([&](auto done) { QueueFrontend::Heartbeat(request, std::move(done)); });
  }
  auto AllocateLineage(const v1::AllocateLineageRequest& request) {
    return Answer<v1::AllocateLineageResponse>(
        [&](auto done) { QueueFrontend::AllocateLineage(request, std::move(done)); });
  }
  auto Restore(const v1::RestoreRequest& request) {
    return Answer<v1::RestoreResponse>([&](auto done) { QueueFrontend::Restore(request, std::move(done)); });
  }
  auto Commit(const v1::CommitRequest& request) {
    return Answer<v1::CommitResponse>([&](auto done) { QueueFrontend::Commit(request, std::move(done)); });
  }
  auto Settle(const v1::SettleRequest& request) {
    return Answer<v1::SettleResponse>([&](auto done) { QueueFrontend::Settle(request, std::move(done)); });
  }
  auto LedgerSnapshot(const v1::LedgerSnapshotRequest& request) {
    return Answer<v1::LedgerSnapshotResponse>(
        [&](auto done) { QueueFrontend::LedgerSnapshot(request, std::move(done)); });
  }
  auto RetireGroup(const v1::RetireGroupRequest& request) {
    return Answer<v1::RetireGroupResponse>([&](auto done) { QueueFrontend::RetireGroup(request, std::move(done)); });
  }
  auto FenceWorker(const v1::FenceWorkerRequest& request) {
    return Answer<v1::FenceWorkerResponse>([&](auto done) { QueueFrontend::FenceWorker(request, std::move(done)); });
  }
  v1::DrainResponse Drain() {
    return Answer<v1::DrainResponse>([&](auto done) { QueueFrontend::Drain(std::move(done)); }).value();
  }

 private:
  template <typename Response>
  static absl::StatusOr<Response> Answer(const std::function<void(Done<Response>)>& call) {
    absl::StatusOr<Response> answer = absl::InternalError("not answered");
    call([&](absl::StatusOr<Response> given) { answer = std::move(given); });
    return answer;
  }
};

}  // namespace leeway

#endif  // LEEWAY_QUEUE_SYNCHRONOUS_FRONTEND_H_
