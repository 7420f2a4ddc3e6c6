#ifndef LEEWAY_LAUNCH_REPORT_RUN_REPORT_H_
#define LEEWAY_LAUNCH_REPORT_RUN_REPORT_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launch/report/metrics_file.h"
#include "launch/report/process_samples.h"
#include "nlohmann/json.hpp"

namespace leeway {

// What happened in a run, from the files of its directory alone. A plain value.
struct RunReport {
  std::string directory;
  std::string name;
  std::vector<MetricsLine> lines;
  std::vector<ProcessSample> samples;
  // summary.json of the launcher's last life; null if there is none (still running, or killed).
  nlohmann::json summary;

  int64_t steps = 0;
  int64_t total_steps = 0;
  int64_t budget = 0;  // 0 in mode sync
  double wall_s = 0;
  // Steps that changed no weight, because something in them was not finite.
  int64_t skipped_steps = 0;
  struct Evaluation {
    int64_t version = 0;
    double reward = 0;
    int64_t episodes = 0;
  };
  std::vector<Evaluation> evaluations;
  std::optional<double> first_reward;  // means over the first and last tenth of the steps
  std::optional<double> last_reward;
  // Trained tokens by lag, whole run.
  std::vector<int64_t> lag_histogram;
  int64_t lag_max = 0;
  double lag_mean = 0;
  double trained_tokens = 0;
  double generated_tokens = 0;
  // role -> "wait:cause" or "busy:phase" -> seconds, over all processes of the role.
  std::map<std::string, std::map<std::string, double>> state_seconds;
  // role -> "total" and thread classes -> seconds.
  std::map<std::string, std::map<std::string, double>> cpu_seconds;
  // role -> share of the processes' wall time that no state covers; the worst process counts.
  std::map<std::string, double> unaccounted_share;
  // Newest ledger/* values by name without the prefix.
  std::map<std::string, int64_t> ledger;
  // issued_total is the sum of the states, in every line; the lines' steps ascend.
  bool conservation_holds = true;
  std::string conservation_breach;  // the first one

  // Largest evaluation; nullopt without any.
  std::optional<double> best_evaluation() const;
  std::optional<double> last_evaluation() const;
};

// NOT_FOUND: `directory` holds no run.
absl::StatusOr<RunReport> ReadRunReport(const std::string& directory);
// The same from lines that are at hand (directory, name and configuration stay empty).
RunReport ReportOfLines(std::vector<MetricsLine> lines, std::vector<ProcessSample> samples);

// For machines: `leeway inspect --json`.
nlohmann::ordered_json ReportJson(const RunReport& report);
// For people: `leeway inspect`.
std::string ReportText(const RunReport& report);

}  // namespace leeway

#endif  // LEEWAY_LAUNCH_REPORT_RUN_REPORT_H_
