// The worker's half of queue_grpc_client.h.

#include "queue/queue_grpc_client.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/cpu_time.h"
#include "base/executor.h"
#include "base/hash.h"
#include "base/logging.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "grpcpp/generic/generic_stub.h"
#include "leeway/v1/queue.grpc.pb.h"
#include "queue/wire/connection.h"
#include "queue/wire/push_pipeline.h"
#include "rpc/backoff.h"
#include "rpc/channel.h"
#include "rpc/retrying_caller.h"
#include "rpc/streams/byte_buffer.h"
#include "rpc/streams/client_stream.h"

namespace leeway {
namespace {

// Messages that wait to be written on the push stream.
constexpr size_t kMaxQueuedWrites = 8;

uint64_t SeedOf(const QueueGrpcClientOptions& options) { return Hash64(options.name.data(), options.name.size()); }

absl::Status NotRegistered() { return absl::FailedPreconditionError("this worker has no identity: register first"); }

PushCredits CreditsOf(const v1::RegisterResponse& handshake, const QueueGrpcClientOptions& options) {
  PushCredits credits{handshake.max_unanswered_pushes(), handshake.max_unanswered_bytes()};
  const uint64_t own = options.max_unanswered_pushes;
  if (own > 0) credits.pushes = credits.pushes == 0 ? own : std::min(credits.pushes, own);
  return credits;
}

// Requests go out as bytes: see PayloadMessage.
using PushStream = ClientStream<grpc::ByteBuffer, v1::PushResponse>;
using PushStub = grpc::TemplatedGenericStub<grpc::ByteBuffer, v1::PushResponse>;

}  // namespace

struct GrpcQueueWorkerClient::State {
  State(const QueueGrpcClientOptions& options, std::shared_ptr<grpc::Channel> channel)
      : options(options),
        push_stub(channel),
        caller(std::move(channel), options.retry_for, SeedOf(options)),
        backoff(BackoffPolicy(), SeedOf(options)) {}

  absl::StatusOr<v1::WorkerIdentity> Identity() LEEWAY_EXCLUDES(mutex);
  void Start(const v1::RegisterResponse& handshake) LEEWAY_EXCLUDES(mutex);
  void Push(std::string payload, PushPipeline::Done done) LEEWAY_EXCLUDES(mutex);
  void Stop() LEEWAY_EXCLUDES(mutex);

  // The stream's events; `stream_number` tells those of an abandoned one.
  void OnAnswers(uint64_t stream_number, v1::PushResponse* response) LEEWAY_EXCLUDES(mutex);
  void OnStreamEnd(uint64_t stream_number, const absl::Status& status) LEEWAY_EXCLUDES(mutex);
  void WakeSender() LEEWAY_EXCLUDES(mutex);

  // The sender's thread: opens streams, packs and writes messages, keeps the time.
  void RunSender() LEEWAY_EXCLUDES(mutex);
  // Does what can be done now; returns when there may be more.
  MonotonicTime Send(MonotonicTime now) LEEWAY_REQUIRES(mutex);
  void OpenStream() LEEWAY_REQUIRES(mutex);
  void AbandonStream() LEEWAY_REQUIRES(mutex);
  // Every push, also later ones, is answered with `why` until Start.
  void Refuse(const absl::Status& why) LEEWAY_REQUIRES(mutex);
  void Wake() LEEWAY_REQUIRES(mutex) {
    woken = true;
    changed.NotifyAll();
  }
  // Runs queued callbacks in order, one thread at a time, without the lock.
  void RunCallbacks() LEEWAY_EXCLUDES(mutex);
  void Queue(PushPipeline::Callbacks added) LEEWAY_REQUIRES(mutex) {
    for (PushPipeline::Answered& answered : added) callbacks.push_back(std::move(answered));
  }

  const QueueGrpcClientOptions options;
  PushStub push_stub;
  RetryingCaller<v1::Queue> caller;
  InlineExecutor executor;

