#include "rpc/server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server_builder.h"
#include "rpc/address.h"
#include "rpc/grpc_log.h"

namespace leeway {
namespace {

// Refuses a socket file behind which somebody answers: gRPC would unlink it and take its place without a word.
absl::Status CheckSocketFileIsFree(const RpcAddress& address) {
  if (!IsSocketServed(address.unix_path)) return absl::OkStatus();
  return absl::AlreadyExistsError(
      absl::StrCat("cannot listen on ", address.ToString(), ": another server is listening there"));
}

// gRPC says only that binding failed; binding once more by hand gives the system's reason.
absl::Status ExplainBindFailure(const RpcAddress& address) {
  int error = 0;
  if (address.is_unix()) {
    const std::string folder = address.unix_path.substr(0, address.unix_path.rfind('/') + 1);
    if (access(folder.c_str(), W_OK) != 0) error = errno;
  } else {
    const bool is_v6 = address.host == "::1";
    const int fd = socket(is_v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int result = -1;
    if (is_v6) {
      sockaddr_in6 name{};
      name.sin6_family = AF_INET6;
      name.sin6_addr = in6addr_loopback;
      name.sin6_port = htons(address.port);
      result = bind(fd, reinterpret_cast<const sockaddr*>(&name), sizeof(name));
    } else {
      sockaddr_in name{};
      name.sin_family = AF_INET;
      name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      name.sin_port = htons(address.port);
      result = bind(fd, reinterpret_cast<const sockaddr*>(&name), sizeof(name));
    }
    if (result != 0) error = errno;
    if (fd >= 0) close(fd);
  }
  const std::string where = absl::StrCat("cannot listen on ", address.ToString(), ": ");
  if (error == EADDRINUSE) {
    return absl::AlreadyExistsError(
        absl::StrCat(where, "the port is in use; stop the other server, or choose another port (0 = any free one)"));
  }
  return absl::UnavailableError(absl::StrCat(where, error == 0 ? "refused" : std::strerror(error)));
}

}  // namespace

absl::StatusOr<std::unique_ptr<RpcServer>> RpcServer::Start(const std::string& address,
                                                            const std::vector<grpc::Service*>& services,
                                                            const ConnectionOptions& options) {
  LEEWAY_ASSIGN_OR_RETURN(RpcAddress parsed, ParseRpcAddress(address));
  if (parsed.is_unix()) LEEWAY_RETURN_IF_ERROR(CheckSocketFileIsFree(parsed));

  RouteGrpcLog();
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort(parsed.ToString(), grpc::InsecureServerCredentials(), &port);
  builder.SetMaxReceiveMessageSize(options.max_message_bytes);
  builder.SetMaxSendMessageSize(options.max_message_bytes);
  // Two servers on one port would share its connections between them: an error here, never a surprise later.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, absl::ToInt64Milliseconds(options.keepalive_time));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, absl::ToInt64Milliseconds(options.keepalive_timeout));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // Half of what clients do: timers are never exact.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             absl::ToInt64Milliseconds(options.keepalive_time / 2));
  for (grpc::Service* service : services) builder.RegisterService(service);
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  // A socket file reports port 1 (0 when it could not be bound), TCP the port.
  if (server == nullptr || port <= 0) return ExplainBindFailure(parsed);
  if (!parsed.is_unix()) parsed.port = port;
  return std::unique_ptr<RpcServer>(new RpcServer(parsed.ToString(), std::move(server)));
}

RpcServer::RpcServer(std::string address, std::unique_ptr<grpc::Server> server)
    : address_(std::move(address)), server_(std::move(server)) {}

RpcServer::~RpcServer() { Shutdown(absl::ZeroDuration()); }

void RpcServer::Shutdown(absl::Duration grace) {
  const auto limit = std::max(absl::ToChronoMilliseconds(grace), std::chrono::milliseconds(0));
  server_->Shutdown(std::chrono::system_clock::now() + limit);
}

}  // namespace leeway
