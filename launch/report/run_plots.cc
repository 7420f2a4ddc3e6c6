#include "launch/report/run_plots.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>

#include "fmt/format.h"

namespace leeway {
namespace {

// Training reward averaged over windows, so that long runs stay readable.
PlotSeries RewardSeries(const RunReport& report, const std::string& name) {
  PlotSeries series;
  series.name = name;
  std::vector<std::pair<double, double>> steps;
  for (const MetricsLine& line : report.lines) {
    if (const auto reward = line.Get("reward/mean"); reward.has_value() && line.step() > 0)
      steps.emplace_back(static_cast<double>(line.step()), *reward);
  }
  const size_t window = std::max<size_t>(1, steps.size() / 100);
  for (size_t begin = 0; begin < steps.size(); begin += window) {
    const size_t end = std::min(begin + window, steps.size());
    double sum = 0;
    for (size_t i = begin; i < end; ++i) sum += steps[i].second;
    series.points.emplace_back(steps[end - 1].first, sum / static_cast<double>(end - begin));
  }
  return series;
}

PlotSeries EvaluationSeries(const RunReport& report, const std::string& name) {
  PlotSeries series;
  series.name = name;
  // Version v is what step v-1 left behind.
  for (const RunReport::Evaluation& evaluation : report.evaluations)
    series.points.emplace_back(static_cast<double>(evaluation.version - 1), evaluation.reward);
  return series;
}

Plot RewardPlot(const std::vector<RunReport>& reports) {
  Plot plot{"Reward", "step", "mean reward", {}, false, {}};
  for (const RunReport& report : reports) {
    plot.series.push_back(RewardSeries(report, report.name + " training"));
    if (!report.evaluations.empty()) plot.series.push_back(EvaluationSeries(report, report.name + " held-out"));
  }
  return plot;
}

Plot StalenessPlot(const std::vector<RunReport>& reports) {
  Plot plot{"Staleness of trained tokens", "lag in steps", "share of tokens", {}, true, {}};
  for (const RunReport& report : reports) {
    PlotSeries series;
    series.name = fmt::format("{} (budget {})", report.name, report.budget);
    double tokens = 0;
    for (const int64_t count : report.lag_histogram) tokens += static_cast<double>(count);
    for (size_t lag = 0; lag < report.lag_histogram.size() && tokens > 0; ++lag) {
      series.points.emplace_back(static_cast<double>(lag), static_cast<double>(report.lag_histogram[lag]) / tokens);
    }
    plot.series.push_back(std::move(series));
  }
  return plot;
}

Plot WaitsPlot(const std::vector<RunReport>& reports) {
  Plot plot{"Where wall time went", "", "share of the role's time", {}, true, {}};
  // State -> series; x = role of a run.
  std::map<std::string, PlotSeries> by_state;
  for (const RunReport& report : reports) {
    for (const auto& [role, states] : report.state_seconds) {
      const double x = static_cast<double>(plot.x_names.size());
      plot.x_names.push_back(reports.size() == 1 ? role : report.name + " " + role);
      double total = 0;
      for (const auto& [state, seconds] : states) total += seconds;
      for (const auto& [state, seconds] : states) {
        if (total <= 0 || seconds < 0.02 * total) continue;
        by_state[state].name = state;
        by_state[state].points.emplace_back(x, seconds / total);
      }
    }
  }
  for (auto& [state, series] : by_state) plot.series.push_back(std::move(series));
  return plot;
}

// The evaluation nearest to a share of the run's steps.
std::optional<double> RewardAfter(const RunReport& report, double share) {
  const double wanted = share * static_cast<double>(report.total_steps);
  std::optional<double> reward;
  double nearest = std::numeric_limits<double>::infinity();
  for (const RunReport::Evaluation& evaluation : report.evaluations) {
    const double distance = std::abs(static_cast<double>(evaluation.version - 1) - wanted);
    if (distance < nearest) {
      nearest = distance;
      reward = evaluation.reward;
    }
  }
  return reward;
}

Plot RewardAgainstLagPlot(const std::vector<RunReport>& reports) {
  Plot plot{"Held-out reward against lag", "mean lag of the trained tokens", "held-out reward", {}, true, {}};
  std::vector<const RunReport*> by_lag;
  for (const RunReport& report : reports) by_lag.push_back(&report);
  std::stable_sort(by_lag.begin(), by_lag.end(),
                   [](const RunReport* a, const RunReport* b) { return a->lag_mean < b->lag_mean; });
  for (const RunReport* report : by_lag)
    plot.x_names.push_back(fmt::format("{:.2f} (budget {})", report->lag_mean, report->budget));
  for (const auto& [share, name] :
       {std::pair{0.25, "after 1/4 of the steps"}, std::pair{0.5, "after 1/2"}, std::pair{1.0, "at the end"}}) {
    PlotSeries series;
    series.name = name;
    for (size_t i = 0; i < by_lag.size(); ++i) {
      if (const auto reward = RewardAfter(*by_lag[i], share))
        series.points.emplace_back(static_cast<double>(i), *reward);
    }
    plot.series.push_back(std::move(series));
  }
  return plot;
}

}  // namespace

absl::StatusOr<Plot> MakePlot(const std::string& name, const std::vector<RunReport>& reports) {
  if (name == "reward") return RewardPlot(reports);
  if (name == "staleness") return StalenessPlot(reports);
  if (name == "waits") return WaitsPlot(reports);
  if (name == "reward_vs_lag") return RewardAgainstLagPlot(reports);
  return absl::InvalidArgumentError(
      fmt::format("no plot \"{}\"; possible: reward, staleness, waits, reward_vs_lag", name));
}

}  // namespace leeway
