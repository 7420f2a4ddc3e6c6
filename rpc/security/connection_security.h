#ifndef LEEWAY_RPC_SECURITY_CONNECTION_SECURITY_H_
#define LEEWAY_RPC_SECURITY_CONNECTION_SECURITY_H_

#include <string>

#include "absl/status/statusor.h"
#include "rpc/address.h"
#include "rpc/security/certificates.h"
#include "rpc/security/role_tokens.h"

namespace leeway {

// How the two ends of a TCP connection know each other. A unix socket needs none of it: there the kernel says who the
// peer is, and only this user (or root) gets in.
struct ConnectionSecurity {
  // Both ends prove who they are with certificates of one authority. Without TLS only loopback is served and dialled.
  TlsTexts tls;
  // Servers: who may call what. Clients: the one of `role` is sent with every call.
  RoleTokens tokens;
  // Clients only.
  Role role = Role::kPush;
};

// The files that a configuration names; empty: none.
struct SecurityFiles {
  std::string certificate;
  std::string key;
  std::string authority;
  std::string token_file;
};

// Reads and checks them. Errors begin with the field ("key: ...") and say what would mend it: INVALID_ARGUMENT
// (certificate, key and authority go together; contents), NOT_FOUND, PERMISSION_DENIED (others may read the key or the
// tokens). Blocking file I/O.
absl::StatusOr<ConnectionSecurity> LoadSecurity(const SecurityFiles& files);

// OK if a server may listen on `address`, else INVALID_ARGUMENT with the remedy: TCP needs a token of every role,
// addresses beyond loopback need TLS too.
absl::Status CheckServerSecurity(const RpcAddress& address, const ConnectionSecurity& security);
// OK if a client may connect to `address`: nothing but loopback is dialled without TLS.
absl::Status CheckClientSecurity(const RpcAddress& address, const ConnectionSecurity& security);

}  // namespace leeway

#endif  // LEEWAY_RPC_SECURITY_CONNECTION_SECURITY_H_
