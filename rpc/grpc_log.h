#ifndef LEEWAY_RPC_GRPC_LOG_H_
#define LEEWAY_RPC_GRPC_LOG_H_

namespace leeway {

// Sends what gRPC has to say to the process log (base/logging.h) instead of to stderr, its errors as warnings: what
// they mean for us is said by the status of a call. Called by everything in rpc/ that makes a channel or a server; only
// the first call does something. Thread-safe.
void RouteGrpcLog();

}  // namespace leeway

#endif  // LEEWAY_RPC_GRPC_LOG_H_
