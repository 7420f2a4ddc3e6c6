#include "trainer/records/process_times.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace leeway {
namespace {

std::string ProcessOf(const v1::WorkerStatus& worker) {
  return absl::StrCat(worker.name(), "/", worker.identity().epoch());
}

}  // namespace

std::map<std::string, double> ProcessTimes::Flatten(absl::string_view role, const v1::ProcessReport& report) const {
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

void ProcessTimes::Skip(absl::string_view role, const std::string& process, const v1::ProcessReport& report) {
  last_[process] = Flatten(role, report);
}

void ProcessTimes::Add(absl::string_view role, const std::string& process, const v1::ProcessReport& report) {
  std::map<std::string, double> now = Flatten(role, report);
  std::map<std::string, double>& last = last_[process];
  for (const auto& [name, value] : now) {
    const auto before = last.find(name);
    const bool continues = before != last.end() && before->second <= value;
    increments_[name] += continues ? value - before->second : value;
  }
  last = std::move(now);
}

void ProcessTimes::SkipAll(const v1::StatusResponse& status) {
  Skip("queue", "queue", status.report());
  for (const v1::WorkerStatus& worker : status.workers()) Skip("rollout", ProcessOf(worker), worker.report());
}

void ProcessTimes::AddAll(const v1::StatusResponse& status) {
  Add("queue", "queue", status.report());
  for (const v1::WorkerStatus& worker : status.workers()) Add("rollout", ProcessOf(worker), worker.report());
}

std::map<std::string, double> ProcessTimes::Take() { return std::exchange(increments_, {}); }

}  // namespace leeway
