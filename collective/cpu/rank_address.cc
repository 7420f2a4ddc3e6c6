#include "collective/cpu/rank_address.h"

#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"

namespace leeway {

std::string RankAddresses::Encode() const {
  std::string text = absl::StrCat(size, "\n", process, "\n");
  for (const std::string& address : addresses) absl::StrAppend(&text, address.size(), "\n", address);
  return text;
}

absl::StatusOr<RankAddresses> RankAddresses::Decode(absl::string_view text) {
  const auto line = [&text]() {
    const size_t end = std::min(text.find('\n'), text.size());
    const absl::string_view result = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    return result;
  };
  RankAddresses result;
  if (!absl::SimpleAtoi(line(), &result.size)) return absl::DataLossError("not the addresses of a rank");
  result.process = std::string(line());
  while (!text.empty()) {
    size_t length = 0;
    if (!absl::SimpleAtoi(line(), &length) || length > text.size()) {
      return absl::DataLossError("the addresses of a rank are cut short");
    }
    result.addresses.emplace_back(text.substr(0, length));
    text.remove_prefix(length);
  }
  return result;
}

absl::StatusOr<std::string> InterfaceAddress(absl::string_view interface) {
  if (interface.empty()) return "127.0.0.1";
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return absl::InternalError(absl::StrCat("getifaddrs: ", std::strerror(errno)));
  std::string address;
  std::set<std::string> names;
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
      names.insert(entry->ifa_name);
      if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != family) continue;
      if (interface != entry->ifa_name || !address.empty()) continue;
      char text[NI_MAXHOST];
      const socklen_t length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
      if (getnameinfo(entry->ifa_addr, length, text, sizeof(text), nullptr, 0, NI_NUMERICHOST) == 0) address = text;
    }
  }
  freeifaddrs(list);
  if (!address.empty()) return address;
  return absl::NotFoundError(
      absl::StrCat("network interface \"", interface, "\" has no address; there are ", absl::StrJoin(names, ", ")));
}

}  // namespace leeway
