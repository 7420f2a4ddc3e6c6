#include "rpc/address.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>

#include <sys/un.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace leeway {
namespace {

constexpr char kExpected[] = "expected unix:/absolute/path or 127.0.0.1:PORT";

// The kernel's sun_path holds a terminating zero.
constexpr size_t kMaxUnixPath = sizeof(sockaddr_un::sun_path) - 1;

}  // namespace

std::string RpcAddress::ToString() const {
  if (is_unix()) return absl::StrCat("unix:", unix_path);
  if (host.find(':') != std::string::npos) return absl::StrCat("[", host, "]:", port);
  return absl::StrCat(host, ":", port);
}

absl::StatusOr<RpcAddress> ParseRpcAddress(const std::string& text) {
  RpcAddress address;
  absl::string_view rest = text;
  if (absl::ConsumePrefix(&rest, "unix:")) {
    if (rest.empty() || rest[0] != '/') {
      return absl::InvalidArgumentError(
          absl::StrCat("address \"", text, "\": the socket's path is not absolute; ", kExpected));
    }
    if (rest.size() > kMaxUnixPath) {
      return absl::InvalidArgumentError(absl::StrCat("address \"", text, "\": the socket's path has ", rest.size(),
                                                     " bytes, the kernel takes ", kMaxUnixPath,
                                                     "; use a shorter directory"));
    }
    address.unix_path = std::string(rest);
    return address;
  }
  const size_t colon = rest.rfind(':');
  if (colon == absl::string_view::npos) {
    return absl::InvalidArgumentError(absl::StrCat("address \"", text, "\" has no port; ", kExpected));
  }
  absl::string_view host = rest.substr(0, colon);
  if (absl::ConsumePrefix(&host, "[") && !absl::ConsumeSuffix(&host, "]")) {
    return absl::InvalidArgumentError(absl::StrCat("address \"", text, "\": \"[\" without \"]\"; ", kExpected));
  }
  if (!absl::SimpleAtoi(rest.substr(colon + 1), &address.port) || address.port < 0 || address.port > 65535) {
    return absl::InvalidArgumentError(absl::StrCat("address \"", text, "\": \"", rest.substr(colon + 1),
                                                   "\" is no port between 0 and 65535; ", kExpected));
  }
  if (host != "127.0.0.1" && host != "localhost" && host != "::1") {
    return absl::InvalidArgumentError(absl::StrCat("address \"", text, "\": host \"", host,
                                                   "\" is not this machine's loopback; connections carry no "
                                                   "credentials, so others are refused; ",
                                                   kExpected));
  }
  address.host = std::string(host);
  return address;
}

bool IsSocketServed(const std::string& unix_path) {
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  std::strncpy(name.sun_path, unix_path.c_str(), sizeof(name.sun_path) - 1);
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return false;
  // EAGAIN: somebody listens and has not taken those before.
  const bool is_served = connect(fd, reinterpret_cast<const sockaddr*>(&name), sizeof(name)) == 0 || errno == EAGAIN;
  close(fd);
  return is_served;
}

}  // namespace leeway
