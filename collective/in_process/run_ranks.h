#ifndef LEEWAY_COLLECTIVE_IN_PROCESS_RUN_RANKS_H_
#define LEEWAY_COLLECTIVE_IN_PROCESS_RUN_RANKS_H_

#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "collective/communicator.h"

namespace leeway {

// Runs body(rank, communicator) on `size` threads, one a rank, over one in-process group named "ranks", and returns
// what each returned, by rank. A rank that fails aborts the group, so that the others do not wait for it: they get
// ABORTED with its number and error. `timeout`: of one operation.
std::vector<absl::Status> RunRanks(int size, absl::Duration timeout,
                                   const std::function<absl::Status(int rank, Communicator* communicator)>& body);

// The same, as one status: OK if all are, else that of the rank that failed first.
absl::Status RunRanksToStatus(int size, absl::Duration timeout,
                              const std::function<absl::Status(int rank, Communicator* communicator)>& body);

}  // namespace leeway

#endif  // LEEWAY_COLLECTIVE_IN_PROCESS_RUN_RANKS_H_
