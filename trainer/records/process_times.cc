#include "trainer/records/process_times.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace leeway {
namespace {

std::map<std::string, double> Flatten(absl::string_view role, const v1::ProcessReport& report) {
  std::map<std::string, double> values;
  for (const auto& [state, seconds] : report.state_seconds()) {
    const size_t colon = state.find(':');
    if (colon == std::string::npos) continue;
    values[absl::StrCat(state.substr(0, colon), "/", role, "/", state.substr(colon + 1), "_s")] = seconds;
  }
  for (const auto& [thread_class, seconds] : report.cpu_seconds()) {
    values[thread_class == "total" ? absl::StrCat("cpu/", role, "_s")
                                   : absl::StrCat("cpu/", role, "/", thread_class, "_s")] = seconds;
  }
  return values;
}

double ValueOf(const std::map<std::string, double>& values, const std::string& name) {
  const auto found = values.find(name);
  return found == values.end() ? 0.0 : found->second;
}

}  // namespace

void ProcessTimes::Add(absl::string_view role, const std::string& name, const v1::ProcessReport& report) {
  const std::map<std::string, double> now = Flatten(role, report);
  if (now.empty()) return;
  Process& process = processes_[name];
  const std::string total = absl::StrCat("cpu/", role, "_s");
  const bool is_new =
      report.wall_seconds() < process.wall_seconds || ValueOf(now, total) < ValueOf(process.values, total);
  if (is_new) process.values.clear();
  for (const auto& [metric, value] : now) {
    double& last = process.values[metric];
    if (!process.is_skipped) increments_[metric] += std::max(0.0, value - last);
    last = value;
  }
  process.wall_seconds = report.wall_seconds();
  process.is_skipped = false;
}

void ProcessTimes::AddAll(const v1::StatusResponse& status) {
  Add("queue", "queue", status.report());
  for (const v1::WorkerStatus& worker : status.workers()) Add("rollout", worker.name(), worker.report());
}

void ProcessTimes::SkipAll(const v1::StatusResponse& status) {
  processes_["queue"].is_skipped = true;
  for (const v1::WorkerStatus& worker : status.workers()) processes_[worker.name()].is_skipped = true;
  AddAll(status);
}

std::map<std::string, double> ProcessTimes::Take() { return std::exchange(increments_, {}); }

}  // namespace leeway
