#ifndef LEEWAY_COLLECTIVE_CPU_RANK_ADDRESS_H_
#define LEEWAY_COLLECTIVE_CPU_RANK_ADDRESS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace leeway {

// What a rank leaves in the rendezvous store: of how many it is one, which process it is, and where it listens for each
// of the others.
struct RankAddresses {
  int size = 0;
  std::string process;
  std::vector<std::string> addresses;  // any bytes, by rank

  std::string Encode() const;
  // DATA_LOSS for anything that Encode did not write.
  static absl::StatusOr<RankAddresses> Decode(absl::string_view text);
};

// The numeric address of a network interface ("eth0"), IPv4 before IPv6; the loopback address for an empty name.
// NOT_FOUND names the interfaces that there are.
absl::StatusOr<std::string> InterfaceAddress(absl::string_view interface);

}  // namespace leeway

#endif  // LEEWAY_COLLECTIVE_CPU_RANK_ADDRESS_H_
