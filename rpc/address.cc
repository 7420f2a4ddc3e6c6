#include "rpc/address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace leeway {
namespace {

constexpr char kExpected[] = "expected unix:/absolute/path, 127.0.0.1:PORT or HOST:PORT";

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
  address.host = std::string(host);
  in6_addr ignored;
  const bool is_v6 = inet_pton(AF_INET6, address.host.c_str(), &ignored) == 1;
  if (!is_v6 && !IsHostName(address.host)) {
    return absl::InvalidArgumentError(
        absl::StrCat("address \"", text, "\": \"", host, "\" is no host's name and no address; ", kExpected));
  }
  return address;
}

bool RpcAddress::is_loopback() const {
  if (host == "localhost" || host == "::1") return true;
  in_addr v4;
  return inet_pton(AF_INET, host.c_str(), &v4) == 1 && (ntohl(v4.s_addr) >> 24) == 127;
}

bool IsHostName(const std::string& text) {
  constexpr size_t kLongestName = 253, kLongestLabel = 63;
  if (text.empty() || text.size() > kLongestName) return false;
  for (const absl::string_view label : absl::StrSplit(text, '.')) {
    if (label.empty() || label.size() > kLongestLabel || label.front() == '-' || label.back() == '-') return false;
    for (const char c : label) {
      if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) && c != '-') return false;
    }
  }
  return true;
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
