#include <stdio.h>

#include <filesystem>

#include "base/file_system.h"
#include "fmt/format.h"
#include "launch/commands/commands.h"
#include "launch/report/run_plots.h"
#include "launch/report/run_report.h"
#include "launch/report/trajectory_view.h"

namespace leeway {

// "sort5" is runs/sort5 if no folder here has that name.
std::string FindRun(const std::string& name) {
  std::error_code error;
  if (!std::filesystem::exists(name, error) && std::filesystem::exists("runs/" + name, error)) return "runs/" + name;
  return name;
}

namespace {

ExitCode Fail(const absl::Status& status) {
  fmt::print(stderr, "{}\n", std::string(status.message()));
  return absl::IsInvalidArgument(status) ? ExitCode::kConfiguration : ExitCode::kEnvironment;
}

ExitCode WritePlot(const InspectArguments& arguments, const std::vector<RunReport>& reports) {
  const absl::StatusOr<Plot> plot = MakePlot(arguments.plot, reports);
  if (!plot.ok()) return Fail(plot.status());
  const std::string svg = DrawSvg(*plot);
  if (arguments.output.empty()) {
    fmt::print("{}", svg);
    return ExitCode::kDone;
  }
  const absl::Status written = RealFileSystem()->WriteFileAtomically(arguments.output, svg);
  return written.ok() ? ExitCode::kDone : Fail(written);
}

}  // namespace

ExitCode InspectCommand(const InspectArguments& arguments) {
  std::vector<RunReport> reports;
  for (const std::string& run : arguments.runs) {
    absl::StatusOr<RunReport> report = ReadRunReport(FindRun(run));
    if (!report.ok()) return Fail(report.status());
    reports.push_back(*std::move(report));
  }
  if (!arguments.plot.empty()) return WritePlot(arguments, reports);
  if (arguments.trajectory >= 0) {
    for (const RunReport& report : reports) {
      const absl::StatusOr<std::string> text = ShowTrajectories(report.directory, arguments.trajectory);
      if (!text.ok()) return Fail(text.status());
      fmt::print("{}", *text);
    }
    return ExitCode::kDone;
  }
  if (arguments.json) {
    nlohmann::ordered_json json = nlohmann::ordered_json::array();
    for (const RunReport& report : reports) json.push_back(ReportJson(report));
    fmt::print("{}\n", (json.size() == 1 ? json[0] : json).dump(2));
  } else {
    for (const RunReport& report : reports) fmt::print("{}\n", ReportText(report));
  }
  return ExitCode::kDone;
}

}  // namespace leeway
