#ifndef LEEWAY_RPC_LISTENER_PEER_H_
#define LEEWAY_RPC_LISTENER_PEER_H_

#include <sys/types.h>

#include <string>

namespace leeway {

// Who is at the other end of an accepted connection, as far as the kernel knows.
struct Peer {
  bool is_unix = false;
  // Unix sockets: whose process it is.
  uid_t uid = 0;
  pid_t pid = 0;
  // What connections are counted by: "127.0.0.1", or "process 4711".
  std::string key;
  // For the log: "127.0.0.1:51234", or "process 4711 of user 1000".
  std::string name;
};

// Of a connected socket. A peer that has gone already has an empty key.
Peer PeerOf(int fd);

// On a unix socket only this user and root get in. Everybody may knock on a TCP port: tokens are checked later.
bool IsWelcome(const Peer& peer, uid_t own_uid);

}  // namespace leeway

#endif  // LEEWAY_RPC_LISTENER_PEER_H_
