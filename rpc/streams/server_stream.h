#ifndef LEEWAY_RPC_STREAMS_SERVER_STREAM_H_
#define LEEWAY_RPC_STREAMS_SERVER_STREAM_H_

#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "base/executor.h"
#include "base/mutex.h"
#include "grpcpp/support/server_callback.h"
#include "rpc/request_errors.h"
#include "rpc/status_mapping.h"
#include "rpc/streams/outgoing_queue.h"
#include "rpc/streams/stream_handler.h"

namespace leeway {

// The server's end of one bidirectional stream: the rules of gRPC's callback API in one place, so that services only
// say what to do with a message.
//
//   grpc::ServerBidiReactor<Req, Resp>* Service::Method(grpc::CallbackServerContext*) {
//     return ServerStream<Req, Resp>::Start(executor, options, [](auto stream) { return
//     std::make_unique<MyHandler>(stream); });
//   }
//
// Reads: one at a time; the next one starts when the handler is through with the last, and not while more than half of
// `max_queued_writes` wait to be written (a peer that does not read is not read from). Writes: queued, in order, one in
// flight. End: by Finish(), by cancellation (peer gone, deadline, server shutdown) or by a failed write, whichever is
// first; a message that cannot be parsed ends it with INVALID_ARGUMENT; always finished towards gRPC, so a shutdown
// never hangs on it. The handler's OnEnd is the last call it gets, after which it is destroyed. Threads: Write and
// Finish from any; the handler is called on `executor`, one call at a time. Keep a weak_ptr outside of the handler.
template <class Request, class Response>
class ServerStream final : public grpc::ServerBidiReactor<Request, Response>,
                           public std::enable_shared_from_this<ServerStream<Request, Response>> {
 public:
  using Handler = StreamHandler<Request>;
  using MakeHandler = std::function<std::unique_ptr<Handler>(std::shared_ptr<ServerStream> stream)>;

  // `executor` must outlive the stream.
  static ServerStream* Start(Executor* executor, const StreamOptions& options, const MakeHandler& make_handler) {
    auto stream = std::shared_ptr<ServerStream>(new ServerStream(executor, options));
    stream->self_ = stream;
    stream->handler_ = make_handler(stream);
    stream->ReadNext();
    return stream.get();
  }

  // A message that was read will be answered by a Write later, or by ForgoWrite: until then it counts as one that waits
  // to be written, and reading pauses when there are many.
  void ExpectWrite() LEEWAY_EXCLUDES(mutex_) {
    MutexLock lock(&mutex_);
    ++expected_writes_;
  }
  void ForgoWrite() LEEWAY_EXCLUDES(mutex_) {
    MutexLock lock(&mutex_);
    --expected_writes_;
    ResumeReading();
  }
  // Queues a message. False when it was not taken: the stream is ending, or `max_queued_writes` are waiting.
  bool Write(Response response) LEEWAY_EXCLUDES(mutex_) {
    MutexLock lock(&mutex_);
    if (expected_writes_ > 0) --expected_writes_;
    if (!outgoing_.Add(std::move(response))) return false;
    StartWriteOrFinish();
    return true;
  }
  // Ends the stream when what is queued is written. Only the first call counts.
  void Finish(absl::Status status) LEEWAY_EXCLUDES(mutex_) {
    MutexLock lock(&mutex_);
    End(std::move(status));
  }

  // ---- reactions: called by gRPC
  // -------------------------------------------------------------------------------------------------
  void OnReadDone(bool ok) override LEEWAY_EXCLUDES(mutex_) {
    if (!ok && !UnreadMark<Request>::IsSet(request_)) Finish(absl::InvalidArgumentError(kMalformedRequest));
    executor_->Schedule([this, ok] {
      ok ? handler_->OnMessage(&request_) : handler_->OnHalfClose();
      HandlerReturned(ok);
    });
  }
  void OnWriteDone(bool ok) override LEEWAY_EXCLUDES(mutex_) {
    MutexLock lock(&mutex_);
    outgoing_.Done(ok);
    if (!ok) End(absl::CancelledError("the peer is gone"));
    StartWriteOrFinish();
    ResumeReading();
  }
  void OnCancel() override LEEWAY_EXCLUDES(mutex_) {
    MutexLock lock(&mutex_);
    outgoing_.Drop();
    End(absl::CancelledError("cancelled: the peer is gone or the server is shutting down"));
  }
  void OnDone() override LEEWAY_EXCLUDES(mutex_) {
    {
      MutexLock lock(&mutex_);
      done_ = true;
      if (handling_) return;  // HandlerReturned goes on
    }
    executor_->Schedule([this] { LastCall(); });
  }

 private:
  ServerStream(Executor* executor, const StreamOptions& options)
      : executor_(executor), options_(options), outgoing_(options.max_queued_writes) {}

  bool CanRead() const LEEWAY_REQUIRES(mutex_) {
    return outgoing_.size() + expected_writes_ <= options_.max_queued_writes / 2;
  }
  void ResumeReading() LEEWAY_REQUIRES(mutex_) {
    if (!read_paused_ || !CanRead()) return;
    read_paused_ = false;
    StartReadLocked();
  }

  // The handler is busy from the start of a read until it returned, so that OnEnd never meets another call.
  void StartReadLocked() LEEWAY_REQUIRES(mutex_) {
    if (finished_) return;
    handling_ = true;
    UnreadMark<Request>::Set(&request_);
    this->StartRead(&request_);
  }
  void ReadNext() LEEWAY_EXCLUDES(mutex_) {
    MutexLock lock(&mutex_);
    CanRead() ? StartReadLocked() : static_cast<void>(read_paused_ = true);
  }
  void HandlerReturned(bool more) LEEWAY_EXCLUDES(mutex_) {
    bool last = false;
    {
      MutexLock lock(&mutex_);
      handling_ = false;
      last = done_;
    }
    if (last) {
      LastCall();
    } else if (more) {
      ReadNext();
    }
  }
  void End(absl::Status status) LEEWAY_REQUIRES(mutex_) {
    if (!end_.has_value()) end_ = std::move(status);
    outgoing_.Close();
    StartWriteOrFinish();
  }
  void StartWriteOrFinish() LEEWAY_REQUIRES(mutex_) {
    if (finished_) return;
    if (const Response* next = outgoing_.StartNext()) {
      grpc::WriteOptions write_options;
      // Another write follows at once: let the transport put them into one system call.
      if (outgoing_.size() > 1) write_options.set_buffer_hint();
      this->StartWrite(next, write_options);
    } else if (end_.has_value() && outgoing_.idle()) {
      finished_ = true;
      grpc::ServerBidiReactor<Request, Response>::Finish(ToGrpcStatus(*end_));
    }
  }
  void LastCall() LEEWAY_EXCLUDES(mutex_) {
    absl::Status end;
    {
      MutexLock lock(&mutex_);
      end = end_.value_or(absl::CancelledError("the call is over"));
    }
    handler_->OnEnd(end);
    handler_.reset();
    self_.reset();  // may destroy this
  }

  Executor* const executor_;
  const StreamOptions options_;
  // Keeps the stream alive until gRPC and the handler are through with it.
  std::shared_ptr<ServerStream> self_;
  std::unique_ptr<Handler> handler_;
  // Written by gRPC while a read is in flight, then the handler's.
  Request request_;

  Mutex mutex_;
  OutgoingQueue<Response> outgoing_ LEEWAY_GUARDED_BY(mutex_);
  size_t expected_writes_ LEEWAY_GUARDED_BY(mutex_) = 0;
  // What Finish is called with, once everything is written.
  std::optional<absl::Status> end_ LEEWAY_GUARDED_BY(mutex_);
  // Finish was called towards gRPC: nothing may be started after it.
  bool finished_ LEEWAY_GUARDED_BY(mutex_) = false;
  // A read is in flight or its message is being handled.
  bool handling_ LEEWAY_GUARDED_BY(mutex_) = false;
  bool read_paused_ LEEWAY_GUARDED_BY(mutex_) = false;
  // gRPC made its last call.
  bool done_ LEEWAY_GUARDED_BY(mutex_) = false;
};

// The server's end of one server-streaming call. Messages are asked for one by one, each after the one before was
// written: a slow reader costs one message of memory, not all of them. Ends like ServerStream. Threads: WriteAll and
// Finish from any.
template <class Response>
class ServerWriteStream final : public grpc::ServerWriteReactor<Response> {
 public:
  // Fills the next message; false when there is none left; an error ends the call with it. Called on gRPC's threads,
  // one call at a time; must not block for long.
  using NextMessage = std::function<absl::StatusOr<bool>(Response* response)>;

