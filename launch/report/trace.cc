#include "launch/report/trace.h"

#include <algorithm>
#include <map>

#include "fmt/format.h"
#include "nlohmann/json.hpp"

namespace leeway {
namespace {

using Json = nlohmann::ordered_json;

// Collects events; processes are numbered in order of first mention.
class Trace {
 public:
  void Span(const std::string& process, const std::string& name, double begin_s, double length_s) {
    if (length_s <= 0) return;
    events_.push_back({{"ph", "X"},
                       {"name", name},
                       {"pid", Pid(process)},
                       {"tid", 1},
                       {"ts", 1e6 * begin_s},
                       {"dur", 1e6 * length_s}});
  }
  void Counter(const std::string& name, double at_s, double value) {
    events_.push_back(
        {{"ph", "C"}, {"name", name}, {"pid", Pid("run")}, {"ts", 1e6 * at_s}, {"args", {{"value", value}}}});
  }
  std::string Finish() {
    Json root;
    root["displayTimeUnit"] = "ms";
    root["traceEvents"] = std::move(events_);
    return root.dump();
  }

 private:
  int Pid(const std::string& process) {
    const auto [found, is_new] = pids_.emplace(process, static_cast<int>(pids_.size()) + 1);
    if (is_new)
      events_.push_back({{"ph", "M"}, {"name", "process_name"}, {"pid", found->second}, {"args", {{"name", process}}}});
    return found->second;
  }

  Json events_ = Json::array();
  std::map<std::string, int> pids_;
};

void AddStep(const MetricsLine& line, Trace* trace) {
  const double end = line.GetOr("time/wall_s", 0);
  const double length = std::min(line.GetOr("time/step_s", 0), end);
  trace->Span("trainer-0", fmt::format("step {}", line.step()), end - length, length);
  double at = end - length;
  // Waits come first in a step, the publish last.
  std::map<std::string, double> waits;
  std::map<std::string, double> phases;
  for (const auto& [name, seconds] : line.values) {
    if (name.size() < 2 || !name.ends_with("_s")) continue;
    if (name.rfind("wait/trainer/", 0) == 0) waits[name.substr(0, name.size() - 2)] = seconds;
    if (name.rfind("busy/trainer/", 0) == 0) phases[name.substr(0, name.size() - 2)] = seconds;
  }
  for (const auto* part : {&waits, &phases}) {
    for (const auto& [name, seconds] : *part) {
      const double fits = std::min(seconds, end - at);
      trace->Span("trainer-0", name.substr(name.rfind('/') + 1), at, fits);
      at += fits;
    }
  }
  for (const char* name : {"reward/mean", "staleness/mean", "staleness/max", "queue/groups", "eval/reward"}) {
    if (const auto value = line.Get(name)) trace->Counter(name, end, *value);
  }
}

void AddSamples(const std::vector<ProcessSample>& samples, Trace* trace) {
  std::map<std::string, ProcessSample::Process> last;
  for (const ProcessSample& sample : samples) {
    for (const auto& [name, process] : sample.processes) {
      const ProcessSample::Process& before = last[name];
      const bool is_new_life = process.wall_s < before.wall_s;
      double passed = 0;
      std::map<std::string, double> parts;
      for (const auto& [state, seconds] : process.states) {
        const auto found = before.states.find(state);
        const double part = is_new_life || found == before.states.end() ? seconds : seconds - found->second;
        if (part > 0) parts[state] = part;
        passed += std::max(part, 0.0);
      }
      double at = std::max(sample.wall_s - passed, 0.0);
      for (const auto& [state, seconds] : parts) {
        trace->Span(name, state, at, seconds);
        at += seconds;
      }
      last[name] = process;
    }
  }
}

}  // namespace

std::string MakeTrace(const std::vector<MetricsLine>& lines, const std::vector<ProcessSample>& samples) {
  Trace trace;
  for (const MetricsLine& line : lines) AddStep(line, &trace);
  AddSamples(samples, &trace);
  return trace.Finish();
}

}  // namespace leeway
