#include "weightsync/weight_service.h"

#include <algorithm>
#include <map>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/cpu_time.h"
#include "base/executor.h"
#include "base/failpoint.h"
#include "base/logging.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "leeway/v1/weights.grpc.pb.h"
#include "rpc/server.h"
#include "rpc/streams/server_stream.h"
#include "weightsync/manifest.h"
#include "weightsync/publish/published_bytes.h"
#include "weightsync/publish/publisher_state.h"
#include "weightsync/transport/fetch_service.h"

namespace leeway {
namespace {

// Room in a message for what is not bulk: manifests, headers.
constexpr int kMaxMessageBytes = 80 << 20;
// As grpc.health.v1 knows it.
constexpr char kServiceName[] = "leeway.v1.Weights";
constexpr uint64_t kMaxBucketBytes = 64 << 20;

using AttachStream = ServerStream<v1::ReceiverMessage, v1::PublisherMessage>;
using ConnectionId = PublisherState::ConnectionId;

absl::Status CheckOptions(const GrpcWeightPublisher::Options& options) {
  if (options.bucket_bytes == 0 || options.bucket_bytes > kMaxBucketBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("bucket_bytes is ", options.bucket_bytes, ": expected 1 to ", kMaxBucketBytes));
  }
  const absl::Duration zero = absl::ZeroDuration();
  if (options.announce_timeout <= zero || options.join_timeout <= zero || options.heartbeat_interval <= zero)
    return absl::InvalidArgumentError("weight publisher: timeouts must be positive");
  if (options.heartbeat_timeout <= options.heartbeat_interval) {
    return absl::InvalidArgumentError(
        absl::StrCat("heartbeat_timeout (", absl::FormatDuration(options.heartbeat_timeout),
                     ") must exceed heartbeat_interval (", absl::FormatDuration(options.heartbeat_interval), ")"));
  }
  return absl::OkStatus();
}

PublisherState::Options StateOptions(const GrpcWeightPublisher::Options& options) {
  PublisherState::Options made;
  made.bucket_bytes = options.bucket_bytes;
  made.announce_timeout = options.announce_timeout;
  made.join_timeout = options.join_timeout;
  made.heartbeat_interval = options.heartbeat_interval;
  made.heartbeat_timeout = options.heartbeat_timeout;
  return made;
}

}  // namespace

class GrpcWeightPublisher::Impl {
 public:
  explicit Impl(const Options& options)
      : options_(options), service_(this), pool_(options.run_name), state_(StateOptions(options)) {}

  ~Impl() {
    // Ends all streams and waits for their handlers, which use this object.
    if (server_ != nullptr) server_->Shutdown(absl::ZeroDuration());
    {
      MutexLock lock(&mutex_);
      is_stopping_ = true;
      changed_.NotifyAll();
    }
    if (watch_.joinable()) watch_.join();
  }

  absl::Status Start() {
    for (const std::string& name : RemoveStaleSegments())
      LEEWAY_LOG_INFO("removed the shared memory {} of a dead process", name);
    ConnectionOptions connection;
    connection.max_message_bytes = kMaxMessageBytes;
    connection.security = options_.security;
    LEEWAY_ASSIGN_OR_RETURN(server_, RpcServer::Start(options_.address, {&service_}, connection));
    server_->SetServing(kServiceName, false);
    watch_ = std::thread([this] { WatchDeadlines(); });
    return absl::OkStatus();
  }

  absl::StatusOr<PreparedPublish> Prepare(const v1::WeightsVersion& weights, absl::Span<const TensorView> tensors,
                                          absl::Duration timeout) LEEWAY_EXCLUDES(mutex_);
  void Commit(const v1::WeightsVersion& weights) LEEWAY_EXCLUDES(mutex_);
  void Abandon(const v1::WeightsVersion& weights, const std::string& reason) LEEWAY_EXCLUDES(mutex_);

  int member_count() const LEEWAY_EXCLUDES(mutex_) {
    MutexLock lock(&mutex_);
    return state_.member_count();
  }
  const std::string& address() const { return server_->address(); }

