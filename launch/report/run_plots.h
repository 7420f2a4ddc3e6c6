#ifndef LEEWAY_LAUNCH_REPORT_RUN_PLOTS_H_
#define LEEWAY_LAUNCH_REPORT_RUN_PLOTS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launch/report/run_report.h"
#include "launch/report/svg_plot.h"

namespace leeway {

// The plots of `leeway inspect --plot NAME`, of one or several runs:
//   reward          training and held-out reward over steps
//   staleness       trained tokens by lag
//   waits           seconds of each process role by state
//   reward_vs_lag   held-out reward after 1/4, 1/2 and all of the steps, of several runs in order of their mean lag
// INVALID_ARGUMENT: another name; the message lists them.
absl::StatusOr<Plot> MakePlot(const std::string& name, const std::vector<RunReport>& reports);

}  // namespace leeway

#endif  // LEEWAY_LAUNCH_REPORT_RUN_PLOTS_H_
