#ifndef LEEWAY_RPC_STREAMS_STREAM_HANDLER_H_
#define LEEWAY_RPC_STREAMS_STREAM_HANDLER_H_

#include <cstddef>

#include "absl/status/status.h"

namespace leeway {

// What one end of a stream does with what arrives. One call at a time, in order; OnEnd is the last. No gRPC here:
// handlers are tested by calling them. Must not block for long: it holds up its stream, and a thread.
template <class Incoming>
class StreamHandler {
 public:
  virtual ~StreamHandler() = default;

  // The next message, which may be moved from. The one after it is read when this returns.
  virtual void OnMessage(Incoming* message) = 0;
  // After a Write that was refused because too many were waiting: there is room again. May come while another call is
  // running; only nudges.
  virtual void OnWritable() {}
  // The peer will send nothing more. A server's stream stays open until it is finished.
  virtual void OnHalfClose() {}
  // The stream is over: with the server's status at a client, with what ended it at a server.
  virtual void OnEnd(const absl::Status& status) = 0;
};

struct StreamOptions {
  // Messages waiting to be written; Write refuses more.
  size_t max_queued_writes = 64;
};

}  // namespace leeway

#endif  // LEEWAY_RPC_STREAMS_STREAM_HANDLER_H_