 private:
  // Bulk bytes go out raw (transport/fetch_service.h), control messages as messages.
  using ServiceBase =
      v1::Weights::WithCallbackMethod_Attach<v1::Weights::WithRawCallbackMethod_Fetch<v1::Weights::Service>>;
  class Service final : public ServiceBase {
   public:
    explicit Service(Impl* impl) : impl_(impl) {}
    grpc::ServerBidiReactor<v1::ReceiverMessage, v1::PublisherMessage>* Attach(grpc::CallbackServerContext*) override {
      return impl_->Attach();
    }
    grpc::ServerWriteReactor<grpc::ByteBuffer>* Fetch(grpc::CallbackServerContext*,
                                                      const grpc::ByteBuffer* request) override {
      return impl_->Fetch(*request);
    }

   private:
    Impl* const impl_;
  };

  // Passes what one stream brings to the state.
  class Handler final : public StreamHandler<v1::ReceiverMessage> {
   public:
    Handler(Impl* impl, ConnectionId id, std::weak_ptr<AttachStream> stream)
        : impl_(impl), id_(id), stream_(std::move(stream)) {}
    void OnMessage(v1::ReceiverMessage* message) override { impl_->OnMessage(id_, *message); }
    void OnHalfClose() override {
      if (const std::shared_ptr<AttachStream> stream = stream_.lock()) stream->Finish(absl::OkStatus());
    }
    void OnEnd(const absl::Status& status) override { impl_->OnEnd(id_, status); }

   private:
    Impl* const impl_;
    const ConnectionId id_;
    const std::weak_ptr<AttachStream> stream_;
  };

  AttachStream* Attach() LEEWAY_EXCLUDES(mutex_);
  grpc::ServerWriteReactor<grpc::ByteBuffer>* Fetch(const grpc::ByteBuffer& request) LEEWAY_EXCLUDES(mutex_);
  void OnMessage(ConnectionId id, const v1::ReceiverMessage& message) LEEWAY_EXCLUDES(mutex_);
  void OnEnd(ConnectionId id, const absl::Status& status) LEEWAY_EXCLUDES(mutex_);
  void WatchDeadlines() LEEWAY_EXCLUDES(mutex_);
  // Waits for one change; true when the publish is prepared.
  bool WaitUntilPrepared() LEEWAY_EXCLUDES(mutex_);
  // Sends what the state wants sent. True if there was anything.
  bool Flush() LEEWAY_REQUIRES(mutex_);
  // Flush, and wake who waits for a change. After everything that happens to the state from outside.
  void StateChanged() LEEWAY_REQUIRES(mutex_);
  // What time alone changes. Wakes the others only if it did change something, since they do the same.
  void TimePassed() LEEWAY_REQUIRES(mutex_);
  // Until a change, the next deadline, or a heartbeat's time, so that a pause of the whole process is noticed.
  void WaitForChange() LEEWAY_REQUIRES(mutex_);

  const Options options_;
  const Clock* const clock_ = RealClock();
  InlineExecutor executor_;
  Service service_;
  std::unique_ptr<RpcServer> server_;
  std::thread watch_;
  // Used by Prepare alone.
  PublishedBytesPool pool_;

  mutable Mutex mutex_;
  CondVar changed_;
  bool is_stopping_ LEEWAY_GUARDED_BY(mutex_) = false;
  PublisherState state_ LEEWAY_GUARDED_BY(mutex_);
  MonotonicTime last_time_passed_ LEEWAY_GUARDED_BY(mutex_) = clock_->Now();
  ConnectionId next_connection_ LEEWAY_GUARDED_BY(mutex_) = 1;
  std::map<ConnectionId, std::weak_ptr<AttachStream>> streams_ LEEWAY_GUARDED_BY(mutex_);
  // Of the publish in progress or prepared, and of the committed version.
  std::shared_ptr<PublishedBytes> staged_ LEEWAY_GUARDED_BY(mutex_);
  v1::WeightsVersion staged_version_ LEEWAY_GUARDED_BY(mutex_);
  std::shared_ptr<PublishedBytes> committed_ LEEWAY_GUARDED_BY(mutex_);
};

// ---- streams --------------------------------------------------------------------------------------------------------

