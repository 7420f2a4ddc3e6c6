#include <stdio.h>

#include <filesystem>

#include "base/file_system.h"
#include "fmt/format.h"
#include "launch/commands/commands.h"
#include "launch/commands/prepared_config.h"
#include "launch/config/check.h"
#include "launch/report/trace.h"
#include "launch/roles/role_process.h"
#include "launch/roles/security_options.h"
#include "launch/run/job_monitor.h"
#include "launch/run/launch_plan.h"
#include "launch/run/run_directory.h"
#include "launch/run/summary.h"
#include "launch/supervision/posix_spawner.h"

namespace leeway {
namespace {

ExitCode Fail(const absl::Status& status) {
  fmt::print(stderr, "{}\n", std::string(status.message()));
  return ExitCodeOf(status);
}

// A run that has done all its steps is not started again: its processes would have nothing to do.
bool IsComplete(const RunReport& report, const Config& config) {
  return report.summary.is_object() && report.summary["is_complete"].get<bool>() &&
         report.summary["total_steps"].get<int64_t>() == config.GetInteger("trainer.steps");
}

void WriteRecords(const RunPaths& paths, const RunReport& report, const JobEnd& end) {
  FileSystem* files = RealFileSystem();
  for (const absl::Status& status :
       {files->WriteFileAtomically(paths.summary(), SummaryJson(report, end).dump(2) + "\n"),
        files->WriteFileAtomically(paths.trace(), MakeTrace(report.lines, report.samples))}) {
    if (!status.ok()) fmt::print(stderr, "{}\n", std::string(status.message()));
  }
}

void Greet(const RunDirectory& run, const ResolvedConfig& resolved, Terminal* terminal) {
  const Config& config = resolved.config;
  terminal->Line(fmt::format(
      "{} {}: {} steps of {} x {} episodes of {}, {}", run.is_resume() ? "resuming" : "starting",
      config.GetString("run.name"), config.GetInteger("trainer.steps"), config.GetInteger("trainer.groups_per_step"),
      config.GetInteger("trainer.group_size"), config.GetString("task.name"),
      config.GetString("mode") == "sync" ? std::string("synchronous")
                                         : fmt::format("staleness budget {}", config.GetInteger("staleness.budget"))));
  for (const ConfigDifference& change : run.changes()) {
    terminal->Line(fmt::format("  changed: {} {} -> {}", change.key, change.before, change.after));
  }
  terminal->Line(fmt::format("  run directory {}", run.paths().root));
}

}  // namespace

ExitCode TrainCommand(const std::vector<std::string>& arguments) {
  PreparedConfig prepared = PrepareConfig(arguments);
  if (!prepared.errors.empty()) {
    fmt::print(stderr, "{}", DescribeErrors(prepared.errors));
    return ExitCode::kConfiguration;
  }
  const Config& config = prepared.resolved.config;
  const absl::StatusOr<std::string> binaries = FindBinaries();
  if (!binaries.ok()) return Fail(binaries.status());
  if (prepared.run_exists) {
    const absl::StatusOr<RunReport> report = ReadRunReport(prepared.run_directory);
    if (report.ok() && IsComplete(*report, config)) {
      fmt::print("{} is complete. Raise trainer.steps to go on, or choose another run.name to start anew.\n\n{}",
                 prepared.run_directory, ReportText(*report));
      return ExitCode::kDone;
    }
  }
  // Before any thread: signals are for the spawner alone.
  absl::StatusOr<std::unique_ptr<PosixSpawner>> spawner = PosixSpawner::Create();
  if (!spawner.ok()) return Fail(spawner.status());
  absl::StatusOr<std::vector<Supervisor::Child>> children =
      PlanChildren(config, RunPaths(prepared.run_directory), *binaries, ProcessEnvironment());
  if (!children.ok()) return Fail(children.status());
  absl::StatusOr<RunDirectory> run = RunDirectory::Open(prepared.run_directory, config);
  if (!run.ok()) return Fail(run.status());
  Terminal terminal(stdout, absl::Seconds(config.GetReal("run.status_interval")));
  Greet(*run, prepared.resolved, &terminal);
  const absl::StatusOr<ConnectionSecurity> security = SecurityOf(config, run->paths(), Role::kAdmin);
  if (!security.ok()) return Fail(security.status());
  absl::StatusOr<std::unique_ptr<StatusFeed>> feed = StatusFeed::Start(QueueAddressOf(config, run->paths()), *security);
  if (!feed.ok()) return Fail(feed.status());
  const MonotonicTime start = RealClock()->Now();
  JobMonitor monitor(config, run->paths(), feed->get(), &terminal);
  Supervisor supervisor(SupervisionOptionsOf(config), *std::move(children), spawner->get(), &monitor);
  JobEnd end;
  end.is_resume = run->is_resume();
  end.code = supervisor.Run();
  end.reason = monitor.Reason(supervisor.policy());
  end.restarts = monitor.view().restarts();
  end.wall_s = absl::ToDoubleSeconds(RealClock()->Now() - start);
  end.cpu_seconds = supervisor.cpu_seconds();
  if (monitor.last_status().has_value()) {
    end.episode_failures.insert(monitor.last_status()->episode_failures().begin(),
                                monitor.last_status()->episode_failures().end());
  }
  const absl::StatusOr<RunReport> report = ReadRunReport(run->paths().root);
  if (!report.ok()) return Fail(report.status());
  WriteRecords(run->paths(), *report, end);
  terminal.Line(SummaryText(*report, end));
  return end.code;
}

}  // namespace leeway