  // `on_end` is called once, when gRPC is through with the call.
  static std::shared_ptr<ServerWriteStream> Start(std::function<void(const absl::Status&)> on_end) {
    auto stream = std::shared_ptr<ServerWriteStream>(new ServerWriteStream(std::move(on_end)));
    stream->self_ = stream;
    return stream;
  }

  // Writes what `next` gives and ends with OK. At most once, and not after Finish (then it does nothing).
  void WriteAll(NextMessage next) LEEWAY_EXCLUDES(mutex_) {
    {
      MutexLock lock(&mutex_);
      if (finished_) return;
      next_ = std::move(next);
      writing_ = true;
    }
    WriteNext();
  }
  // Ends the call; a message in flight is still written. Only the first end counts.
  void Finish(absl::Status status) LEEWAY_EXCLUDES(mutex_) {
    MutexLock lock(&mutex_);
    End(std::move(status));
  }

  // ---- reactions: called by gRPC
  // -------------------------------------------------------------------------------------------------
  void OnWriteDone(bool ok) override LEEWAY_EXCLUDES(mutex_) {
    if (ok) {
      WriteNext();
      return;
    }
    MutexLock lock(&mutex_);
    writing_ = false;
    End(absl::CancelledError("the peer is gone"));
  }
  void OnCancel() override LEEWAY_EXCLUDES(mutex_) {
    Finish(absl::CancelledError("cancelled: the peer is gone or the server is shutting down"));
  }
  void OnDone() override LEEWAY_EXCLUDES(mutex_) {
    absl::Status end;
    {
      MutexLock lock(&mutex_);
      end = *end_;
    }
    next_ = nullptr;
    on_end_(end);
    self_.reset();  // may destroy this
  }

