#include "rpc/listener/listening_socket.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace leeway {
namespace {

// More than arrive between two looks of the acceptor; the kernel caps it at its own limit.
constexpr int kBacklog = 512;

std::string Where(const RpcAddress& address) { return absl::StrCat("cannot listen on ", address.ToString(), ": "); }

absl::Status SystemError(const RpcAddress& address, int error) {
  if (error == EADDRINUSE && !address.is_unix()) {
    return absl::AlreadyExistsError(absl::StrCat(
        Where(address), "the port is in use; stop the other server, or choose another port (0 = any free one)"));
  }
  return absl::UnavailableError(absl::StrCat(Where(address), std::strerror(error)));
}

// Makes room for the socket file: what a dead server left is removed, everything else stays.
absl::Status RemoveDeadSocket(const RpcAddress& address) {
  struct stat info = {};
  if (lstat(address.unix_path.c_str(), &info) != 0) return absl::OkStatus();
  if (!S_ISSOCK(info.st_mode)) {
    return absl::AlreadyExistsError(absl::StrCat(Where(address), "the file exists and is no socket"));
  }
  if (IsSocketServed(address.unix_path)) {
    return absl::AlreadyExistsError(absl::StrCat(Where(address), "another server is listening there"));
  }
  return unlink(address.unix_path.c_str()) == 0 || errno == ENOENT ? absl::OkStatus() : SystemError(address, errno);
}

absl::StatusOr<int> OpenUnix(const RpcAddress& address) {
  LEEWAY_RETURN_IF_ERROR(CheckSocketFolder(address.unix_path.substr(0, address.unix_path.rfind('/') + 1)));
  LEEWAY_RETURN_IF_ERROR(RemoveDeadSocket(address));
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return SystemError(address, errno);
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  address.unix_path.copy(name.sun_path, sizeof(name.sun_path) - 1);
  // Before bind, which gives the file the socket's mode: there is no moment at which others could open it.
  if (fchmod(fd, 0600) == 0 && bind(fd, reinterpret_cast<const sockaddr*>(&name), sizeof(name)) == 0 &&
      chmod(address.unix_path.c_str(), 0600) == 0) {
    return fd;
  }
  const int error = errno;
  close(fd);
  return SystemError(address, error);
}

absl::StatusOr<int> OpenTcp(const RpcAddress& address) {
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  // Clients that are told localhost try 127.0.0.1 too.
  const std::string host = address.host == "localhost" ? "127.0.0.1" : address.host;
  const int failure = getaddrinfo(host.c_str(), std::to_string(address.port).c_str(), &hints, &found);
  if (failure != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(Where(address), "host \"", address.host, "\": ", gai_strerror(failure)));
  }
  const absl::Cleanup freer = [found] { freeaddrinfo(found); };
  const int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return SystemError(address, errno);
  const int on = 1, off = 0;
  // A restarted server takes its port back although old connections still linger; never that of a live one.
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (found->ai_family == AF_INET6 && address.is_wildcard())
    setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
  if (bind(fd, found->ai_addr, found->ai_addrlen) == 0) return fd;
  const int error = errno;
  close(fd);
  return SystemError(address, error);
}

int PortOf(int fd) {
  sockaddr_storage name = {};
  socklen_t size = sizeof(name);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&name), &size) != 0) return 0;
  return ntohs(name.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6*>(&name)->sin6_port
                                          : reinterpret_cast<const sockaddr_in*>(&name)->sin_port);
}

}  // namespace

absl::Status CheckSocketFolder(const std::string& folder) {
  struct stat info = {};
  if (stat(folder.c_str(), &info) != 0)
    return absl::UnavailableError(absl::StrCat("the socket's folder ", folder, ": ", std::strerror(errno)));
  if (!S_ISDIR(info.st_mode)) return absl::UnavailableError(absl::StrCat(folder, " is no folder"));
  // In a folder such as /tmp (sticky) others may add files, but not touch this user's.
  const bool is_safe = (info.st_mode & 022) == 0 || (info.st_mode & S_ISVTX) != 0;
  if (is_safe && (info.st_uid == geteuid() || info.st_uid == 0)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "the socket's folder ", folder,
      " belongs to others or may be written by them, who could put a server of theirs in its place; use a folder of "
      "your own: "
      "mkdir -m 700 DIR"));
}

absl::StatusOr<ListeningSocket> ListeningSocket::Open(const RpcAddress& address) {
  LEEWAY_ASSIGN_OR_RETURN(const int fd, address.is_unix() ? OpenUnix(address) : OpenTcp(address));
  ListeningSocket made(address, fd);
  if (listen(fd, kBacklog) != 0) return SystemError(address, errno);
  struct stat info = {};
  if (address.is_unix()) {
    if (stat(address.unix_path.c_str(), &info) == 0) made.inode_ = info.st_ino;
  } else {
    made.address_.port = PortOf(fd);
  }
  return made;
}

ListeningSocket::ListeningSocket(ListeningSocket&& other) noexcept
    : address_(std::move(other.address_)), fd_(std::exchange(other.fd_, -1)), inode_(other.inode_) {}

ListeningSocket::~ListeningSocket() {
  if (fd_ < 0) return;
  close(fd_);
  struct stat info = {};
  if (address_.is_unix() && lstat(address_.unix_path.c_str(), &info) == 0 && info.st_ino == inode_)
    unlink(address_.unix_path.c_str());
}

}  // namespace leeway
