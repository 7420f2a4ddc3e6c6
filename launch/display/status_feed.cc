#include "launch/display/status_feed.h"

#include <utility>

#include "base/status_macros.h"

namespace leeway {
namespace {

constexpr absl::Duration kPause = absl::Milliseconds(500);
constexpr absl::Duration kPatience = absl::Seconds(2);

}  // namespace

absl::StatusOr<std::unique_ptr<StatusFeed>> StatusFeed::Start(const std::string& queue_address,
                                                              const ConnectionSecurity& security) {
  QueueGrpcClientOptions options;
  options.target = queue_address;
  options.name = "launcher";
  options.security = security;
  options.retry_for = absl::ZeroDuration();
  LEEWAY_ASSIGN_OR_RETURN(std::unique_ptr<GrpcQueueTrainerClient> client, GrpcQueueTrainerClient::Create(options));
  return std::unique_ptr<StatusFeed>(new StatusFeed(std::move(client)));
}

StatusFeed::StatusFeed(std::unique_ptr<GrpcQueueTrainerClient> client)
    : client_(std::move(client)), thread_([this] { Loop(); }) {}

StatusFeed::~StatusFeed() {
  {
    MutexLock lock(&mutex_);
    is_stopped_ = true;
    changed_.NotifyAll();
  }
  client_->Cancel();
  thread_.join();
}

StatusFeed::Reading StatusFeed::Latest() const {
  MutexLock lock(&mutex_);
  return latest_;
}

void StatusFeed::Loop() {
  while (true) {
    absl::StatusOr<v1::StatusResponse> status = client_->GetStatus(kPatience);
    MutexLock lock(&mutex_);
    ++latest_.serial;
    latest_.status.reset();
    if (status.ok()) latest_.status = *std::move(status);
    if (!is_stopped_) changed_.WaitFor(&mutex_, kPause);
    if (is_stopped_) return;
  }
}

}  // namespace leeway
