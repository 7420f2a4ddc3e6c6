#ifndef LEEWAY_RPC_CHANNEL_H_
#define LEEWAY_RPC_CHANNEL_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "grpcpp/channel.h"
#include "rpc/security/connection_security.h"

namespace leeway {

// What both ends of a connection must agree on, so it is one struct for channels and servers (rpc/server.h). A client
// that pings more often than its server allows is thrown out; the defaults agree.
struct ConnectionOptions {
  // Largest single message. Larger things are cut into chunks (rpc/chunks.h) of a quarter of this or less.
  int max_message_bytes = 4 << 20;
  // A silent peer is pinged after `keepalive_time` and given up after `keepalive_timeout` more.
  absl::Duration keepalive_time = absl::Seconds(20);
  absl::Duration keepalive_timeout = absl::Seconds(10);
  // How the ends of a TCP connection know each other; a unix socket needs none of it.
  ConnectionSecurity security;
};

// A channel of its own connection to `target` ("unix:/path" or "host:port", see rpc/address.h). Does not block:
// connects at the first call and again after a break, 50 ms to 1 s apart. Over TCP every call carries the token of
// `options.security`. INVALID_ARGUMENT: no such kind of target, or one beyond loopback without TLS. Thread-safe.
absl::StatusOr<std::shared_ptr<grpc::Channel>> OpenChannel(const std::string& target,
                                                           const ConnectionOptions& options = {});

}  // namespace leeway

#endif  // LEEWAY_RPC_CHANNEL_H_
