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
// environment. Failpoints (fault.<role>, and LEEWAY_FAILPOINTS_<ROLE> of `environment`, which wins) are armed in a
// process's first life only, so that what they kill can come back. `binaries`: the folder of the role binaries.
std::vector<Supervisor::Child> PlanChildren(const Config& config, const RunPaths& paths, const std::string& binaries,
                                            const std::map<std::string, std::string>& environment);

// The folder of this program's own executable, where the role binaries lie too. NOT_FOUND names the ones that are
// missing.
absl::StatusOr<std::string> FindBinaries();

SupervisionOptions SupervisionOptionsOf(const Config& config);

// This process's environment.
std::map<std::string, std::string> ProcessEnvironment();

}  // namespace leeway

#endif  // LEEWAY_LAUNCH_RUN_LAUNCH_PLAN_H_
