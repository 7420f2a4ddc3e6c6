#ifndef LEEWAY_RPC_SECURITY_GRPC_CREDENTIALS_H_
#define LEEWAY_RPC_SECURITY_GRPC_CREDENTIALS_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/security/server_credentials.h"
#include "rpc/address.h"
#include "rpc/security/connection_security.h"

namespace leeway {

// ConnectionSecurity as gRPC takes it. Thread-safe.

// A unix socket: none (its acceptor has asked the kernel). TCP: mutual TLS if `security` has it, else plaintext that
// only loopback may use; in both cases every call is checked with CheckCall before the service, and before the request
// is parsed. The security must have passed CheckServerSecurity.
std::shared_ptr<grpc::ServerCredentials> MakeServerCredentials(const RpcAddress& address,
                                                               const ConnectionSecurity& security);

// The other end: sends the token of `security.role`, if there is one, with every call over TCP.
std::shared_ptr<grpc::ChannelCredentials> MakeChannelCredentials(const RpcAddress& address,
                                                                 const ConnectionSecurity& security);

// May a caller with this `authorization` header call `path`? UNAUTHENTICATED: no token, or nobody's. PERMISSION_DENIED:
// names the method, the role it needs and the caller's. UNIMPLEMENTED: no such method. Tokens are compared in constant
// time and are in no message; strangers do not learn which methods there are.
absl::Status CheckCall(const RoleTokens& tokens, absl::string_view path, absl::string_view authorization);

}  // namespace leeway

#endif  // LEEWAY_RPC_SECURITY_GRPC_CREDENTIALS_H_
