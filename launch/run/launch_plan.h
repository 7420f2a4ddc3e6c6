#ifndef LEEWAY_LAUNCH_RUN_LAUNCH_PLAN_H_
#define LEEWAY_LAUNCH_RUN_LAUNCH_PLAN_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launch/config/config.h"
#include "launch/run/run_directory.h"
#include "launch/supervision/supervisor.h"

namespace leeway {

// The processes of a run on this machine: queue, trainer, rollout workers, each with its command line, log and
// environment. `binaries`: the folder of the role binaries.
//
// Failpoints (base/failpoint.h) come from two variables of `environment`: LEEWAY_FAILPOINTS_<ROLE>_<RANK>, or else
// LEEWAY_FAILPOINTS_<ROLE>. Parts divided by ';' are for the first start, the first restart, and so on; further
// restarts have none, so that what is killed can come back. INVALID_ARGUMENT names a variable that can not be read.
absl::StatusOr<std::vector<Supervisor::Child>> PlanChildren(const Config& config, const RunPaths& paths,
                                                            const std::string& binaries,
                                                            const std::map<std::string, std::string>& environment);

// The folder of this program's own executable, where the role binaries lie too. NOT_FOUND names the ones that are
// missing.
absl::StatusOr<std::string> FindBinaries();

SupervisionOptions SupervisionOptionsOf(const Config& config);

// This process's environment.
std::map<std::string, std::string> ProcessEnvironment();

}  // namespace leeway

#endif  // LEEWAY_LAUNCH_RUN_LAUNCH_PLAN_H_