AttachStream* GrpcWeightPublisher::Impl::Attach() {
  ConnectionId id = 0;
  {
    MutexLock lock(&mutex_);
    id = next_connection_++;
    state_.OnOpened(clock_->Now(), id);
  }
  return AttachStream::Start(&executor_, StreamOptions{}, [&](std::shared_ptr<AttachStream> stream) {
    MutexLock lock(&mutex_);
    streams_[id] = stream;
    StateChanged();
    return std::make_unique<Handler>(this, id, stream);
  });
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* GrpcWeightPublisher::Impl::Fetch(const grpc::ByteBuffer& request) {
  const absl::StatusOr<v1::FetchRequest> parsed = ParseFetchRequest(request, kMaxBucketBytes);
  if (!parsed.ok()) return RefuseFetch(parsed.status());
  std::shared_ptr<const PublishedBytes> bytes;
  {
    MutexLock lock(&mutex_);
    const absl::Status allowed = state_.CheckFetch(parsed->identity(), parsed->weights());
    if (!allowed.ok()) return RefuseFetch(allowed);
    bytes = staged_ != nullptr && IsSameVersion(staged_version_, parsed->weights()) ? staged_ : committed_;
  }
  return ServeFetch(std::move(bytes), parsed->bucket_bytes());
}

void GrpcWeightPublisher::Impl::OnMessage(ConnectionId id, const v1::ReceiverMessage& message) {
  MutexLock lock(&mutex_);
  state_.OnMessage(clock_->Now(), id, message);
  StateChanged();
}

void GrpcWeightPublisher::Impl::OnEnd(ConnectionId id, const absl::Status& status) {
  MutexLock lock(&mutex_);
  streams_.erase(id);
  state_.OnClosed(clock_->Now(), id, status.ok() ? "the receiver hung up" : std::string(status.message()));
  StateChanged();
}

void GrpcWeightPublisher::Impl::StateChanged() {
  Flush();
  changed_.NotifyAll();
}

void GrpcWeightPublisher::Impl::TimePassed() {
  const MonotonicTime now = clock_->Now();
  const absl::Duration since_last = now - std::exchange(last_time_passed_, now);
  if (since_last > 3 * options_.heartbeat_interval) {
    LEEWAY_LOG_WARNING("the weights publisher did not run for {}", absl::FormatDuration(since_last));
    state_.ForgiveSilence(now, since_last);
  }
  state_.OnTime(now);
  if (Flush()) changed_.NotifyAll();
}

bool GrpcWeightPublisher::Impl::Flush() {
  bool is_sent = false;
  std::vector<PublisherState::Outgoing> outgoing;
  while (!(outgoing = state_.TakeOutgoing()).empty()) {
    is_sent = true;
    for (PublisherState::Outgoing& out : outgoing) {
      const auto found = streams_.find(out.connection);
      const std::shared_ptr<AttachStream> stream = found == streams_.end() ? nullptr : found->second.lock();
      if (stream == nullptr) continue;
      absl::Status end;
      if (out.closes) {
        end = absl::AbortedError(out.message.has_value() ? out.message->fenced().reason() : "replaced");
        if (out.message.has_value())
          LEEWAY_LOG_WARNING("weights receiver {} fenced: {}", out.name, std::string(end.message()));
      }
      const bool is_taken = !out.message.has_value() || stream->Write(*std::move(out.message));
      if (!is_taken) end = absl::AbortedError("does not read its control messages");
      if (end.ok()) continue;
      stream->Finish(end);
      streams_.erase(out.connection);
      if (!is_taken) state_.OnClosed(clock_->Now(), out.connection, std::string(end.message()));
    }
  }
  return is_sent;
}

void GrpcWeightPublisher::Impl::WaitForChange() {
  const absl::Duration left = state_.next_deadline() - clock_->Now();
  changed_.WaitFor(&mutex_, std::clamp(left, absl::ZeroDuration(), options_.heartbeat_interval));
}

void GrpcWeightPublisher::Impl::WatchDeadlines() {
  SetThreadClass("rpc");
  MutexLock lock(&mutex_);
  while (!is_stopping_) {
    TimePassed();
    WaitForChange();
  }
}

// ---- publishing -----------------------------------------------------------------------------------------------------

absl::StatusOr<PreparedPublish> GrpcWeightPublisher::Impl::Prepare(const v1::WeightsVersion& weights,
                                                                   absl::Span<const TensorView> tensors,
                                                                   absl::Duration timeout) {
  const MonotonicTime started = clock_->Now();
  const MonotonicTime deadline = started + timeout;
  bool is_repeat = false;
  bool wants_shared_memory = false;
  {
    MutexLock lock(&mutex_);
    LEEWAY_RETURN_IF_ERROR(state_.CheckVersion(weights));
    is_repeat = state_.IsRepeat(weights);
    wants_shared_memory = state_.has_shared_memory_receivers();
  }
  LEEWAY_ASSIGN_OR_RETURN(const uint64_t total, TotalBytes(tensors));

  std::shared_ptr<PublishedBytes> staged;
  v1::Manifest manifest;
  if (is_repeat) {
    LEEWAY_ASSIGN_OR_RETURN(manifest, MakeManifest(weights, tensors));
  } else {
    LEEWAY_ASSIGN_OR_RETURN(staged, pool_.Stage(total, wants_shared_memory, [this](const SharedMemorySegment& segment) {
      MutexLock lock(&mutex_);
      return segment.is_linked() || state_.AllHaveMapped(segment.name());
    }));
    LEEWAY_ASSIGN_OR_RETURN(manifest, MakeManifest(weights, tensors, staged->bytes()));
  }
  LEEWAY_FAILPOINT_STATUS("weights_publisher_before_announce");

  {
    MutexLock lock(&mutex_);
    PublisherState::SharedMemoryOffer offer;
    if (staged != nullptr && staged->segment() != nullptr)
      offer = {staged->segment()->name(), staged->segment()->is_linked()};
    LEEWAY_ASSIGN_OR_RETURN(const bool is_new,
                            state_.StartPublish(clock_->Now(), std::move(manifest), offer, deadline));
    if (!is_new) return state_.prepared();
    // Under the same lock: nobody can ask for the bytes earlier.
    staged_ = staged;
    staged_version_ = weights;
    StateChanged();
  }
  LEEWAY_FAILPOINT("weights_publisher_after_announce");
  while (!WaitUntilPrepared()) {
  }
  if (staged->segment() != nullptr) staged->segment()->Unlink();
  MutexLock lock(&mutex_);
  PreparedPublish prepared = state_.prepared();
  prepared.seconds = absl::ToDoubleSeconds(clock_->Now() - started);
  return prepared;
}

bool GrpcWeightPublisher::Impl::WaitUntilPrepared() {
  MutexLock lock(&mutex_);
  if (!state_.is_prepared()) WaitForChange();
  TimePassed();
  return state_.is_prepared();
}

void GrpcWeightPublisher::Impl::Commit(const v1::WeightsVersion& weights) {
  LEEWAY_FAILPOINT("weights_publisher_before_commit");
  {
    MutexLock lock(&mutex_);
    if (state_.Commit(clock_->Now(), weights)) committed_ = std::exchange(staged_, nullptr);
    // Who asks for its health hears that it serves once it has a version to give.
    if (committed_ != nullptr) server_->SetServing(kServiceName, true);
    StateChanged();
  }
  LEEWAY_FAILPOINT("weights_publisher_after_commit");
}

void GrpcWeightPublisher::Impl::Abandon(const v1::WeightsVersion& weights, const std::string& reason) {
  MutexLock lock(&mutex_);
  if (state_.Abandon(clock_->Now(), weights, reason)) staged_.reset();
  StateChanged();
}

// ---- GrpcWeightPublisher --------------------------------------------------------------------------------------------

absl::StatusOr<std::unique_ptr<GrpcWeightPublisher>> GrpcWeightPublisher::Create(const Options& options) {
  LEEWAY_RETURN_IF_ERROR(CheckOptions(options));
  auto impl = std::make_unique<Impl>(options);
  LEEWAY_RETURN_IF_ERROR(impl->Start());
  return std::unique_ptr<GrpcWeightPublisher>(new GrpcWeightPublisher(std::move(impl)));
}

GrpcWeightPublisher::GrpcWeightPublisher(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
GrpcWeightPublisher::~GrpcWeightPublisher() = default;

absl::StatusOr<PreparedPublish> GrpcWeightPublisher::Prepare(const v1::WeightsVersion& weights,
                                                             absl::Span<const TensorView> tensors,
                                                             absl::Duration timeout) {
  return impl_->Prepare(weights, tensors, timeout);
}
void GrpcWeightPublisher::Commit(const v1::WeightsVersion& weights) { impl_->Commit(weights); }
void GrpcWeightPublisher::Abandon(const v1::WeightsVersion& weights, const std::string& reason) {
  impl_->Abandon(weights, reason);
}
int GrpcWeightPublisher::member_count() const { return impl_->member_count(); }
const std::string& GrpcWeightPublisher::address() const { return impl_->address(); }

}  // namespace leeway
