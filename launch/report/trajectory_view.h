#ifndef LEEWAY_LAUNCH_REPORT_TRAJECTORY_VIEW_H_
#define LEEWAY_LAUNCH_REPORT_TRAJECTORY_VIEW_H_

#include <string>

#include "absl/status/statusor.h"

namespace leeway {

// The trajectories kept of a step (trajectories/step-N.jsonl), as text for a terminal: a block an episode with reward
// and versions, a row a span, and for sampled spans the log-probability of every token. NOT_FOUND names the steps that
// were kept.
std::string FormatTrajectories(const std::string& jsonl);
absl::StatusOr<std::string> ShowTrajectories(const std::string& run_directory, int64_t step);

}  // namespace leeway

#endif  // LEEWAY_LAUNCH_REPORT_TRAJECTORY_VIEW_H_
