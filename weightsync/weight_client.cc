#include "weightsync/weight_client.h"

#include <algorithm>
#include <atomic>
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
#include "rpc/backoff.h"
#include "rpc/channel.h"
#include "rpc/streams/client_stream.h"
#include "weightsync/manifest.h"
#include "weightsync/receive/double_buffer.h"
#include "weightsync/receive/subscriber_state.h"
#include "weightsync/transport/fetch_client.h"
#include "weightsync/transport/shared_memory.h"

namespace leeway {
namespace {

constexpr int kMaxMessageBytes = 80 << 20;
// From dialling to the publisher's welcome.
constexpr absl::Duration kWelcomeTimeout = absl::Seconds(10);
constexpr absl::Duration kIdleWait = absl::Minutes(10);

using AttachStream = ClientStream<v1::ReceiverMessage, v1::PublisherMessage>;

// Streams may outlive the subscriber by a moment, and need their executor until then.
Executor* StreamExecutor() {
  static auto* executor = new InlineExecutor;
  return executor;
}

// Wakes one thread; may be called under any lock (it takes only its own).
class Wakeup {
 public:
  void Notify() LEEWAY_EXCLUDES(mutex_) {
    MutexLock lock(&mutex_);
    is_set_ = true;
    condition_.NotifyOne();
  }
  // Until Notify (also one that came before) or the timeout.
  void Wait(absl::Duration timeout) LEEWAY_EXCLUDES(mutex_) {
    MutexLock lock(&mutex_);
    if (!is_set_) condition_.WaitFor(&mutex_, timeout);
    is_set_ = false;
  }

 private:
  Mutex mutex_;
  CondVar condition_;
  bool is_set_ LEEWAY_GUARDED_BY(mutex_) = false;
};

// Shared memory where the publisher offers it, Fetch otherwise.
class SelectingTransport : public ReceiverTransport {
 public:
  explicit SelectingTransport(std::shared_ptr<grpc::Channel> channel) : fetch_(std::move(channel)) {}
  absl::StatusOr<std::unique_ptr<BucketReader>> Open(const TransferRequest& request) override {
    return request.shared_memory_name.empty() ? fetch_.Open(request) : shared_memory_.Open(request);
  }

 private:
  FetchTransport fetch_;
  SharedMemoryTransport shared_memory_;
};

}  // namespace

class GrpcWeightSubscriber::Impl {
 public:
  Impl(const Options& options, std::shared_ptr<grpc::Channel> control, std::unique_ptr<ReceiverTransport> transport,
       std::unique_ptr<DoubleBuffer> buffers)
      : options_(options),
        stub_(v1::Weights::NewStub(control)),
        transport_(std::move(transport)),
        buffers_(std::move(buffers)),
        state_(options.expected, buffers_.get()) {
    buffers_->SetOnRelease([this] {
      is_buffer_released_ = true;
      keeper_wakeup_.Notify();
    });
    keeper_ = std::thread([this] { KeepTime(); });
    loader_ = std::thread([this] { RunLoads(); });
  }
  ~Impl() {
    Shutdown();
    // The engine may drop its last handle later, when there is nobody left to wake.
    buffers_->SetOnRelease(nullptr);
  }

  void SetIdentity(const v1::WorkerIdentity& identity) LEEWAY_EXCLUDES(mutex_);
  std::optional<CommittedWeights> TakeNewer() LEEWAY_EXCLUDES(mutex_);
  bool WaitForNewer(absl::Duration timeout) LEEWAY_EXCLUDES(mutex_);
  void NoteCommitted(const v1::WeightsVersion& weights, const std::string& digest) LEEWAY_EXCLUDES(mutex_);
  void ReportSwapped(const v1::WeightsVersion& weights, absl::Duration took) LEEWAY_EXCLUDES(mutex_);
  bool is_fenced() const LEEWAY_EXCLUDES(mutex_);
  bool has_abandoned_load() const LEEWAY_EXCLUDES(mutex_);
  std::string fence_reason() const LEEWAY_EXCLUDES(mutex_);
  void Shutdown() LEEWAY_EXCLUDES(mutex_);
  void WrapTransport(
      const std::function<std::unique_ptr<ReceiverTransport>(std::unique_ptr<ReceiverTransport>)>& wrap) {
    transport_ = wrap(std::move(transport_));
  }