  Mutex mutex;
  CondVar changed;
  v1::RegisterResponse handshake LEEWAY_GUARDED_BY(mutex);
  // Number of the next request for tickets; it stays until an answer was heard.
  uint64_t acquire_sequence LEEWAY_GUARDED_BY(mutex) = 1;
  // Null before Register.
  std::unique_ptr<PushPipeline> pipeline LEEWAY_GUARDED_BY(mutex);
  // Why pushes are answered with an error; OK while they work.
  absl::Status refused LEEWAY_GUARDED_BY(mutex) = NotRegistered();
  // Null while there is no connection (or no need for one).
  std::shared_ptr<PushStream> stream LEEWAY_GUARDED_BY(mutex);
  uint64_t stream_number LEEWAY_GUARDED_BY(mutex) = 0;
  // Streams whose handler has not had its last call.
  int open_streams LEEWAY_GUARDED_BY(mutex) = 0;
  // Packed, but the stream had no room for it.
  std::optional<grpc::ByteBuffer> unwritten LEEWAY_GUARDED_BY(mutex);
  bool stream_full LEEWAY_GUARDED_BY(mutex) = false;
  Backoff backoff LEEWAY_GUARDED_BY(mutex);
  MonotonicTime reconnect_at LEEWAY_GUARDED_BY(mutex);
  // Small pushes go out no earlier than this.
  MonotonicTime flush_at LEEWAY_GUARDED_BY(mutex);
  // When the queue was last heard of, or something was first waiting for it.
  MonotonicTime heard_at LEEWAY_GUARDED_BY(mutex);
  // Until when the sender sleeps if nobody wakes it.
  MonotonicTime asleep_until LEEWAY_GUARDED_BY(mutex);
  std::deque<PushPipeline::Answered> callbacks LEEWAY_GUARDED_BY(mutex);
  bool running_callbacks LEEWAY_GUARDED_BY(mutex) = false;
  bool woken LEEWAY_GUARDED_BY(mutex) = false;
  bool stopping LEEWAY_GUARDED_BY(mutex) = false;

  std::thread sender;
};

namespace {

// Passes the events of one push stream on.
template <class State>
class PushEvents final : public StreamHandler<v1::PushResponse> {
 public:
  PushEvents(State* state, uint64_t stream_number) : state_(state), stream_number_(stream_number) {}
  void OnMessage(v1::PushResponse* response) override { state_->OnAnswers(stream_number_, response); }
  void OnWritable() override { state_->WakeSender(); }
  void OnEnd(const absl::Status& status) override { state_->OnStreamEnd(stream_number_, status); }

