#ifndef LEEWAY_RPC_RETRYING_CALLER_H_
#define LEEWAY_RPC_RETRYING_CALLER_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "rpc/backoff.h"
#include "rpc/unary_call.h"

namespace leeway {

// A client's blocking calls of one service: its channel, its stub, how long it tries, and how all of them are ended.
// Thread-safe.
//
//   RetryingCaller<v1::Queue> caller(channel, absl::Seconds(5), seed);
//   caller.Call(&v1::Queue::Stub::Commit, request, &response, timeout, "Commit");
template <class Service>
class RetryingCaller {
 public:
  using Stub = typename Service::Stub;

  // `retry_for`: how long a call that finds nobody is tried again. `seed` tells the jitter of this client from that of
  // others.
  RetryingCaller(std::shared_ptr<grpc::Channel> channel, absl::Duration retry_for, uint64_t seed)
      : channel_(std::move(channel)), stub_(Service::NewStub(channel_)), retry_for_(retry_for), seed_(seed) {}

  // One try. Blocks at most `timeout`. Errors: those of CallUnary.
  template <class Request, class Response>
  absl::Status Once(grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                    const Request& request, Response* response, absl::Duration timeout, const char* name) {
    return CallUnary(stub_.get(), method, request, response, timeout, &calls_, name);
  }
  // Of an idempotent call: again and again while the server cannot be reached, for min(timeout, retry_for). All tries
  // together block at most `timeout`.
  template <class Request, class Response>
  absl::Status Call(grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                    const Request& request, Response* response, absl::Duration timeout, const char* name) {
    const Deadline deadline = Deadline::After(timeout);
    return RetryWithBackoff(
        BackoffPolicy(), seed_, Deadline::After(std::min(timeout, retry_for_)),
        [this](absl::Duration delay) { return calls_.Sleep(delay); },
        [&] {
          response->Clear();
          return Once(method, request, response, deadline.Remaining(), name);
        });
  }

  // Of a long poll that is idempotent: `attempt` gets what is left of `wait`, and is called again with what is left
  // then while the server cannot be reached, for min(that, retry_for) from the first time that it could not be.
  absl::Status Poll(absl::Duration wait, const std::function<absl::Status(absl::Duration left)>& attempt) {
    const Deadline deadline = Deadline::After(wait);
    const absl::Status first = attempt(wait);
    if (!IsRetryable(first) || !calls_.Sleep(std::min(BackoffPolicy().initial, deadline.Remaining()))) return first;
    const absl::Duration left = deadline.Remaining();
    if (left <= absl::ZeroDuration()) return first;
    return RetryWithBackoff(
        BackoffPolicy(), seed_, Deadline::After(std::min(left, retry_for_)),
        [this](absl::Duration delay) { return calls_.Sleep(delay); }, [&] { return attempt(deadline.Remaining()); });
  }

  Stub* stub() { return stub_.get(); }
  // For calls that are made by hand: streams.
  OpenCalls* calls() { return &calls_; }

 private:
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<Stub> stub_;
  OpenCalls calls_;
  const absl::Duration retry_for_;
  const uint64_t seed_;
};

}  // namespace leeway

#endif  // LEEWAY_RPC_RETRYING_CALLER_H_
