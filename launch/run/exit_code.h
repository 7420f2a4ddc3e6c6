#ifndef LEEWAY_LAUNCH_RUN_EXIT_CODE_H_
#define LEEWAY_LAUNCH_RUN_EXIT_CODE_H_

#include <string>

#include "absl/status/status.h"

namespace leeway {

// Exit codes of every leeway binary: scripts and schedulers act on them.
enum class ExitCode : int {
  kDone = 0,
  kOther = 1,
  kConfiguration = 2,
  kEnvironment = 3,  // a tool, library, port or right is missing on this machine
  kPeerLost = 4,
  kStalled = 5,
  kDataRefused = 6,
};

// What a role's final status means for its exit code:
//   OK 0 · INVALID_ARGUMENT, FAILED_PRECONDITION, OUT_OF_RANGE 2 · NOT_FOUND, ALREADY_EXISTS, PERMISSION_DENIED,
//   RESOURCE_EXHAUSTED 3 · UNAVAILABLE, ABORTED 4 · DEADLINE_EXCEEDED 5 · DATA_LOSS 6 · others (CANCELLED included) 1.
// A role returns ABORTED when it was fenced, so that its launcher starts it again.
ExitCode ExitCodeOf(const absl::Status& status);

// "0 (done)", "4 (peer lost)": for logs and summaries.
std::string Describe(ExitCode code);

}  // namespace leeway

#endif  // LEEWAY_LAUNCH_RUN_EXIT_CODE_H_
