#include "launch/report/trajectory_view.h"

#include <sstream>

#include "base/file_system.h"
#include "base/status_macros.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "launch/run/run_directory.h"
#include "nlohmann/json.hpp"

namespace leeway {
namespace {

using nlohmann::json;

// Line breaks would tear the table.
std::string OneLine(const std::string& text) {
  std::string line;
  for (const char c : text) line += c == '\n' ? std::string("\\n") : std::string(1, c);
  return line;
}

std::string FormatSpan(const json& span) {
  const bool is_sampled = span.value("sampled", false);
  std::string text =
      fmt::format("  {} \"{}\"\n", is_sampled ? "policy:     " : "environment:", OneLine(span.value("text", "")));
  if (!is_sampled || !span.contains("logprobs")) return text;
  std::vector<std::string> scores;
  for (const json& logprob : span["logprobs"])
    scores.push_back(logprob.is_number() ? fmt::format("{:.2f}", logprob.get<double>()) : logprob.dump());
  text += fmt::format("                log-probabilities {}", fmt::join(scores, " "));
  if (span.contains("legal_ids")) text += fmt::format("  ({} legal tokens)", span["legal_ids"].size());
  return text + "\n";
}

}  // namespace

std::string FormatTrajectories(const std::string& jsonl) {
  std::string text;
  std::istringstream lines(jsonl);
  for (std::string line; std::getline(lines, line);) {
    const json episode = json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!episode.is_object()) continue;
    text += fmt::format("ticket {} member {} (issue {}, attempt {})  reward {}  turns {}", episode.value("ticket", 0),
                        episode.value("member", 0), episode.value("issue", 0), episode.value("attempt", 0),
                        episode.contains("reward") && episode["reward"].is_number()
                            ? fmt::format("{:.3f}", episode["reward"].get<double>())
                            : "none",
                        episode.value("turns", 0));
    if (episode.contains("versions"))
      text += fmt::format("  [lineage, version, tokens] {}", episode["versions"].dump());
    text += "\n";
    for (const json& span : episode.value("spans", json::array())) text += FormatSpan(span);
  }
  return text;
}

absl::StatusOr<std::string> ShowTrajectories(const std::string& run_directory, int64_t step) {
  const RunPaths paths(run_directory);
  FileSystem* files = RealFileSystem();
  const std::string path = fmt::format("{}/step-{}.jsonl", paths.trajectories(), step);
  if (!files->Exists(path)) {
    const absl::StatusOr<std::vector<std::string>> names = files->ListDirectory(paths.trajectories());
    std::vector<std::string> steps;
    if (names.ok()) {
      for (const std::string& name : *names) {
        if (name.rfind("step-", 0) == 0 && name.ends_with(".jsonl")) steps.push_back(name.substr(5, name.size() - 11));
      }
    }
    return absl::NotFoundError(fmt::format("no trajectories were kept of step {}; of these they were: {}", step,
                                           steps.empty() ? "none" : fmt::format("{}", fmt::join(steps, ", "))));
  }
  LEEWAY_ASSIGN_OR_RETURN(const std::string jsonl, files->ReadFile(path));
  return FormatTrajectories(jsonl);
}

}  // namespace leeway
