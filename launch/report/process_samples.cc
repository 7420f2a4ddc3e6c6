#include "launch/report/process_samples.h"

#include <fstream>

#include "nlohmann/json.hpp"

namespace leeway {
namespace {

ProcessSample::Process ProcessOf(const v1::ProcessReport& report) {
  ProcessSample::Process process;
  process.wall_s = report.wall_seconds();
  process.states.insert(report.state_seconds().begin(), report.state_seconds().end());
  process.cpu.insert(report.cpu_seconds().begin(), report.cpu_seconds().end());
  return process;
}

}  // namespace

ProcessSample SampleOf(const v1::StatusResponse& status, double wall_s) {
  ProcessSample sample;
  sample.wall_s = wall_s;
  if (status.has_report()) sample.processes["queue-0"] = ProcessOf(status.report());
  for (const v1::WorkerStatus& worker : status.workers()) {
    if (worker.alive() && worker.has_report()) sample.processes[worker.name()] = ProcessOf(worker.report());
  }
  return sample;
}

std::string FormatSample(const ProcessSample& sample) {
  nlohmann::ordered_json line;
  line["wall_s"] = sample.wall_s;
  for (const auto& [name, process] : sample.processes) {
    line["processes"][name] = {{"wall_s", process.wall_s}, {"states", process.states}, {"cpu", process.cpu}};
  }
  return line.dump();
}

std::vector<ProcessSample> ReadSamples(const std::string& path) {
  std::vector<ProcessSample> samples;
  std::ifstream file(path);
  for (std::string text; std::getline(file, text);) {
    const auto line = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!line.is_object() || !line.contains("wall_s")) continue;
    ProcessSample sample;
    sample.wall_s = line["wall_s"].get<double>();
    const auto processes = line.value("processes", nlohmann::json::object());
    for (const auto& [name, process] : processes.items()) {
      ProcessSample::Process& out = sample.processes[name];
      out.wall_s = process.value("wall_s", 0.0);
      out.states = process.value("states", std::map<std::string, double>{});
      out.cpu = process.value("cpu", std::map<std::string, double>{});
    }
    samples.push_back(std::move(sample));
  }
  return samples;
}

}  // namespace leeway
