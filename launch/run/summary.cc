#include "launch/run/summary.h"

#include <algorithm>

#include "fmt/format.h"
#include "launch/display/status_block.h"

namespace leeway {
namespace {

using Json = nlohmann::ordered_json;

Json Optional(const std::optional<double>& value) { return value.has_value() ? Json(*value) : Json(nullptr); }

// "rollout-1" -> "rollout".
std::map<std::string, double> ByRole(const std::map<std::string, double>& by_process) {
  std::map<std::string, double> by_role;
  for (const auto& [name, seconds] : by_process) by_role[name.substr(0, name.rfind('-'))] += seconds;
  return by_role;
}

// The three largest waits of a role as shares of its time.
std::string WaitsText(const std::map<std::string, double>& states) {
  double total = 0;
  std::vector<std::pair<double, std::string>> waits;
  for (const auto& [state, seconds] : states) {
    total += seconds;
    if (state.rfind("wait:", 0) == 0) waits.emplace_back(seconds, state.substr(5));
  }
  std::sort(waits.rbegin(), waits.rend());
  std::string text;
  for (size_t i = 0; i < waits.size() && i < 3; ++i) {
    text += fmt::format("{}{} {:.1f} s ({:.0f} %)", text.empty() ? "" : ", ", waits[i].second, waits[i].first,
                        total > 0 ? 100 * waits[i].first / total : 0);
  }
  return text.empty() ? "none" : text;
}

}  // namespace

Json SummaryJson(const RunReport& report, const JobEnd& end) {
  Json json;
  json["run"] = report.name;
  json["run_directory"] = report.directory;
  json["exit_code"] = static_cast<int>(end.code);
  json["reason"] = end.reason;
  json["is_complete"] = end.code == ExitCode::kDone;
  json["steps"] = report.steps;
  json["total_steps"] = report.total_steps;
  json["wall_s"] = report.wall_s;
  json["eval_reward_final"] = Optional(report.last_evaluation());
  json["eval_reward_best"] = Optional(report.best_evaluation());
  json["reward_final"] = Optional(report.last_reward);
  json["tokens_trained"] = report.trained_tokens;
  json["tokens_generated"] = report.generated_tokens;
  json["train_tokens_per_s"] = report.wall_s > 0 ? report.trained_tokens / report.wall_s : 0;
  json["generate_tokens_per_s"] = report.wall_s > 0 ? report.generated_tokens / report.wall_s : 0;
  json["skipped_steps"] = report.skipped_steps;
  json["lag_mean"] = report.lag_mean;
  json["lag_max"] = report.lag_max;
  json["staleness_budget"] = report.budget;
  for (const auto& [role, states] : report.state_seconds) {
    for (const auto& [state, seconds] : states) {
      if (state.rfind("wait:", 0) == 0) json["waits_s"][role][state.substr(5)] = seconds;
    }
  }
  // Of this start of the launcher alone, which may have resumed an earlier one's run.
  json["is_resume"] = end.is_resume;
  json["start_wall_s"] = end.wall_s;
  json["cpu_seconds"] = ByRole(end.cpu_seconds);
  json["restarts"] = end.restarts;
  json["episode_failures"] = end.episode_failures;
  json["conservation_holds"] = report.conservation_holds;
  return json;
}

std::string SummaryText(const RunReport& report, const JobEnd& end) {
  const auto number = [](const std::optional<double>& value) {
    return value.has_value() ? fmt::format("{:.3f}", *value) : std::string("–");
  };
  std::string text = fmt::format(
      "\n{}: {}\n", end.code == ExitCode::kDone ? "done" : fmt::format("ended with exit code {}", Describe(end.code)),
      end.reason);
  text += fmt::format("  steps        {} of {} in {}\n", report.steps, report.total_steps,
                      FormatSpan(absl::Seconds(end.is_resume ? report.wall_s : end.wall_s)));
  text += fmt::format("  eval reward  final {}, best {} (held-out); training reward {} -> {}\n",
                      number(report.last_evaluation()), number(report.best_evaluation()), number(report.first_reward),
                      number(report.last_reward));
  text += fmt::format("  tokens       {} trained ({}/s), {} generated ({}/s)\n", FormatCount(report.trained_tokens),
                      FormatCount(report.wall_s > 0 ? report.trained_tokens / report.wall_s : 0),
                      FormatCount(report.generated_tokens),
                      FormatCount(report.wall_s > 0 ? report.generated_tokens / report.wall_s : 0));
  if (report.skipped_steps > 0) {
    text += fmt::format("  not finite   {} steps changed no weight (failed_steps/ has their batches)\n",
                        report.skipped_steps);
  }
  text +=
      fmt::format("  lag          mean {:.2f}, max {} (budget {})\n", report.lag_mean, report.lag_max, report.budget);
  for (const char* role : {"trainer", "rollout"}) {
    if (const auto found = report.state_seconds.find(role); found != report.state_seconds.end()) {
      text += fmt::format("  waits        {}: {}\n", role, WaitsText(found->second));
    }
  }
  std::string cpu;
  for (const auto& [role, seconds] : ByRole(end.cpu_seconds))
    cpu += fmt::format("{}{} {:.1f} s", cpu.empty() ? "" : ", ", role, seconds);
  if (end.is_resume) text += fmt::format("  since resume {}\n", FormatSpan(absl::Seconds(end.wall_s)));
  text += fmt::format("  CPU          {}\n", cpu.empty() ? "–" : cpu);
  uint64_t failures = 0;
  for (const auto& [code, count] : end.episode_failures) failures += count;
  text += fmt::format("  failures     {} episodes, {} restarts, conservation {}\n", failures, end.restarts,
                      report.conservation_holds ? "holds" : "BROKEN: " + report.conservation_breach);
  text += fmt::format("  run          {}\n  inspect      leeway inspect {}\n", report.directory, report.directory);
  if (end.code == ExitCode::kDone) return text;
  // What refuses the configuration, the machine or the data refuses it again.
  const bool is_worth_another_try =
      end.code == ExitCode::kOther || end.code == ExitCode::kPeerLost || end.code == ExitCode::kStalled;
  text += fmt::format("  logs         {}/logs{}\n", report.directory,
                      is_worth_another_try ? "; the same command resumes the run" : "");
  return text;
}

}  // namespace leeway