 private:
  explicit ServerWriteStream(std::function<void(const absl::Status&)> on_end) : on_end_(std::move(on_end)) {}

  // Called while `writing_` and no write is in flight: then next_ and response_ are this call's alone.
  void WriteNext() LEEWAY_EXCLUDES(mutex_) {
    bool more = false;
    {
      MutexLock lock(&mutex_);
      more = !end_.has_value();
    }
    absl::Status failure;
    if (more) {
      response_.Clear();
      const absl::StatusOr<bool> next = next_(&response_);
      failure = next.status();
      more = next.ok() && *next;
    }
    MutexLock lock(&mutex_);
    if (more && !end_.has_value()) {
      this->StartWrite(&response_);
      return;
    }
    writing_ = false;
    End(std::move(failure));
  }
  void End(absl::Status status) LEEWAY_REQUIRES(mutex_) {
    if (!end_.has_value()) end_ = std::move(status);
    if (writing_ || finished_) return;
    finished_ = true;
    grpc::ServerWriteReactor<Response>::Finish(ToGrpcStatus(*end_));
  }

  const std::function<void(const absl::Status&)> on_end_;
  std::shared_ptr<ServerWriteStream> self_;
  NextMessage next_;
  Response response_;

  Mutex mutex_;
  std::optional<absl::Status> end_ LEEWAY_GUARDED_BY(mutex_);
  // A message is being made or written: the end waits for it.
  bool writing_ LEEWAY_GUARDED_BY(mutex_) = false;
  bool finished_ LEEWAY_GUARDED_BY(mutex_) = false;
};

}  // namespace leeway

#endif  // LEEWAY_RPC_STREAMS_SERVER_STREAM_H_
