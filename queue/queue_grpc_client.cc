#include "queue/queue_grpc_client.h"

#include <algorithm>
#include <deque>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/cpu_time.h"
#include "base/executor.h"
#include "base/hash.h"
#include "base/logging.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "leeway/v1/queue.grpc.pb.h"
#include "queue/wire/connection.h"
#include "queue/wire/lease_stream.h"
#include "queue/wire/push_pipeline.h"
#include "rpc/backoff.h"
#include "rpc/channel.h"
#include "rpc/client_stream.h"
#include "rpc/unary_call.h"

namespace leeway {
namespace {

// A queue cuts its leases into pieces of at most this (QueueServer refuses larger ones), and its trajectories fit into
// protobuf.
constexpr uint64_t kLargestChunk = 4 << 20;
constexpr uint64_t kLargestTrajectory = uint64_t{2} << 30;

// Messages that wait to be written on the push stream.
constexpr size_t kMaxQueuedWrites = 8;

// The stub and what every call of it needs.
class Caller {
 public:
  Caller(const QueueGrpcClientOptions& options, std::shared_ptr<grpc::Channel> channel)
      : options_(options),
        channel_(std::move(channel)),
        stub_(v1::Queue::NewStub(channel_)),
        seed_(Hash64(options.name.data(), options.name.size())) {}

  // One try.
  template <class Request, class Response>
  absl::Status Once(grpc::Status (v1::Queue::Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                    const Request& request, Response* response, absl::Duration timeout, const char* name) {
    return CallUnary(stub_.get(), method, request, response, timeout, &calls_, name);
  }
  // Of an idempotent call: again and again while the queue cannot be reached, for `retry_for` at most.
  template <class Request, class Response>
  absl::Status Call(grpc::Status (v1::Queue::Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                    const Request& request, Response* response, absl::Duration timeout, const char* name) {
    const Deadline deadline = Deadline::After(timeout);
    return RetryWithBackoff(
        BackoffPolicy(), seed_, Deadline::After(std::min(timeout, options_.retry_for)),
        [this](absl::Duration delay) { return calls_.Sleep(delay); },
        [&] {
          response->Clear();
          return Once(method, request, response, deadline.Remaining(), name);
        });
  }

  v1::Queue::Stub* stub() { return stub_.get(); }
  OpenCalls* calls() { return &calls_; }
  const QueueGrpcClientOptions& options() const { return options_; }
  uint64_t seed() const { return seed_; }

 private:
  const QueueGrpcClientOptions options_;
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::Queue::Stub> stub_;
  OpenCalls calls_;
  // Of the jitter of retries.
  const uint64_t seed_;
};

absl::Status NotRegistered() { return absl::FailedPreconditionError("this worker has no identity: register first"); }

using PushStream = ClientStream<v1::PushRequest, v1::PushResponse>;

}  // namespace

// ---- worker --------------------------------------------------------------------------------------------------------

struct GrpcQueueWorkerClient::State {
  State(const QueueGrpcClientOptions& options, std::shared_ptr<grpc::Channel> channel)
      : caller(options, std::move(channel)), backoff(BackoffPolicy(), caller.seed()) {}

  absl::StatusOr<v1::WorkerIdentity> Identity() LEEWAY_EXCLUDES(mutex);
  void Start(const v1::RegisterResponse& handshake) LEEWAY_EXCLUDES(mutex);
  void Push(std::string payload, PushPipeline::Done done) LEEWAY_EXCLUDES(mutex);
  void Stop() LEEWAY_EXCLUDES(mutex);

  // The stream's events; `stream_number` tells those of an abandoned one.
  void OnAnswers(uint64_t stream_number, const v1::PushResponse& response) LEEWAY_EXCLUDES(mutex);
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
    for (auto& callback : added) callbacks.push_back(std::move(callback));
  }

  Caller caller;
  InlineExecutor executor;

