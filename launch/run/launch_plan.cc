#include "launch/run/launch_plan.h"

#include <ctype.h>
#include <unistd.h>

#include <filesystem>

#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "base/failpoint.h"
#include "base/status_macros.h"
#include "fmt/format.h"
#include "fmt/ranges.h"

extern char** environ;

namespace leeway {
namespace {

std::string UpperCase(std::string text) {
  for (char& c : text) c = static_cast<char>(toupper(static_cast<unsigned char>(c)));
  return text;
}

using Variables = std::map<std::string, std::string>;

// What a process gets at each of its starts.
absl::StatusOr<std::vector<Variables>> FailpointsOfStarts(const std::string& role, int64_t rank,
                                                          const Variables& environment) {
  const std::string of_role = "LEEWAY_FAILPOINTS_" + UpperCase(role);
  auto found = environment.find(fmt::format("{}_{}", of_role, rank));
  if (found == environment.end()) found = environment.find(of_role);
  std::vector<Variables> starts;
  if (found == environment.end()) return starts;
  for (const absl::string_view part : absl::StrSplit(found->second, ';')) {
    if (const absl::Status parsed = FailpointCheck(part); !parsed.ok())
      return absl::InvalidArgumentError(fmt::format("{}: {}", found->first, std::string(parsed.message())));
    starts.emplace_back();
    if (!part.empty()) starts.back()["LEEWAY_FAILPOINTS"] = std::string(part);
  }
  return starts;
}

}  // namespace

absl::StatusOr<std::vector<Supervisor::Child>> PlanChildren(const Config& config, const RunPaths& paths,
                                                            const std::string& binaries, const Variables& environment) {
  std::vector<Supervisor::Child> children;
  // One that no earlier job of the run had.
  const std::string job_id = fmt::format("{}-{}", getpid(), absl::ToUnixMicros(absl::Now()));
  const auto add = [&](const std::string& role, ProcessRole kind, int64_t count) -> absl::Status {
    for (int64_t rank = 0; rank < count; ++rank) {
      Supervisor::Child child;
      child.process = {fmt::format("{}-{}", role, rank), kind};
      child.command.executable = binaries + "/leeway-" + role;
      child.command.arguments = {paths.config(), "--rank", std::to_string(rank)};
      // Also of one that is alone: the launcher may itself be a rank of something.
      if (kind == ProcessRole::kTrainer) {
        child.command.environment["RANK"] = child.command.environment["LOCAL_RANK"] = std::to_string(rank);
        child.command.environment["WORLD_SIZE"] = std::to_string(count);
        child.command.environment["TORCHELASTIC_RUN_ID"] = job_id;
        child.command.environment["MASTER_ADDR"] = child.command.environment["MASTER_PORT"] = "";
      }
      child.command.log_path = paths.log(child.process.name);
      LEEWAY_ASSIGN_OR_RETURN(child.environment_of_start, FailpointsOfStarts(role, rank, environment));
      children.push_back(std::move(child));
    }
    return absl::OkStatus();
  };
  LEEWAY_RETURN_IF_ERROR(add("queue", ProcessRole::kQueue, 1));
  LEEWAY_RETURN_IF_ERROR(add("trainer", ProcessRole::kTrainer, config.GetInteger("trainer.ranks")));
  LEEWAY_RETURN_IF_ERROR(add("rollout", ProcessRole::kRollout, config.GetInteger("rollout.workers")));
  return children;
}

absl::StatusOr<std::string> FindBinaries() {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return absl::NotFoundError("/proc is not mounted: can not find the programs");
  std::vector<std::string> missing;
  for (const char* role : {"queue", "rollout", "trainer"}) {
    const std::string path = (self.parent_path() / (std::string("leeway-") + role)).string();
    if (!std::filesystem::exists(path, error)) missing.push_back(path);
  }
  if (!missing.empty())
    return absl::NotFoundError(fmt::format("not built or not installed: {}", fmt::join(missing, ", ")));
  return self.parent_path().string();
}

SupervisionOptions SupervisionOptionsOf(const Config& config) {
  SupervisionOptions options;
  options.max_restarts = static_cast<int>(config.GetInteger("run.max_restarts"));
  options.backoff = absl::Seconds(config.GetReal("run.restart_backoff"));
  options.is_queue_durable = config.GetString("queue.store") != "memory";
  options.drain_timeout = absl::Seconds(config.GetReal("run.drain_timeout"));
  return options;
}

std::map<std::string, std::string> ProcessEnvironment() {
  std::map<std::string, std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (const size_t equals = text.find('='); equals != std::string::npos)
      variables[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return variables;
}

}  // namespace leeway
