#ifndef LEEWAY_RPC_STREAMS_CLIENT_STREAM_H_
#define LEEWAY_RPC_STREAMS_CLIENT_STREAM_H_

#include <functional>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "base/executor.h"
#include "base/mutex.h"
#include "grpcpp/client_context.h"
#include "grpcpp/support/client_callback.h"
#include "rpc/status_mapping.h"
#include "rpc/streams/outgoing_queue.h"
#include "rpc/streams/stream_handler.h"

namespace leeway {

// The client's end of one bidirectional stream, mirror image of ServerStream: reads all the time, writes from a bounded
// queue.
//
//   auto stream = ClientStream<Out, In>::Start(
//       [stub](grpc::ClientContext* context, auto* reactor) { stub->async()->Push(context, reactor); },
//       "Push", executor, options, [](auto stream) { return std::make_unique<MyHandler>(...); });
//
// The call has no deadline of its own: it lives until Cancel, or until the server or the connection ends it (keepalive
// notices a silent one); whoever waits for an answer on it keeps the time and cancels. The handler's OnEnd is its last
// call, after which it is destroyed. Threads: Write and Cancel from any; the handler is called on
// `executor`, one call at a time.
template <class Outgoing, class Incoming>
class ClientStream final : public grpc::ClientBidiReactor<Outgoing, Incoming> {
 public:
  using Handler = StreamHandler<Incoming>;
  using StartOnStub =
      std::function<void(grpc::ClientContext* context, grpc::ClientBidiReactor<Outgoing, Incoming>* reactor)>;
  using MakeHandler = std::function<std::unique_ptr<Handler>(std::shared_ptr<ClientStream> stream)>;

  // `executor` and the stub must outlive the stream. `name` (static) is put before error messages.
  static std::shared_ptr<ClientStream> Start(const StartOnStub& start_on_stub, const char* name, Executor* executor,
                                             const StreamOptions& options, const MakeHandler& make_handler) {
    auto stream = std::shared_ptr<ClientStream>(new ClientStream(name, executor, options));
    stream->self_ = stream;
    stream->handler_ = make_handler(stream);
    {
      MutexLock lock(&stream->mutex_);
      start_on_stub(stream->context_.get(), stream.get());
    }
    stream->AddHold();
    stream->StartRead(&stream->incoming_);
    stream->StartCall();
    return stream;
  }

  // Queues a message. False when it was not taken and is left as it was: the stream is over, or
  // `max_queued_writes` are waiting (then the handler's OnWritable says when to try again).
  bool Write(Outgoing&& message) LEEWAY_EXCLUDES(mutex_) {
    MutexLock lock(&mutex_);
    if (!outgoing_.Add(std::move(message))) {
      write_refused_ = true;
      return false;
    }
    StartNextWrite();
    return true;
  }
  void Cancel() LEEWAY_EXCLUDES(mutex_) {
    MutexLock lock(&mutex_);
    cancelled_ = true;
    outgoing_.Drop();
    if (context_ != nullptr) context_->TryCancel();
  }

  // ---- reactions: called by gRPC
  // -------------------------------------------------------------------------------------------------
  void OnReadDone(bool ok) override LEEWAY_EXCLUDES(mutex_) {
    if (ok) {
      executor_->Schedule([this] {
        handler_->OnMessage(&incoming_);
        HandlerReturned();
      });
      return;
    }
    MutexLock lock(&mutex_);
    outgoing_.Drop();
    // Nothing is started from outside any more: gRPC may make its last call.
    over_ = true;
    this->RemoveHold();
  }
  void OnWriteDone(bool ok) override LEEWAY_EXCLUDES(mutex_) {
    bool has_room = false;
    {
      MutexLock lock(&mutex_);
      outgoing_.Done(ok);
      if (ok) StartNextWrite();
      has_room = write_refused_ && outgoing_.size() <= max_queued_writes_ / 2;
      if (has_room) write_refused_ = false;
    }
    if (has_room) handler_->OnWritable();
  }
  void OnDone(const grpc::Status& status) override LEEWAY_EXCLUDES(mutex_) {
    bool cancelled = false;
    {
      MutexLock lock(&mutex_);
      cancelled = cancelled_;
      // The last reference to a channel must not go on a thread of gRPC's, which it would join: from here on the stream
      // holds none.
      context_.reset();
    }
    executor_->Schedule([this, end = FromGrpcStatus(status, name_, cancelled)] {
      handler_->OnEnd(end);
      handler_.reset();
      self_.reset();  // may destroy this
    });
  }

 private:
  ClientStream(const char* name, Executor* executor, const StreamOptions& options)
      : name_(name),
        executor_(executor),
        max_queued_writes_(options.max_queued_writes),
        outgoing_(options.max_queued_writes) {}

  // The hold of Start keeps OnDone away until a read failed, so the handler is never called after OnEnd.
  void HandlerReturned() LEEWAY_EXCLUDES(mutex_) { this->StartRead(&incoming_); }

  void StartNextWrite() LEEWAY_REQUIRES(mutex_) {
    if (over_) return;
    if (const Outgoing* next = outgoing_.StartNext()) {
      grpc::WriteOptions write_options;
      if (outgoing_.size() > 1) write_options.set_buffer_hint();
      this->StartWrite(next, write_options);
    }
  }

  const char* const name_;
  Executor* const executor_;
  const size_t max_queued_writes_;
  // Keeps the stream alive until gRPC and the handler are through with it.
  std::shared_ptr<ClientStream> self_;
  std::unique_ptr<Handler> handler_;
  // Written by gRPC while a read is in flight, then the handler's.
  Incoming incoming_;

  Mutex mutex_;
  // Null once gRPC made its last call.
  std::unique_ptr<grpc::ClientContext> context_ LEEWAY_GUARDED_BY(mutex_) = std::make_unique<grpc::ClientContext>();
  OutgoingQueue<Outgoing> outgoing_ LEEWAY_GUARDED_BY(mutex_);
  bool cancelled_ LEEWAY_GUARDED_BY(mutex_) = false;
  // Somebody waits for room.
  bool write_refused_ LEEWAY_GUARDED_BY(mutex_) = false;
  // A read failed: the call is ending, nothing may be started.
  bool over_ LEEWAY_GUARDED_BY(mutex_) = false;
};

}  // namespace leeway

#endif  // LEEWAY_RPC_STREAMS_CLIENT_STREAM_H_