  Mutex mutex;
  CondVar changed;
  v1::RegisterResponse handshake LEEWAY_GUARDED_BY(mutex);
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
  v1::PushRequest unwritten LEEWAY_GUARDED_BY(mutex);
  bool stream_full LEEWAY_GUARDED_BY(mutex) = false;
  Backoff backoff LEEWAY_GUARDED_BY(mutex);
  MonotonicTime reconnect_at LEEWAY_GUARDED_BY(mutex);
  // Small pushes go out no earlier than this.
  MonotonicTime flush_at LEEWAY_GUARDED_BY(mutex);
  // When the queue was last heard of, or something was first waiting for it.
  MonotonicTime heard_at LEEWAY_GUARDED_BY(mutex);
  // Until when the sender sleeps if nobody wakes it.
  MonotonicTime asleep_until LEEWAY_GUARDED_BY(mutex);
  std::deque<std::function<void()>> callbacks LEEWAY_GUARDED_BY(mutex);
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
  void OnMessage(v1::PushResponse* response) override { state_->OnAnswers(stream_number_, *response); }
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
    pipeline = std::make_unique<PushPipeline>(handshake.identity(), handshake.max_chunk_bytes());
    backoff.Reset();
    reconnect_at = MonotonicTime();
    Wake();
  }
  RunCallbacks();
}

void GrpcQueueWorkerClient::State::Push(std::string payload, PushPipeline::Done done) {
  MutexLock lock(&mutex);
  if (!refused.ok()) {
    callbacks.push_back([done = std::move(done), status = refused] { done(status); });
    Wake();
    return;
  }
  const MonotonicTime now = RealClock()->Now();
  if (pipeline->unanswered() == 0) heard_at = now;
  pipeline->Add(std::move(payload), std::move(done));
  // A sleeping sender that wakes in time by itself is left alone: that is what makes small pushes cheap.
  const bool fills_message = pipeline->unsent_bytes() >= handshake.max_chunk_bytes();
  if (!woken && (fills_message || asleep_until > std::max(now, flush_at))) Wake();
}

void GrpcQueueWorkerClient::State::OnAnswers(uint64_t number, const v1::PushResponse& response) {
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
    if (pipeline->NextSend(now) < asleep_until) Wake();
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
  const MonotonicTime patience_ends = heard_at + caller.options().push_patience;
  if (now >= patience_ends) {
    AbandonStream();
    Refuse(
        absl::UnavailableError(absl::StrCat("the queue at ", caller.options().target, " has not answered a push for ",
                                            absl::FormatDuration(caller.options().push_patience), "; register again")));
    return MonotonicTime::InfiniteFuture();
  }
  if (stream == nullptr) {
    if (now < reconnect_at) return std::min(reconnect_at, patience_ends);
    OpenStream();
  }
  const bool fills_message = pipeline->unsent_bytes() >= handshake.max_chunk_bytes();
  if (now < flush_at && !fills_message) return std::min(flush_at, patience_ends);
  bool sent = false;
  while (!stream_full && (unwritten.chunks_size() > 0 || pipeline->NextMessage(now, &unwritten))) {
    if (stream->Write(std::move(unwritten))) {
      unwritten.Clear();
      sent = true;
    } else {
      stream_full = true;  // until OnWritable, or until the stream's end
    }
  }
  if (sent) flush_at = now + caller.options().push_linger;
  if (stream_full) return patience_ends;
  return std::min(std::max(pipeline->NextSend(now), flush_at), patience_ends);
}

void GrpcQueueWorkerClient::State::OpenStream() {
  const uint64_t number = ++stream_number;
  ++open_streams;
  stream_full = false;
  stream = PushStream::Start(
      [this](grpc::ClientContext* context, auto* reactor) { caller.stub()->async()->Push(context, reactor); }, "Push",
      &executor, {.max_queued_writes = kMaxQueuedWrites},
      [this, number](std::shared_ptr<PushStream>) { return std::make_unique<PushEvents<State>>(this, number); });
}

void GrpcQueueWorkerClient::State::AbandonStream() {
  if (stream != nullptr) stream->Cancel();
  stream = nullptr;
  unwritten.Clear();
  stream_full = false;
  if (pipeline != nullptr) pipeline->OnDisconnected();
}

void GrpcQueueWorkerClient::State::Refuse(const absl::Status& why) {
  refused = why;
  if (pipeline == nullptr) return;
  PushPipeline::Callbacks added;
  pipeline->FailAll(why, &added);
  Queue(std::move(added));
}

void GrpcQueueWorkerClient::State::RunCallbacks() {
  while (true) {
    std::deque<std::function<void()>> batch;
    {
      MutexLock lock(&mutex);
      // Another thread is at it, and will find these too.
      if (running_callbacks || callbacks.empty()) return;
      running_callbacks = true;
      batch.swap(callbacks);
    }
    for (auto& callback : batch) callback();
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
  LEEWAY_ASSIGN_OR_RETURN(std::shared_ptr<grpc::Channel> channel,
                          OpenChannel(options.target, QueueConnectionOptions()));
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
  request.set_max_members(max_members);
  request.set_wait_ms(absl::ToInt64Milliseconds(wait));
  *request.mutable_holds() = holds;
  v1::AcquireTicketsResponse response;
  // One try: tickets of an answer that was lost on the way are this worker's all the same.
  LEEWAY_RETURN_IF_ERROR(state_->caller.Once(&v1::Queue::Stub::AcquireTickets, request, &response,
                                             wait + state_->caller.options().network_margin, "AcquireTickets"));
  return response;
}

void GrpcQueueWorkerClient::Push(v1::Trajectory trajectory, std::function<void(absl::StatusOr<v1::PushAnswer>)> done) {
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

// ---- trainer -------------------------------------------------------------------------------------------------------

struct GrpcQueueTrainerClient::State {
  State(const QueueGrpcClientOptions& options, std::shared_ptr<grpc::Channel> channel)
      : caller(options, std::move(channel)) {}

  Caller caller;
};

absl::StatusOr<std::unique_ptr<GrpcQueueTrainerClient>> GrpcQueueTrainerClient::Create(
    const QueueGrpcClientOptions& options) {
  LEEWAY_ASSIGN_OR_RETURN(std::shared_ptr<grpc::Channel> channel,
                          OpenChannel(options.target, QueueConnectionOptions()));
  return std::unique_ptr<GrpcQueueTrainerClient>(
      new GrpcQueueTrainerClient(std::make_unique<State>(options, std::move(channel))));
}

GrpcQueueTrainerClient::GrpcQueueTrainerClient(std::unique_ptr<State> state) : state_(std::move(state)) {}

GrpcQueueTrainerClient::~GrpcQueueTrainerClient() { Cancel(); }

void GrpcQueueTrainerClient::Cancel() { state_->caller.calls()->CancelAll(); }

absl::StatusOr<v1::AllocateLineageResponse> GrpcQueueTrainerClient::AllocateLineage(absl::Duration timeout) {
  v1::AllocateLineageRequest request;
  request.set_trainer(state_->caller.options().name);
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
  request.set_wait_ms(absl::ToInt64Milliseconds(wait));
  OpenCalls* const calls = state_->caller.calls();
  LeaseJoiner joiner(kLargestTrajectory, kLargestChunk);
  absl::Status joined;
  grpc::Status ended;
  {
    grpc::ClientContext context;
    // A batch is as large as its trajectories: the margin is for its transfer too.
    context.set_deadline(CallDeadline(wait + 6 * state_->caller.options().network_margin));
    if (!calls->Add(&context)) return absl::CancelledError("the client is shutting down");
    std::unique_ptr<grpc::ClientReader<v1::LeaseBatchResponse>> reader =
        state_->caller.stub()->LeaseBatch(&context, request);
    v1::LeaseBatchResponse response;
    while (joined.ok() && reader->Read(&response)) joined = joiner.Add(&response);
    if (!joined.ok()) context.TryCancel();
    ended = reader->Finish();
    calls->Remove(&context);
  }
  LEEWAY_RETURN_IF_ERROR(joined);
  LEEWAY_RETURN_IF_ERROR(FromGrpcStatus(ended, "LeaseBatch", calls->cancelled()));
  return joiner.Finish();
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
  // One try: the second would find the group gone.
  return state_->caller.Once(&v1::Queue::Stub::RetireGroup, request, &response, timeout, "RetireGroup");
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
