#ifndef LEEWAY_RPC_SERVER_H_
#define LEEWAY_RPC_SERVER_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "grpcpp/impl/codegen/service_type.h"
#include "grpcpp/server.h"
#include "rpc/channel.h"

namespace leeway {

// A listening gRPC server. Services (callback API) must outlive it. Thread-safe.
class RpcServer {
 public:
  // Listens on `address` (rpc/address.h) and serves. Errors: INVALID_ARGUMENT (no such address), ALREADY_EXISTS (the
  // port or the socket is taken by a live server; a dead server's socket file is replaced), UNAVAILABLE (the system
  // refuses, with its reason).
  static absl::StatusOr<std::unique_ptr<RpcServer>> Start(const std::string& address,
                                                          const std::vector<grpc::Service*>& services,
                                                          const ConnectionOptions& options = {});
  // Shuts down without grace.
  ~RpcServer();
  RpcServer(const RpcServer&) = delete;
  RpcServer& operator=(const RpcServer&) = delete;

  // What clients connect to; has the real port when 0 was asked for.
  const std::string& address() const { return address_; }

  // Takes no new calls, gives open ones `grace` to end, then cancels them, and returns when all reactors are gone.
  // Reactors that finish on cancel (those of rpc/streams do) make this quick. Calling it again does nothing.
  void Shutdown(absl::Duration grace);

 private:
  RpcServer(std::string address, std::unique_ptr<grpc::Server> server);

  const std::string address_;
  const std::unique_ptr<grpc::Server> server_;
};

}  // namespace leeway

#endif  // LEEWAY_RPC_SERVER_H_