 private:
  // Passes what one stream brings to the state. Streams are numbered: what an older one still says is ignored.
  class Handler final : public StreamHandler<v1::PublisherMessage> {
   public:
    Handler(Impl* impl, uint64_t stream_number) : impl_(impl), stream_number_(stream_number) {}
    void OnMessage(v1::PublisherMessage* message) override { impl_->OnMessage(stream_number_, *message); }
    void OnEnd(const absl::Status& status) override { impl_->OnEnd(stream_number_, status); }

   private:
    Impl* const impl_;
    const uint64_t stream_number_;
  };

  void OnMessage(uint64_t stream_number, const v1::PublisherMessage& message) LEEWAY_EXCLUDES(mutex_);
  void OnEnd(uint64_t stream_number, const absl::Status& status) LEEWAY_EXCLUDES(mutex_);

  // The keeper's thread.
  void KeepTime() LEEWAY_EXCLUDES(mutex_);
  // Does what is due and returns when to look again.
  MonotonicTime DoWhatIsDue(MonotonicTime now) LEEWAY_EXCLUDES(mutex_);
  void Dial(MonotonicTime now) LEEWAY_REQUIRES(mutex_);
  void DropStream() LEEWAY_REQUIRES(mutex_);

  // The loader's thread.
  void RunLoads() LEEWAY_EXCLUDES(mutex_);
  absl::Status CarryOut(const SubscriberState::Load& load) LEEWAY_EXCLUDES(mutex_);
  absl::Status ReadAndVerify(BucketReader* reader, const TransferRequest& request, const SubscriberState::Load& load)
      LEEWAY_EXCLUDES(mutex_);
  bool IsWanted(uint64_t load_id) LEEWAY_EXCLUDES(mutex_);

  // Sends answers, stops loads no longer wanted, wakes loader and engine if there is something for them.
  void Flush() LEEWAY_REQUIRES(mutex_);
  // Flush, and let the keeper look at its deadlines. After every call that changes the state, but the keeper's own.
  void StateChanged() LEEWAY_REQUIRES(mutex_);

  const Options options_;
  const Clock* const clock_ = RealClock();
  const std::unique_ptr<v1::Weights::Stub> stub_;
  std::unique_ptr<ReceiverTransport> transport_;
  const std::unique_ptr<DoubleBuffer> buffers_;
  std::thread keeper_;
  std::thread loader_;
  Wakeup keeper_wakeup_;
  Wakeup loader_wakeup_;
  // Set by whoever drops a buffer, possibly under mutex_.
  std::atomic<bool> is_buffer_released_{false};

