#ifndef LEEWAY_RPC_LISTENER_CONNECTION_ACCEPTOR_H_
#define LEEWAY_RPC_LISTENER_CONNECTION_ACCEPTOR_H_

#include <sys/types.h>

#include <functional>
#include <memory>
#include <thread>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "rpc/listener/listening_socket.h"

namespace leeway {

// What a server takes of connections.
struct ConnectionLimits {
  // Open connections in all, and of one peer: an IP address, or a process behind a unix socket. At most half of the
  // process's open files are given to connections, whatever is said here.
  size_t max_connections = 1024;
  size_t max_connections_per_peer = 640;
  // From connecting to the first bytes, and again to the end of TLS's and HTTP/2's handshakes.
  absl::Duration handshake_timeout = absl::Seconds(10);
};

// The door of a server: accepts connections, shows out strangers, and hands the others over to gRPC. Refused are
//   - on a unix socket: processes of other users (SO_PEERCRED), root excepted;
//   - connections beyond the limits;
//   - on TCP: who says nothing in time, or speaks another language than the port does. A plaintext client of a TLS port
//     is told so in HTTP/2 before it is hung up on.
// Each refusal is a line in the log, at most one a second for each cause (the next one says how many were left out).
//
// Threads: one of its own (class "rpc"), which never blocks but in poll.
class ConnectionAcceptor {
 public:
  // Takes over the connected, non-blocking socket. On the acceptor's thread.
  using HandOver = std::function<void(int fd)>;

  struct Options {
    ConnectionLimits limits;
    // TCP only: what clients have to speak.
    bool expects_tls = false;
    // Who may use a unix socket.
    uid_t own_uid = 0;
  };

  // UNAVAILABLE: the system has no descriptors left.
  static absl::StatusOr<std::unique_ptr<ConnectionAcceptor>> Start(ListeningSocket socket, const Options& options,
                                                                   HandOver hand_over);
  // Joins the thread; closes the socket and what was not handed over.
  ~ConnectionAcceptor();
  ConnectionAcceptor(const ConnectionAcceptor&) = delete;
  ConnectionAcceptor& operator=(const ConnectionAcceptor&) = delete;

 private:
  class Loop;
  explicit ConnectionAcceptor(std::unique_ptr<Loop> loop);

  const std::unique_ptr<Loop> loop_;
  std::thread thread_;
};

}  // namespace leeway

#endif  // LEEWAY_RPC_LISTENER_CONNECTION_ACCEPTOR_H_