 private:
  State* const state_;
  const uint64_t stream_number_;
};

}  // namespace

absl::StatusOr<v1::WorkerIdentity> GrpcQueueWorkerClient::State::Identity() {
  MutexLock lock(&mutex);
  if (pipeline == nullptr) return NotRegistered();
  return handshake.identity();
}

void GrpcQueueWorkerClient::State::Start(const v1::RegisterResponse& response) {
  {
    MutexLock lock(&mutex);
    AbandonStream();
    Refuse(absl::AbortedError("the worker has registered again: this push belongs to its older identity"));
    refused = absl::OkStatus();
    handshake = response;
    acquire_sequence = 1;
    pipeline = std::make_unique<PushPipeline>(handshake.identity(), handshake.max_chunk_bytes(),
                                              CreditsOf(handshake, options));
    backoff.Reset();
    reconnect_at = MonotonicTime();
    Wake();
  }
  RunCallbacks();
}

void GrpcQueueWorkerClient::State::Push(std::string payload, PushPipeline::Done done) {
  MutexLock lock(&mutex);
  if (!refused.ok()) {
    callbacks.push_back({std::move(done), refused});
    Wake();
    return;
  }
  const MonotonicTime now = RealClock()->Now();
  if (pipeline->unanswered() == 0) heard_at = now;
  pipeline->Add(std::move(payload), std::move(done));
  // A full message is written here and now: no other thread has to wake for it. A sleeping sender that wakes in time by
  // itself is left alone: that is what makes small pushes cheap.
  const MonotonicTime more = stream != nullptr && pipeline->fills_message() ? Send(now) : std::max(now, flush_at);
  if (!woken && asleep_until > more) Wake();
}

void GrpcQueueWorkerClient::State::OnAnswers(uint64_t number, v1::PushResponse* response) {
  {
    MutexLock lock(&mutex);
    if (number != stream_number || stream == nullptr) return;
    const MonotonicTime now = RealClock()->Now();
    heard_at = now;
    backoff.Reset();
    PushPipeline::Callbacks added;
    const absl::Status status = pipeline->OnAnswers(response, now, &added);
    Queue(std::move(added));
    if (!status.ok()) {
      AbandonStream();
      Refuse(status);
    }
    // What waited for credit goes out from here.
    if (Send(now) < asleep_until) Wake();
  }
  RunCallbacks();
}

void GrpcQueueWorkerClient::State::OnStreamEnd(uint64_t number, const absl::Status& status) {
  {
    MutexLock lock(&mutex);
    if (number == stream_number && stream != nullptr) {
      AbandonStream();
      if (status.ok() || IsRetryable(status)) {
        reconnect_at = RealClock()->Now() + backoff.Next();
      } else {
        Refuse(status);
      }
    }
    Wake();
  }
  RunCallbacks();
  // Last: the destructor waits for this, and then everything is gone.
  MutexLock lock(&mutex);
  --open_streams;
  changed.NotifyAll();
}

void GrpcQueueWorkerClient::State::WakeSender() {
  MutexLock lock(&mutex);
  stream_full = false;
  Wake();
}

void GrpcQueueWorkerClient::State::RunSender() {
  SetThreadClass("rpc");
  while (true) {
    {
      MutexLock lock(&mutex);
      woken = false;
      asleep_until = Send(RealClock()->Now());
      while (!woken && !stopping && callbacks.empty() && RealClock()->Now() < asleep_until) {
        changed.WaitFor(&mutex, asleep_until - RealClock()->Now());
      }
      if (stopping) return;
    }
    RunCallbacks();
  }
}

MonotonicTime GrpcQueueWorkerClient::State::Send(MonotonicTime now) {
  if (pipeline == nullptr || pipeline->unanswered() == 0) return MonotonicTime::InfiniteFuture();
  const MonotonicTime patience_ends = heard_at + options.push_patience;
  if (now >= patience_ends) {
    AbandonStream();
    Refuse(absl::UnavailableError(absl::StrCat("the queue at ", options.target, " has not answered a push for ",
                                               absl::FormatDuration(options.push_patience), "; register again")));
    return MonotonicTime::InfiniteFuture();
  }
  if (stream == nullptr) {
    if (now < reconnect_at) return std::min(reconnect_at, patience_ends);
    OpenStream();
  }
  if (now < flush_at && !pipeline->fills_message()) return std::min(flush_at, patience_ends);
  bool sent = false;
  PayloadMessage message;
  while (!stream_full && (unwritten.has_value() || pipeline->NextMessage(now, &message))) {
    if (!unwritten.has_value()) unwritten = ToByteBuffer(std::move(message));
    if (stream->Write(*std::move(unwritten))) {
      unwritten.reset();
      sent = true;
    } else {
      stream_full = true;  // until OnWritable, or until the stream's end
    }
  }
  if (sent) flush_at = now + options.push_linger;
  if (stream_full) return patience_ends;
  return std::min(std::max(pipeline->NextSend(now), flush_at), patience_ends);
}

void GrpcQueueWorkerClient::State::OpenStream() {
  const uint64_t number = ++stream_number;
  ++open_streams;
  stream_full = false;
  stream = PushStream::Start(
      [this](grpc::ClientContext* context, auto* reactor) {
        push_stub.PrepareBidiStreamingCall(context, "/leeway.v1.Queue/Push", grpc::StubOptions(), reactor);
      },
      "Push", &executor, {.max_queued_writes = kMaxQueuedWrites},
      [this, number](std::shared_ptr<PushStream>) { return std::make_unique<PushEvents<State>>(this, number); });
}

void GrpcQueueWorkerClient::State::AbandonStream() {
  if (stream != nullptr) stream->Cancel();
  stream = nullptr;
  unwritten.reset();
  stream_full = false;
  if (pipeline != nullptr) pipeline->OnDisconnected();
}

void GrpcQueueWorkerClient::State::Refuse(const absl::Status& why) {
  refused = why;
  if (pipeline == nullptr) return;
  PushPipeline::Callbacks added;
  pipeline->FailAll(why, &added);
  Queue(std::move(added));
  Wake();  // somebody has to run them
}

void GrpcQueueWorkerClient::State::RunCallbacks() {
  while (true) {
    std::deque<PushPipeline::Answered> batch;
    {
      MutexLock lock(&mutex);
      // Another thread is at it, and will find these too.
      if (running_callbacks || callbacks.empty()) return;
      running_callbacks = true;
      batch.swap(callbacks);
    }
    for (PushPipeline::Answered& answered : batch) answered.Tell();
    MutexLock lock(&mutex);
    running_callbacks = false;
  }
}

void GrpcQueueWorkerClient::State::Stop() {
  caller.calls()->CancelAll();
  {
    MutexLock lock(&mutex);
    stopping = true;
    AbandonStream();
    Refuse(absl::CancelledError("the client is shutting down"));
    Wake();
  }
  sender.join();
  {
    MutexLock lock(&mutex);
    while (open_streams > 0) changed.WaitFor(&mutex, absl::Seconds(1));
  }
  RunCallbacks();
}

absl::StatusOr<std::unique_ptr<GrpcQueueWorkerClient>> GrpcQueueWorkerClient::Create(
    const QueueGrpcClientOptions& options) {
  ConnectionOptions connection = QueueConnectionOptions();
  connection.security = options.security;
  LEEWAY_ASSIGN_OR_RETURN(std::shared_ptr<grpc::Channel> channel, OpenChannel(options.target, connection));
  auto state = std::make_unique<State>(options, std::move(channel));
  state->sender = std::thread([raw = state.get()] { raw->RunSender(); });
  return std::unique_ptr<GrpcQueueWorkerClient>(new GrpcQueueWorkerClient(std::move(state)));
}

GrpcQueueWorkerClient::GrpcQueueWorkerClient(std::unique_ptr<State> state) : state_(std::move(state)) {}

GrpcQueueWorkerClient::~GrpcQueueWorkerClient() { state_->Stop(); }

void GrpcQueueWorkerClient::Cancel() { state_->caller.calls()->CancelAll(); }

absl::StatusOr<v1::RegisterResponse> GrpcQueueWorkerClient::Register(const std::string& name,
                                                                     const std::string& run_fingerprint,
                                                                     absl::Duration timeout) {
  v1::RegisterRequest request;
  request.set_name(name);
  request.set_run_fingerprint(run_fingerprint);
  v1::RegisterResponse response;
  LEEWAY_RETURN_IF_ERROR(state_->caller.Call(&v1::Queue::Stub::Register, request, &response, timeout, "Register"));
  state_->Start(response);
  return response;
}

absl::StatusOr<v1::AcquireTicketsResponse> GrpcQueueWorkerClient::AcquireTickets(uint32_t max_members,
                                                                                 const v1::WeightsVersion& holds,
                                                                                 absl::Duration wait) {
  v1::AcquireTicketsRequest request;
  LEEWAY_ASSIGN_OR_RETURN(*request.mutable_identity(), state_->Identity());
  {
    MutexLock lock(&state_->mutex);
    request.set_sequence(state_->acquire_sequence);
  }
  request.set_max_members(max_members);
  *request.mutable_holds() = holds;
  v1::AcquireTicketsResponse response;
  LEEWAY_RETURN_IF_ERROR(state_->caller.Poll(wait, [&](absl::Duration left) {
    request.set_wait_ms(absl::ToInt64Milliseconds(left));
    response.Clear();
    return state_->caller.Once(&v1::Queue::Stub::AcquireTickets, request, &response,
                               left + state_->options.network_margin, "AcquireTickets");
  }));
  MutexLock lock(&state_->mutex);
  const bool is_current = state_->handshake.identity().epoch() == request.identity().epoch();
  if (is_current) state_->acquire_sequence = request.sequence() + 1;
  return response;
}

void GrpcQueueWorkerClient::Push(v1::Trajectory trajectory, std::function<void(absl::StatusOr<v1::PushAnswer>)> done) {
  PushKept(trajectory, std::move(done));
}

void GrpcQueueWorkerClient::PushKept(const v1::Trajectory& trajectory,
                                     std::function<void(absl::StatusOr<v1::PushAnswer>)> done) {
  std::string payload = trajectory.SerializeAsString();
  uint64_t limit = 0;
  {
    MutexLock lock(&state_->mutex);
    limit = state_->handshake.max_trajectory_bytes();
  }
  if (limit > 0 && payload.size() > limit) {
    v1::Trajectory failed;
    *failed.mutable_key() = trajectory.key();
    failed.set_evaluation(trajectory.evaluation());
    failed.set_outcome(v1::FAILED);
    failed.mutable_failure()->set_fault(v1::Failure::PROTOCOL);
    failed.mutable_failure()->set_code("trajectory_too_large");
    failed.mutable_failure()->set_message(
        absl::StrCat("the trajectory has ", payload.size(), " bytes, the queue takes ", limit));
    LEEWAY_LOG_WARNING("ticket {} member {} is given up: {}", trajectory.key().ticket(), trajectory.key().member(),
                       failed.failure().message());
    payload = failed.SerializeAsString();
  }
  state_->Push(std::move(payload), std::move(done));
}

int64_t GrpcQueueWorkerClient::unanswered_pushes() const {
  MutexLock lock(&state_->mutex);
  return state_->pipeline == nullptr ? 0 : state_->pipeline->unanswered();
}

absl::StatusOr<v1::HeartbeatResponse> GrpcQueueWorkerClient::Heartbeat(const v1::HeartbeatRequest& request,
                                                                       absl::Duration timeout) {
  v1::HeartbeatRequest identified = request;
  LEEWAY_ASSIGN_OR_RETURN(*identified.mutable_identity(), state_->Identity());
  v1::HeartbeatResponse response;
  LEEWAY_RETURN_IF_ERROR(state_->caller.Call(&v1::Queue::Stub::Heartbeat, identified, &response, timeout, "Heartbeat"));
  return response;
}

}  // namespace leeway
