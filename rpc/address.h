#ifndef LEEWAY_RPC_ADDRESS_H_
#define LEEWAY_RPC_ADDRESS_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace leeway {

// Where a server listens or a channel connects, as configurations write it:
//
//   unix:/run/queue.sock     a socket file, absolute path of at most 107 bytes (the kernel's limit)
//   127.0.0.1:5000           loopback (also localhost and [::1]); port 0 = any free one, for servers only
//   node-3:5000, 0.0.0.0:5000, [2001:db8::7]:5000
//                            other machines; 0.0.0.0 and [::] mean all of this one's addresses
//
// What may be served or dialled there is rpc/security/connection_security.h's business.
struct RpcAddress {
  // The socket's path; empty for TCP.
  std::string unix_path;
  // Host without brackets; empty for a socket file.
  std::string host;
  int port = 0;

  bool is_unix() const { return !unix_path.empty(); }
  // TCP that only this machine can reach.
  bool is_loopback() const;
  // All addresses of this machine: something to listen on.
  bool is_wildcard() const { return host == "0.0.0.0" || host == "::"; }
  // As gRPC wants it: "unix:/path", "127.0.0.1:5000", "[::1]:5000".
  std::string ToString() const;
};

// INVALID_ARGUMENT says what is wrong with the text and what is expected.
absl::StatusOr<RpcAddress> ParseRpcAddress(const std::string& text);

// A name as DNS has them: labels of letters, digits and hyphens between dots.
bool IsHostName(const std::string& text);

// Somebody listens on this socket file. Does not block.
bool IsSocketServed(const std::string& unix_path);

}  // namespace leeway

#endif  // LEEWAY_RPC_ADDRESS_H_
