// The report for people.

#include <algorithm>
#include <cmath>

#include "fmt/format.h"
#include "launch/display/status_block.h"
#include "launch/report/run_report.h"

namespace leeway {
namespace {

std::string Bar(double share) {
  return std::string(static_cast<size_t>(std::lround(40 * std::clamp(share, 0.0, 1.0))), '#');
}

// At most 12 steps, evenly spread, the last one always.
std::string RewardTable(const RunReport& report) {
  std::vector<const MetricsLine*> steps;
  for (const MetricsLine& line : report.lines) {
    if (line.step() > 0) steps.push_back(&line);
  }
  if (steps.empty()) return "  no step has finished\n";
  std::string text = fmt::format("  {:>6} {:>8} {:>8} {:>9} {:>8} {:>9} {:>10} {:>8}\n", "step", "reward", "entropy",
                                 "grad norm", "lag mean", "lag max", "tokens/s", "wall");
  const size_t rows = std::min<size_t>(12, steps.size());
  for (size_t row = 0; row < rows; ++row) {
    const size_t at = rows == 1 ? 0 : row * (steps.size() - 1) / (rows - 1);
    const MetricsLine& line = *steps[at];
    text += fmt::format("  {:>6} {:>8.3f} {:>8.3f} {:>9.3f} {:>8.2f} {:>9.0f} {:>10.0f} {:>8}\n", line.step(),
                        line.GetOr("reward/mean", 0), line.GetOr("policy/entropy", 0),
                        line.GetOr("optimizer/grad_norm", 0), line.GetOr("staleness/mean", 0),
                        line.GetOr("staleness/max", 0), line.GetOr("throughput/train_tokens_per_s", 0),
                        FormatSpan(absl::Seconds(line.GetOr("time/wall_s", 0))));
  }
  return text;
}

std::string StateTable(const RunReport& report) {
  std::string text;
  for (const auto& [role, states] : report.state_seconds) {
    double total = 0;
    std::vector<std::pair<double, std::string>> sorted;
    for (const auto& [state, seconds] : states) {
      total += seconds;
      sorted.emplace_back(seconds, state);
    }
    std::sort(sorted.rbegin(), sorted.rend());
    for (const auto& [seconds, state] : sorted) {
      if (seconds < 0.001 * total) continue;
      text += fmt::format("  {:<8} {:<32} {:>9.1f} s {:>6.1f} %  {}\n", role, state, seconds, 100 * seconds / total,
                          Bar(seconds / total));
    }
  }
  for (const auto& [role, share] : report.unaccounted_share) {
    text += fmt::format("  {:<8} not covered by any state: {:.2f} % of its wall time\n", role, 100 * share);
  }
  return text.empty() ? "  not recorded yet\n" : text;
}

std::string CpuTable(const RunReport& report) {
  double total = 0;
  for (const auto& [role, classes] : report.cpu_seconds) {
    if (const auto found = classes.find("total"); found != classes.end()) total += found->second;
  }
  std::string text;
  for (const auto& [role, classes] : report.cpu_seconds) {
    const auto found = classes.find("total");
    if (found == classes.end()) continue;
    text += fmt::format("  {:<8} {:>9.1f} s {:>6.1f} %  ", role, found->second,
                        total > 0 ? 100 * found->second / total : 0);
    for (const auto& [name, seconds] : classes) {
      if (name != "total" && seconds >= 0.005 * found->second) text += fmt::format(" {} {:.1f} s", name, seconds);
    }
    text += "\n";
  }
  return text.empty() ? "  not recorded yet\n" : text;
}

}  // namespace

std::string ReportText(const RunReport& report) {
  std::string text = fmt::format("run {} ({})\n", report.name, report.directory);
  text += fmt::format("  {} of {} steps in {}, {} tokens trained, {} generated\n", report.steps, report.total_steps,
                      FormatSpan(absl::Seconds(report.wall_s)), FormatCount(report.trained_tokens),
                      FormatCount(report.generated_tokens));
  if (report.summary.is_object()) {
    text += fmt::format("  ended: {} (exit code {}), restarts {}\n", report.summary["reason"].get<std::string>(),
                        report.summary["exit_code"].get<int>(), report.summary["restarts"].get<int>());
  }
  if (report.skipped_steps > 0) {
    text += fmt::format("  {} steps were not finite and changed no weight (failed_steps/ has their batches)\n",
                        report.skipped_steps);
  }
  text += "\ntraining\n" + RewardTable(report);
  if (!report.evaluations.empty()) {
    text += "\nevaluation (held-out)\n";
    for (const RunReport::Evaluation& evaluation : report.evaluations) {
      text += fmt::format("  version {:>6}  reward {:.3f}  of {} episodes\n", evaluation.version, evaluation.reward,
                          evaluation.episodes);
    }
    text += fmt::format("  best {:.3f}, last {:.3f}\n", *report.best_evaluation(), *report.last_evaluation());
  }
  text += fmt::format("\nlag of trained tokens (budget {}): mean {:.2f}, max {}\n", report.budget, report.lag_mean,
                      report.lag_max);
  double tokens = 0;
  for (const int64_t count : report.lag_histogram) tokens += static_cast<double>(count);
  for (size_t lag = 0; lag < report.lag_histogram.size(); ++lag) {
    const double share = tokens > 0 ? static_cast<double>(report.lag_histogram[lag]) / tokens : 0;
    text += fmt::format("  {:>4} {:>6.1f} %  {}\n", lag, 100 * share, Bar(share));
  }
  text += "\nwhere wall time went\n" + StateTable(report);
  text += "\nCPU seconds\n" + CpuTable(report);
  text += "\nledger\n ";
  for (const auto& [state, count] : report.ledger) {
    if (count > 0) text += fmt::format(" {} {}", state, count);
  }
  text += fmt::format("\n  conservation {}\n",
                      report.conservation_holds ? "holds in every line" : "IS BROKEN: " + report.conservation_breach);
  return text;
}

}  // namespace leeway
