#ifndef LEEWAY_RPC_SERVER_H_
#define LEEWAY_RPC_SERVER_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "grpcpp/impl/codegen/service_type.h"
#include "grpcpp/server.h"
#include "rpc/channel.h"
#include "rpc/listener/connection_acceptor.h"

namespace leeway {

// What a server takes, before it looks at what a call brings. Announced to clients in the handshake.
struct ServerLimits {
  ConnectionLimits connections;
  // Calls open at the same time on one connection; more wait at the client.
  int max_streams = 256;
  // All headers of one call.
  int max_metadata_bytes = 16 << 10;
};

// A listening gRPC server, which also answers grpc.health.v1. Services (callback API) must outlive it. Thread-safe.
//
// Who gets in: on a unix socket processes of this user (and root), asked of the kernel at every connection. On TCP who
// has a token of the role that the method needs (rpc/security/method_roles.h), with TLS and a certificate of the
// configured authority wherever other machines can reach the port. All of it is checked before a service sees the call
// and before a request is parsed.
class RpcServer {
 public:
  // Listens on `address` (rpc/address.h) and serves. Errors: INVALID_ARGUMENT (no such address; an address that
  // `options.security` is not enough for; a socket in a folder that others may write), ALREADY_EXISTS (the port or the
  // socket is taken by a live server; a dead server's socket file is replaced), UNAVAILABLE (the system refuses, with
  // its reason).
  static absl::StatusOr<std::unique_ptr<RpcServer>> Start(const std::string& address,
                                                          const std::vector<grpc::Service*>& services,
                                                          const ConnectionOptions& options = {},
                                                          const ServerLimits& limits = {});
  // Shuts down without grace.
  ~RpcServer();
  RpcServer(const RpcServer&) = delete;
  RpcServer& operator=(const RpcServer&) = delete;

  // What clients connect to; has the real port when 0 was asked for.
  const std::string& address() const { return address_; }

  // What grpc.health.v1 answers for `service` ("leeway.v1.Queue"); NOT_FOUND until the first call. The server as a
  // whole (the empty name) serves from Start to Shutdown.
  void SetServing(const std::string& service, bool serving);

  // Takes no new connections and calls, gives open ones `grace` to end, then cancels them, and returns when all
  // reactors are gone. Reactors that finish on cancel (those of rpc/streams do) make this quick. Calling it again does
  // nothing.
  void Shutdown(absl::Duration grace) LEEWAY_EXCLUDES(mutex_);

 private:
  RpcServer(std::string address, std::unique_ptr<grpc::Server> server);

  const std::string address_;
  const std::unique_ptr<grpc::Server> server_;
  Mutex mutex_;
  // Null after Shutdown.
  std::unique_ptr<ConnectionAcceptor> acceptor_ LEEWAY_GUARDED_BY(mutex_);
};

}  // namespace leeway

#endif  // LEEWAY_RPC_SERVER_H_
