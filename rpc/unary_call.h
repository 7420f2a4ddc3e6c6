#ifndef LEEWAY_RPC_UNARY_CALL_H_
#define LEEWAY_RPC_UNARY_CALL_H_

#include <chrono>
#include <set>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "grpcpp/client_context.h"
#include "rpc/status_mapping.h"

namespace leeway {

// The deadline of a call, `timeout` from now. Infinite and very long timeouts become a day: every call has one.
inline std::chrono::system_clock::time_point CallDeadline(absl::Duration timeout) {
  const absl::Duration limited = timeout < absl::Hours(24) ? timeout : absl::Hours(24);
  return std::chrono::system_clock::now() + absl::ToChronoNanoseconds(limited);
}

// The blocking calls that a client has open, so that its shutdown can end them at once. Thread-safe.
class OpenCalls {
 public:
  // Ends every open call with CANCELLED, and every later one before it starts.
  void CancelAll() LEEWAY_EXCLUDES(mutex_) {
    MutexLock lock(&mutex_);
    cancelled_ = true;
    changed_.NotifyAll();
    for (grpc::ClientContext* context : contexts_) context->TryCancel();
  }
  bool cancelled() const LEEWAY_EXCLUDES(mutex_) {
    MutexLock lock(&mutex_);
    return cancelled_;
  }
  // Sleeps between two tries of a call; false as soon as calls are cancelled.
  bool Sleep(absl::Duration time) LEEWAY_EXCLUDES(mutex_) {
    const Deadline deadline = Deadline::After(time);
    MutexLock lock(&mutex_);
    while (!cancelled_ && !deadline.HasPassed()) changed_.WaitUntil(&mutex_, deadline);
    return !cancelled_;
  }
  // Between Add and Remove the context must live. Add is false when calls are no longer wanted.
  bool Add(grpc::ClientContext* context) LEEWAY_EXCLUDES(mutex_) {
    MutexLock lock(&mutex_);
    if (!cancelled_) contexts_.insert(context);
    return !cancelled_;
  }
  void Remove(grpc::ClientContext* context) LEEWAY_EXCLUDES(mutex_) {
    MutexLock lock(&mutex_);
    contexts_.erase(context);
  }

 private:
  mutable Mutex mutex_;
  CondVar changed_;
  bool cancelled_ LEEWAY_GUARDED_BY(mutex_) = false;
  std::set<grpc::ClientContext*> contexts_ LEEWAY_GUARDED_BY(mutex_);
};

// One blocking call:  CallUnary(stub.get(), &v1::Queue::Stub::Commit, request, &response, timeout, &calls, "Commit").
// Blocks at most `timeout`, and until `calls` is cancelled. Errors: the server's; UNAVAILABLE (no connection, broken
// connection); DEADLINE_EXCEEDED; CANCELLED (by `calls`).
template <class Stub, class Interface, class Request, class Response>
absl::Status CallUnary(Stub* stub, grpc::Status (Interface::*method)(grpc::ClientContext*, const Request&, Response*),
                       const Request& request, Response* response, absl::Duration timeout, OpenCalls* calls,
                       const char* name) {
  grpc::ClientContext context;
  context.set_deadline(CallDeadline(timeout));
  if (!calls->Add(&context)) return absl::CancelledError("the client is shutting down");
  const grpc::Status status = (stub->*method)(&context, request, response);
  calls->Remove(&context);
  return FromGrpcStatus(status, name, calls->cancelled());
}

}  // namespace leeway

#endif  // LEEWAY_RPC_UNARY_CALL_H_
