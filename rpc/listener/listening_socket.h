#ifndef LEEWAY_RPC_LISTENER_LISTENING_SOCKET_H_
#define LEEWAY_RPC_LISTENER_LISTENING_SOCKET_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "rpc/address.h"

namespace leeway {

// A socket that listens, made by hand instead of by gRPC, so that a socket file is only this user's from its first
// moment, an error says the system's reason, and no live server is displaced. Closes it, and removes its socket file,
// when it dies. Thread-compatible; never blocks, but for the look-up of a host's name.
class ListeningSocket {
 public:
  // INVALID_ARGUMENT: no such host here, or the socket's folder may be written by other users (who could put a server
  // of theirs in its place). ALREADY_EXISTS: a live server has the port or the socket file, or the file is no socket.
  // UNAVAILABLE: the system's reason. A dead server's socket file is replaced.
  static absl::StatusOr<ListeningSocket> Open(const RpcAddress& address);
  ListeningSocket(ListeningSocket&& other) noexcept;
  ListeningSocket& operator=(ListeningSocket&&) = delete;
  ~ListeningSocket();

  int fd() const { return fd_; }
  // With the real port where 0 was asked for.
  const RpcAddress& address() const { return address_; }

 private:
  ListeningSocket(RpcAddress address, int fd) : address_(std::move(address)), fd_(fd) {}

  RpcAddress address_;
  int fd_;
  // Of the socket file: another one of that name is another server's.
  uint64_t inode_ = 0;
};

// INVALID_ARGUMENT if users other than this one and root may rename or remove this user's files in `folder`;
// UNAVAILABLE if it cannot be looked at.
absl::Status CheckSocketFolder(const std::string& folder);

}  // namespace leeway

#endif  // LEEWAY_RPC_LISTENER_LISTENING_SOCKET_H_
