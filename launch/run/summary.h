#ifndef LEEWAY_LAUNCH_RUN_SUMMARY_H_
#define LEEWAY_LAUNCH_RUN_SUMMARY_H_

#include <map>
#include <string>

#include "launch/report/run_report.h"
#include "launch/run/exit_code.h"
#include "nlohmann/json.hpp"

namespace leeway {

// How one life of the launcher ended.
struct JobEnd {
  ExitCode code = ExitCode::kOther;
  std::string reason;
  bool is_resume = false;
  int restarts = 0;
  double wall_s = 0;
  // CPU seconds of this life by process, all restarts together.
  std::map<std::string, double> cpu_seconds;
  // Failed episodes by code, of the queue's last answer.
  std::map<std::string, uint64_t> episode_failures;
};

// summary.json of a run.
nlohmann::ordered_json SummaryJson(const RunReport& report, const JobEnd& end);
// The closing words on the terminal.
std::string SummaryText(const RunReport& report, const JobEnd& end);

}  // namespace leeway

#endif  // LEEWAY_LAUNCH_RUN_SUMMARY_H_
