#include "launch/report/run_report.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/file_system.h"
#include "base/status_macros.h"
#include "fmt/format.h"
#include "launch/run/run_directory.h"

namespace leeway {
namespace {

constexpr const char* kLedgerStates[] = {"issued",   "running", "ready",  "leased",    "trained", "settled",
                                         "filtered", "stale",   "failed", "cancelled", "rewound"};

// "wait/rollout/queue_full_s" -> role "rollout", rest "queue_full". False for other names.
bool SplitName(const std::string& name, const std::string& prefix, std::string* role, std::string* rest) {
  if (name.rfind(prefix, 0) != 0 || !name.ends_with("_s")) return false;
  const std::string inner = name.substr(prefix.size(), name.size() - prefix.size() - 2);
  const size_t slash = inner.find('/');
  *role = inner.substr(0, slash);
  *rest = slash == std::string::npos ? "" : inner.substr(slash + 1);
  return true;
}

double SumOfStates(const MetricsLine& line, const std::string& role) {
  double sum = 0;
  for (const std::string kind : {"wait/", "busy/"}) {
    const std::string prefix = kind + role + "/";
    for (auto at = line.values.lower_bound(prefix); at != line.values.end() && at->first.rfind(prefix, 0) == 0; ++at)
      sum += at->second;
  }
  return sum;
}

void AddTimes(const MetricsLine& line, RunReport* report) {
  std::string role;
  std::string rest;
  for (const auto& [name, value] : line.values) {
    if (SplitName(name, "wait/", &role, &rest)) report->state_seconds[role]["wait:" + rest] += value;
    if (SplitName(name, "busy/", &role, &rest)) report->state_seconds[role]["busy:" + rest] += value;
    if (SplitName(name, "cpu/", &role, &rest)) report->cpu_seconds[role][rest.empty() ? "total" : rest] += value;
  }
}

void CheckLedger(const MetricsLine& line, int64_t previous_step, RunReport* report) {
  std::string breach;
  if (line.step() <= previous_step) breach = fmt::format("step {} stands after step {}", line.step(), previous_step);
  if (const auto issued = line.Get("ledger/issued_total")) {
    double sum = 0;
    for (const char* state : kLedgerStates) sum += line.GetOr(std::string("ledger/") + state, 0);
    if (sum != *issued)
      breach = fmt::format("step {}: issued_total is {}, the states sum to {}", line.step(), *issued, sum);
    report->ledger["issued_total"] = static_cast<int64_t>(*issued);
    for (const char* state : kLedgerStates) {
      report->ledger[state] = static_cast<int64_t>(line.GetOr(std::string("ledger/") + state, 0));
    }
  }
  if (!breach.empty() && report->conservation_holds) {
    report->conservation_holds = false;
    report->conservation_breach = breach;
  }
}

// The trainer's states are in the metrics: those of a line must cover the time since the line before.
void AccountTrainer(RunReport* report) {
  double covered = 0;
  double passed = 0;
  for (size_t i = 1; i < report->lines.size(); ++i) {
    const MetricsLine& before = report->lines[i - 1];
    const MetricsLine& line = report->lines[i];
    if (before.GetOr("lineage", 0) != line.GetOr("lineage", 0)) continue;
    covered += SumOfStates(line, "trainer");
    passed += line.GetOr("time/wall_s", 0) - before.GetOr("time/wall_s", 0);
  }
  if (passed > 0) report->unaccounted_share["trainer"] = 1 - covered / passed;
}

void AccountOthers(RunReport* report) {
  std::map<std::string, ProcessSample::Process> newest;
  for (const ProcessSample& sample : report->samples) {
    for (const auto& [name, process] : sample.processes) newest[name] = process;
  }
  for (const auto& [name, process] : newest) {
    if (process.wall_s <= 0 || process.states.empty()) continue;
    double sum = 0;
    for (const auto& [state, seconds] : process.states) sum += seconds;
    const double share = 1 - sum / process.wall_s;
    double& worst = report->unaccounted_share[name.substr(0, name.rfind('-'))];
    if (std::abs(share) >= std::abs(worst)) worst = share;
  }
}

std::optional<double> MeanReward(const std::vector<const MetricsLine*>& lines, size_t begin, size_t end) {
  double sum = 0;
  int count = 0;
  for (size_t i = begin; i < end; ++i) {
    if (const auto reward = lines[i]->Get("reward/mean")) {
      sum += *reward;
      ++count;
    }
  }
  if (count == 0) return std::nullopt;
  return sum / count;
}

}  // namespace

std::optional<double> RunReport::best_evaluation() const {
  std::optional<double> best;
  for (const Evaluation& evaluation : evaluations) best = std::max(best.value_or(evaluation.reward), evaluation.reward);
  return best;
}

std::optional<double> RunReport::last_evaluation() const {
  if (evaluations.empty()) return std::nullopt;
  return evaluations.back().reward;
}

RunReport ReportOfLines(std::vector<MetricsLine> lines, std::vector<ProcessSample> samples) {
  RunReport report;
  report.lines = std::move(lines);
  report.samples = std::move(samples);
  int64_t previous_step = -1;
  double lag_sum = 0;
  std::vector<const MetricsLine*> steps;
  for (const MetricsLine& line : report.lines) {
    CheckLedger(line, previous_step, &report);
    previous_step = line.step();
    report.steps = std::max(report.steps, line.step());
    report.wall_s = std::max(report.wall_s, line.GetOr("time/wall_s", 0));
    report.skipped_steps = static_cast<int64_t>(line.GetOr("optimizer/skipped_steps", 0));
    AddTimes(line, &report);
    if (const auto reward = line.Get("eval/reward")) {
      report.evaluations.push_back({static_cast<int64_t>(line.GetOr("version", 0)), *reward,
                                    static_cast<int64_t>(line.GetOr("eval/episodes", 0))});
    }
    report.trained_tokens += line.GetOr("tokens/trained", 0);
    report.generated_tokens += line.GetOr("tokens/generated", 0);
    report.lag_max = std::max(report.lag_max, static_cast<int64_t>(line.GetOr("staleness/max", 0)));
    for (size_t lag = 0; lag < line.lag_histogram.size(); ++lag) {
      if (report.lag_histogram.size() <= lag) report.lag_histogram.resize(lag + 1);
      report.lag_histogram[lag] += line.lag_histogram[lag];
      lag_sum += static_cast<double>(lag) * static_cast<double>(line.lag_histogram[lag]);
    }
    if (line.step() > 0) steps.push_back(&line);
  }
  double tokens = 0;
  for (const int64_t count : report.lag_histogram) tokens += static_cast<double>(count);
  report.lag_mean = tokens > 0 ? lag_sum / tokens : 0;
  const size_t tenth = std::max<size_t>(1, steps.size() / 10);
  if (!steps.empty()) {
    report.first_reward = MeanReward(steps, 0, tenth);
    report.last_reward = MeanReward(steps, steps.size() - tenth, steps.size());
  }
  AccountTrainer(&report);
  AccountOthers(&report);
  return report;
}

// What summary.json says; nothing, if it is not what this program writes.
nlohmann::json ParseSummary(const std::string& text) {
  nlohmann::json summary = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  const auto has = [&](const char* key, auto is) { return summary.contains(key) && (summary[key].*is)(); };
  using Json = nlohmann::json;
  const bool is_ours = summary.is_object() && has("is_complete", &Json::is_boolean) &&
                       has("total_steps", &Json::is_number_integer) && has("reason", &Json::is_string) &&
                       has("exit_code", &Json::is_number_integer) && has("restarts", &Json::is_number_integer);
  return is_ours ? summary : nlohmann::json();
}

absl::StatusOr<RunReport> ReadRunReport(const std::string& directory) {
  std::error_code error;
  const RunPaths paths(std::filesystem::absolute(directory, error).lexically_normal().string());
  LEEWAY_ASSIGN_OR_RETURN(const Config config, ReadRunConfig(paths));
  RunReport report = ReportOfLines(ReadMetricsFile(paths.metrics()), ReadSamples(paths.samples()));
  report.directory = paths.root;
  report.name = config.GetString("run.name");
  report.total_steps = config.GetInteger("trainer.steps");
  report.budget = config.GetString("mode") == "sync" ? 0 : config.GetInteger("staleness.budget");
  if (const absl::StatusOr<std::string> text = RealFileSystem()->ReadFile(paths.summary()); text.ok()) {
    report.summary = ParseSummary(*text);
  }
  return report;
}

nlohmann::ordered_json ReportJson(const RunReport& report) {
  nlohmann::ordered_json json;
  json["run"] = report.name;
  json["directory"] = report.directory;
  json["steps"] = report.steps;
  json["total_steps"] = report.total_steps;
  json["wall_s"] = report.wall_s;
  json["skipped_steps"] = report.skipped_steps;
  json["staleness"] = {{"budget", report.budget},
                       {"max", report.lag_max},
                       {"mean", report.lag_mean},
                       {"histogram", report.lag_histogram}};
  json["reward"]["first"] = report.first_reward.has_value() ? nlohmann::ordered_json(*report.first_reward) : nullptr;
  json["reward"]["last"] = report.last_reward.has_value() ? nlohmann::ordered_json(*report.last_reward) : nullptr;
  json["evaluations"] = nlohmann::ordered_json::array();
  for (const RunReport::Evaluation& evaluation : report.evaluations) {
    json["evaluations"].push_back(
        {{"version", evaluation.version}, {"reward", evaluation.reward}, {"episodes", evaluation.episodes}});
  }
  json["best_evaluation"] =
      report.best_evaluation().has_value() ? nlohmann::ordered_json(*report.best_evaluation()) : nullptr;
  json["tokens"] = {{"trained", report.trained_tokens}, {"generated", report.generated_tokens}};
  json["state_seconds"] = report.state_seconds;
  json["cpu_seconds"] = report.cpu_seconds;
  json["unaccounted_share"] = report.unaccounted_share;
  json["ledger"] = report.ledger;
  json["conservation_holds"] = report.conservation_holds;
  if (!report.conservation_holds) json["conservation_breach"] = report.conservation_breach;
  json["summary"] = report.summary;
  return json;
}

}  // namespace leeway