  mutable Mutex mutex_;
  CondVar newer_;
  CondVar stream_ended_;
  bool is_stopping_ LEEWAY_GUARDED_BY(mutex_) = false;
  SubscriberState state_ LEEWAY_GUARDED_BY(mutex_);
  std::optional<v1::WorkerIdentity> identity_ LEEWAY_GUARDED_BY(mutex_);
  // The control stream in use; null while there is none.
  std::shared_ptr<AttachStream> stream_ LEEWAY_GUARDED_BY(mutex_);
  uint64_t stream_number_ LEEWAY_GUARDED_BY(mutex_) = 0;
  // Streams whose handlers may still call us.
  int open_streams_ LEEWAY_GUARDED_BY(mutex_) = 0;
  bool is_welcome_ LEEWAY_GUARDED_BY(mutex_) = false;
  Backoff backoff_ LEEWAY_GUARDED_BY(mutex_){{.initial = options_.initial_backoff, .maximum = options_.max_backoff},
                                             std::hash<std::string>()(options_.name)};
  MonotonicTime dial_at_ LEEWAY_GUARDED_BY(mutex_);
  MonotonicTime welcome_deadline_ LEEWAY_GUARDED_BY(mutex_);
  MonotonicTime next_heartbeat_ LEEWAY_GUARDED_BY(mutex_);
  // The loader's, while it reads.
  std::optional<uint64_t> running_load_ LEEWAY_GUARDED_BY(mutex_);
  BucketReader* reader_ LEEWAY_GUARDED_BY(mutex_) = nullptr;
  uint64_t reader_load_ LEEWAY_GUARDED_BY(mutex_) = 0;
};

// ---- the engine's side ----------------------------------------------------------------------------------------------

void GrpcWeightSubscriber::Impl::SetIdentity(const v1::WorkerIdentity& identity) {
  MutexLock lock(&mutex_);
  if (identity_.has_value() && identity_->producer_id() == identity.producer_id() &&
      identity_->epoch() == identity.epoch()) {
    return;
  }
  identity_ = identity;
  DropStream();
  state_.SetIdentity(identity);
  backoff_.Reset();
  dial_at_ = clock_->Now();
  StateChanged();
}

std::optional<CommittedWeights> GrpcWeightSubscriber::Impl::TakeNewer() {
  MutexLock lock(&mutex_);
  return state_.TakeNewer();
}

bool GrpcWeightSubscriber::Impl::WaitForNewer(absl::Duration timeout) {
  const Deadline deadline = Deadline::After(timeout);
  MutexLock lock(&mutex_);
  while (!state_.has_newer() && !is_stopping_ && !deadline.HasPassed()) newer_.WaitUntil(&mutex_, deadline);
  return state_.has_newer();
}

void GrpcWeightSubscriber::Impl::NoteCommitted(const v1::WeightsVersion& weights, const std::string& digest) {
  MutexLock lock(&mutex_);
  state_.NoteCommitted(weights, digest);
  StateChanged();
}

void GrpcWeightSubscriber::Impl::ReportSwapped(const v1::WeightsVersion& weights, absl::Duration took) {
  MutexLock lock(&mutex_);
  state_.ReportSwapped(weights, took);
  StateChanged();
}

bool GrpcWeightSubscriber::Impl::is_fenced() const {
  MutexLock lock(&mutex_);
  return state_.is_fenced();
}

bool GrpcWeightSubscriber::Impl::has_abandoned_load() const {
  MutexLock lock(&mutex_);
  return running_load_.has_value() && !state_.IsWanted(*running_load_);
}

std::string GrpcWeightSubscriber::Impl::fence_reason() const {
  MutexLock lock(&mutex_);
  return state_.fence_reason();
}

void GrpcWeightSubscriber::Impl::Shutdown() {
  {
    MutexLock lock(&mutex_);
    is_stopping_ = true;
    DropStream();
    state_.OnDisconnected();
    StateChanged();
    newer_.NotifyAll();
    // Handlers call us until their last call.
    while (open_streams_ > 0) stream_ended_.WaitFor(&mutex_, absl::Seconds(1));
  }
  keeper_wakeup_.Notify();
  loader_wakeup_.Notify();
  if (keeper_.joinable()) keeper_.join();
  if (loader_.joinable()) loader_.join();
}

// ---- the control stream ---------------------------------------------------------------------------------------------

void GrpcWeightSubscriber::Impl::OnMessage(uint64_t stream_number, const v1::PublisherMessage& message) {
  MutexLock lock(&mutex_);
  if (stream_number != stream_number_ || stream_ == nullptr) return;
  if (message.has_welcome()) {
    is_welcome_ = true;
    backoff_.Reset();
    next_heartbeat_ = clock_->Now();
  }
  state_.OnMessage(clock_->Now(), message);
  StateChanged();
}

void GrpcWeightSubscriber::Impl::OnEnd(uint64_t stream_number, const absl::Status& status) {
  MutexLock lock(&mutex_);
  --open_streams_;
  stream_ended_.NotifyAll();
  if (stream_number != stream_number_ || stream_ == nullptr) return;
  if (is_welcome_) LEEWAY_LOG_INFO("{}: lost the weights publisher: {}", options_.name, status.ToString());
  stream_.reset();
  state_.OnDisconnected();
  dial_at_ = clock_->Now() + backoff_.Next();
  StateChanged();
}

void GrpcWeightSubscriber::Impl::DropStream() {
  if (stream_ == nullptr) return;
  stream_->Cancel();
  stream_.reset();
}

void GrpcWeightSubscriber::Impl::Dial(MonotonicTime now) {
  const uint64_t number = ++stream_number_;
  ++open_streams_;
  is_welcome_ = false;
  welcome_deadline_ = now + kWelcomeTimeout;
  stream_ = AttachStream::Start(
      [this](grpc::ClientContext* context, auto* reactor) { stub_->async()->Attach(context, reactor); }, "Attach",
      StreamExecutor(), StreamOptions{},
      [this, number](std::shared_ptr<AttachStream>) { return std::make_unique<Handler>(this, number); });
  state_.OnConnected();
  v1::ReceiverMessage message;
  v1::ReceiverMessage::Hello* hello = message.mutable_hello();
  *hello->mutable_identity() = *identity_;
  hello->set_name(options_.name);
  *hello->mutable_expected() = options_.expected;
  hello->set_transport(options_.transport);
  static_cast<void>(stream_->Write(std::move(message)));
}

void GrpcWeightSubscriber::Impl::StateChanged() {
  Flush();
  keeper_wakeup_.Notify();
}

void GrpcWeightSubscriber::Impl::Flush() {
  for (v1::ReceiverMessage& message : state_.TakeOutgoing()) {
    // A stream that takes no more is ending; its end is handled when it comes.
    if (stream_ != nullptr) static_cast<void>(stream_->Write(std::move(message)));
  }
  if (state_.is_fenced() && stream_ != nullptr) {
    LEEWAY_LOG_WARNING("{}: fenced by the weights publisher: {}", options_.name, state_.fence_reason());
    DropStream();
  }
  if (reader_ != nullptr && !state_.IsWanted(reader_load_)) reader_->Cancel();
  if (state_.has_load()) loader_wakeup_.Notify();
  if (state_.has_newer()) newer_.NotifyAll();
}

void GrpcWeightSubscriber::Impl::KeepTime() {
  SetThreadClass("rpc");
  while (true) {
    {
      MutexLock lock(&mutex_);
      if (is_stopping_) return;
    }
    const MonotonicTime next = DoWhatIsDue(clock_->Now());
    keeper_wakeup_.Wait(std::clamp(next - clock_->Now(), absl::ZeroDuration(), kIdleWait));
  }
}

MonotonicTime GrpcWeightSubscriber::Impl::DoWhatIsDue(MonotonicTime now) {
  MutexLock lock(&mutex_);
  if (is_buffer_released_.exchange(false)) state_.OnBufferReleased();
  state_.OnTime(now);
  Flush();
  if (stream_ != nullptr && !is_welcome_ && now >= welcome_deadline_) {
    LEEWAY_LOG_WARNING("{}: no welcome from the weights publisher at {} within {}", options_.name,
                       options_.publisher_address, absl::FormatDuration(kWelcomeTimeout));
    DropStream();
    state_.OnDisconnected();
    dial_at_ = now + backoff_.Next();
  }
  const bool may_dial = identity_.has_value() && !state_.is_fenced() && !is_stopping_;
  if (stream_ == nullptr && may_dial && now >= dial_at_) Dial(now);

  MonotonicTime next = state_.next_deadline();
  if (stream_ == nullptr) return may_dial ? std::min(next, dial_at_) : next;
  if (!is_welcome_) return std::min(next, welcome_deadline_);
  if (state_.heartbeat_interval() <= absl::ZeroDuration()) return next;
  if (now >= next_heartbeat_) {
    v1::ReceiverMessage message;
    message.mutable_alive();
    static_cast<void>(stream_->Write(std::move(message)));
    next_heartbeat_ = now + state_.heartbeat_interval();
  }
  return std::min(next, next_heartbeat_);
}

// ---- loading --------------------------------------------------------------------------------------------------------

void GrpcWeightSubscriber::Impl::RunLoads() {
  SetThreadClass("compute");
  while (true) {
    std::optional<SubscriberState::Load> load;
    {
      MutexLock lock(&mutex_);
      if (is_stopping_) return;
      load = state_.TakeLoad();
      if (load.has_value()) running_load_ = load->id;
    }
    if (!load.has_value()) {
      loader_wakeup_.Wait(kIdleWait);
      continue;
    }
    const absl::Status status = CarryOut(*load);
    MutexLock lock(&mutex_);
    running_load_.reset();
    state_.OnLoadFinished(load->id, status);
    StateChanged();
  }
}

absl::Status GrpcWeightSubscriber::Impl::CarryOut(const SubscriberState::Load& load) {
  TransferRequest request;
  request.weights = load.manifest.weights();
  request.total_bytes = load.manifest.total_bytes();
  request.bucket_bytes = load.transfer.bucket_bytes();
  request.shared_memory_name = load.transfer.shared_memory_name();
  request.deadline = Deadline::After(load.deadline - clock_->Now());
  {
    MutexLock lock(&mutex_);
    request.identity = *identity_;
  }
  LEEWAY_ASSIGN_OR_RETURN(const std::unique_ptr<BucketReader> reader, transport_->Open(request));
  {
    MutexLock lock(&mutex_);
    reader_ = reader.get();
    reader_load_ = load.id;
  }
  const absl::Status status = ReadAndVerify(reader.get(), request, load);
  MutexLock lock(&mutex_);
  reader_ = nullptr;
  return status;
}

absl::Status GrpcWeightSubscriber::Impl::ReadAndVerify(BucketReader* reader, const TransferRequest& request,
                                                       const SubscriberState::Load& load) {
  const absl::Span<std::byte> shadow = absl::MakeSpan(load.buffer.get(), request.total_bytes);
  LEEWAY_RETURN_IF_ERROR(ReadAllBuckets(reader, request, shadow, [&] { return IsWanted(load.id); }));
  LEEWAY_FAILPOINT_STATUS("weights_receiver_before_verify");
  LEEWAY_RETURN_IF_ERROR(VerifyBytes(load.manifest, shadow));
  LEEWAY_FAILPOINT_STATUS("weights_receiver_after_verify");
  return absl::OkStatus();
}

bool GrpcWeightSubscriber::Impl::IsWanted(uint64_t load_id) {
  MutexLock lock(&mutex_);
  return state_.IsWanted(load_id);
}

// ---- GrpcWeightSubscriber -------------------------------------------------------------------------------------------

absl::StatusOr<std::unique_ptr<GrpcWeightSubscriber>> GrpcWeightSubscriber::Create(const Options& options) {
  if (options.transport != kSharedMemoryTransport && options.transport != kGrpcTransport) {
    return absl::InvalidArgumentError(absl::StrCat("weights transport \"", options.transport, "\": expected ",
                                                   kSharedMemoryTransport, " or ", kGrpcTransport));
  }
  ConnectionOptions connection;
  connection.max_message_bytes = kMaxMessageBytes;
  connection.security = options.security;
  // Two connections: bulk bytes must not delay control messages.
  LEEWAY_ASSIGN_OR_RETURN(std::shared_ptr<grpc::Channel> control, OpenChannel(options.publisher_address, connection));
  LEEWAY_ASSIGN_OR_RETURN(std::shared_ptr<grpc::Channel> bulk, OpenChannel(options.publisher_address, connection));
  LEEWAY_ASSIGN_OR_RETURN(std::unique_ptr<DoubleBuffer> buffers, DoubleBuffer::Create(options.expected.total_bytes()));
  auto impl = std::make_unique<Impl>(options, std::move(control), std::make_unique<SelectingTransport>(std::move(bulk)),
                                     std::move(buffers));
  return std::unique_ptr<GrpcWeightSubscriber>(new GrpcWeightSubscriber(std::move(impl)));
}

GrpcWeightSubscriber::GrpcWeightSubscriber(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
GrpcWeightSubscriber::~GrpcWeightSubscriber() = default;

void GrpcWeightSubscriber::SetIdentity(const v1::WorkerIdentity& identity) { impl_->SetIdentity(identity); }
std::optional<CommittedWeights> GrpcWeightSubscriber::TakeNewer() { return impl_->TakeNewer(); }
bool GrpcWeightSubscriber::WaitForNewer(absl::Duration timeout) { return impl_->WaitForNewer(timeout); }
void GrpcWeightSubscriber::NoteCommitted(const v1::WeightsVersion& weights, const std::string& digest) {
  impl_->NoteCommitted(weights, digest);
}
void GrpcWeightSubscriber::ReportSwapped(const v1::WeightsVersion& weights, absl::Duration took) {
  impl_->ReportSwapped(weights, took);
}
bool GrpcWeightSubscriber::is_fenced() const { return impl_->is_fenced(); }
bool GrpcWeightSubscriber::has_abandoned_load() const { return impl_->has_abandoned_load(); }
void GrpcWeightSubscriber::Shutdown() { impl_->Shutdown(); }
std::string GrpcWeightSubscriber::fence_reason() const { return impl_->fence_reason(); }
void GrpcWeightSubscriber::WrapTransportForTest(
    const std::function<std::unique_ptr<ReceiverTransport>(std::unique_ptr<ReceiverTransport>)>& wrap) {
  impl_->WrapTransport(wrap);
}

}  // namespace leeway
