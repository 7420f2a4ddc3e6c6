#include "rpc/channel.h"

#include "base/status_macros.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/support/channel_arguments.h"
#include "rpc/address.h"
#include "rpc/grpc_log.h"
#include "rpc/security/grpc_credentials.h"

namespace leeway {

absl::StatusOr<std::shared_ptr<grpc::Channel>> OpenChannel(const std::string& target,
                                                           const ConnectionOptions& options) {
  LEEWAY_ASSIGN_OR_RETURN(RpcAddress address, ParseRpcAddress(target));
  if (!address.is_unix() && address.port == 0) {
    return absl::InvalidArgumentError("address \"" + target + "\": a client needs the server's port, not 0");
  }
  LEEWAY_RETURN_IF_ERROR(CheckClientSecurity(address, options.security));
  // What a server on this machine listens on may be all of its addresses; dialled is one of them.
  if (address.is_wildcard()) address.host = address.host == "::" ? "::1" : "127.0.0.1";
  RouteGrpcLog();
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(options.max_message_bytes);
  arguments.SetMaxSendMessageSize(options.max_message_bytes);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, absl::ToInt64Milliseconds(options.keepalive_time));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, absl::ToInt64Milliseconds(options.keepalive_timeout));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
  // Despite its name the time that one attempt to connect may take: a loaded machine needs more than its floor of 100
  // ms.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 2'000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1'000);
  // A proxy of the environment has no business between the parts of a job; an own subchannel keeps channels'
  // connections apart.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel(address.ToString(), MakeChannelCredentials(address, options.security), arguments);
}

}  // namespace leeway
