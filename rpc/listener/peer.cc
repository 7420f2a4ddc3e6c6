#include "rpc/listener/peer.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "absl/strings/str_cat.h"

namespace leeway {

Peer PeerOf(int fd) {
  Peer peer;
  sockaddr_storage name = {};
  socklen_t size = sizeof(name);
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&name), &size) != 0) return peer;
  char text[INET6_ADDRSTRLEN] = "";
  if (name.ss_family == AF_UNIX) {
    ucred credentials = {};
    socklen_t length = sizeof(credentials);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0) return peer;
    peer.is_unix = true;
    peer.uid = credentials.uid;
    peer.pid = credentials.pid;
    peer.key = absl::StrCat("process ", credentials.pid);
    peer.name = absl::StrCat(peer.key, " of user ", credentials.uid);
  } else if (name.ss_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(&name);
    peer.key = inet_ntop(AF_INET, &v4->sin_addr, text, sizeof(text));
    peer.name = absl::StrCat(peer.key, ":", ntohs(v4->sin_port));
  } else if (name.ss_family == AF_INET6) {
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&name);
    peer.key = inet_ntop(AF_INET6, &v6->sin6_addr, text, sizeof(text));
    peer.name = absl::StrCat("[", peer.key, "]:", ntohs(v6->sin6_port));
  }
  return peer;
}

bool IsWelcome(const Peer& peer, uid_t own_uid) { return !peer.is_unix || peer.uid == own_uid || peer.uid == 0; }

}  // namespace leeway
