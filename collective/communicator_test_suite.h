#ifndef LEEWAY_COLLECTIVE_COMMUNICATOR_TEST_SUITE_H_
#define LEEWAY_COLLECTIVE_COMMUNICATOR_TEST_SUITE_H_

// What every implementation of Communicator must do, as functions that each rank runs, whether it is a thread or a
// process. Expected values are written out for up to four ranks and not taken from the code under test.

#include <ostream>
#include <vector>

#include "absl/status/status.h"
#include "collective/communicator.h"

namespace leeway {

struct CommunicatorCheck {
  const char* name;
  // On all ranks of a fresh communicator of 1 to 4 ranks named "ranks". OK, or what is wrong.
  absl::Status (*run)(Communicator* communicator);
};
// What a failed test prints of its parameter.
inline void PrintTo(const CommunicatorCheck& check, std::ostream* out) { *out << check.name; }

const std::vector<CommunicatorCheck>& CommunicatorChecks();

}  // namespace leeway

#endif  // LEEWAY_COLLECTIVE_COMMUNICATOR_TEST_SUITE_H_
