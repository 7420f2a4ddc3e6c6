#include "rpc/server.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "grpcpp/ext/health_check_service_server_builder_option.h"
#include "grpcpp/health_check_service_interface.h"
#include "grpcpp/server_builder.h"
#include "rpc/address.h"
#include "rpc/grpc_log.h"
#include "rpc/request_errors.h"
#include "rpc/security/grpc_credentials.h"

namespace leeway {
namespace {

using ExternalAcceptor = grpc::experimental::ExternalConnectionAcceptor;

void SetOptions(const ConnectionOptions& options, const ServerLimits& limits, grpc::ServerBuilder* builder) {
  builder->SetMaxReceiveMessageSize(options.max_message_bytes);
  builder->SetMaxSendMessageSize(options.max_message_bytes);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, limits.max_streams);
  builder->AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, limits.max_metadata_bytes);
  builder->AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
                              absl::ToInt64Milliseconds(limits.connections.handshake_timeout));
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, absl::ToInt64Milliseconds(options.keepalive_time));
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, absl::ToInt64Milliseconds(options.keepalive_timeout));
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // Half of what clients do: timers are never exact.
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                              absl::ToInt64Milliseconds(options.keepalive_time / 2));
}

}  // namespace

absl::StatusOr<std::unique_ptr<RpcServer>> RpcServer::Start(const std::string& address,
                                                            const std::vector<grpc::Service*>& services,
                                                            const ConnectionOptions& options,
                                                            const ServerLimits& limits) {
  LEEWAY_ASSIGN_OR_RETURN(const RpcAddress parsed, ParseRpcAddress(address));
  LEEWAY_RETURN_IF_ERROR(CheckServerSecurity(parsed, options.security));
  LEEWAY_ASSIGN_OR_RETURN(ListeningSocket socket, ListeningSocket::Open(parsed));
  const std::string listens_on = socket.address().ToString();

  RouteGrpcLog();
  // For the servers built from here on.
  grpc::EnableDefaultHealthCheckService(true);
  grpc::ServerBuilder builder;
  SetOptions(options, limits, &builder);
  for (grpc::Service* service : services) builder.RegisterService(service);
  std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> interceptors;
  interceptors.push_back(MakeRequestErrorNamer());
  builder.experimental().SetInterceptorCreators(std::move(interceptors));
  // gRPC is given connections, not a port: who may connect is decided before it sees a byte.
  std::shared_ptr<ExternalAcceptor> hand = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
      MakeServerCredentials(parsed, options.security));
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) return absl::InternalError(absl::StrCat("gRPC makes no server for ", listens_on));

  std::unique_ptr<RpcServer> made(new RpcServer(listens_on, std::move(server)));
  const ConnectionAcceptor::Options door{limits.connections, !parsed.is_unix() && !options.security.tls.empty(),
                                         geteuid()};
  MutexLock lock(&made->mutex_);
  LEEWAY_ASSIGN_OR_RETURN(made->acceptor_, ConnectionAcceptor::Start(std::move(socket), door, [hand](int fd) {
                            ExternalAcceptor::NewConnectionParameters connection;
                            connection.fd = fd;
                            hand->HandleNewConnection(&connection);
                          }));
  return made;
}

RpcServer::RpcServer(std::string address, std::unique_ptr<grpc::Server> server)
    : address_(std::move(address)), server_(std::move(server)) {}

RpcServer::~RpcServer() { Shutdown(absl::ZeroDuration()); }

void RpcServer::SetServing(const std::string& service, bool serving) {
  server_->GetHealthCheckService()->SetServingStatus(service, serving);
}

void RpcServer::Shutdown(absl::Duration grace) {
  {
    MutexLock lock(&mutex_);
    // First: gRPC would leak connections that come when it is shut down.
    acceptor_.reset();
  }
  server_->GetHealthCheckService()->SetServingStatus(false);
  const auto limit = std::max(absl::ToChronoMilliseconds(grace), std::chrono::milliseconds(0));
  server_->Shutdown(std::chrono::system_clock::now() + limit);
}

}  // namespace leeway
