#include "launch/run/job_monitor.h"

#include <time.h>

#include <deque>
#include <filesystem>
#include <fstream>

#include "base/file_system.h"
#include "fmt/format.h"
#include "launch/display/status_block.h"
#include "launch/report/process_samples.h"

namespace leeway {
namespace {

constexpr absl::Duration kSampleInterval = absl::Seconds(1);

// Of one process; the log has the others.
constexpr int kErrorsShown = 10;

}  // namespace

JobMonitor::JobMonitor(const Config& config, const RunPaths& paths, StatusFeed* feed, Terminal* terminal,
                       const Clock* clock)
    : paths_(paths),
      stall_timeout_(absl::Seconds(config.GetReal("run.stall_timeout"))),
      feed_(feed),
      terminal_(terminal),
      clock_(clock),
      start_(clock->Now()),
      view_(ViewOf(config, start_)),
      tail_(paths.metrics()),
      next_sample_(start_) {}

void JobMonitor::OnEvent(const std::string& line, const std::string& log_path) {
  terminal_->Line(fmt::format("[{}] {}", FormatSpan(clock_->Now() - start_), line));
  if (log_path.empty()) return;
  const std::string lines = LastLines(log_path, 12);
  if (!lines.empty()) terminal_->Line(fmt::format("  last lines of {}:\n{}", log_path, lines));
}

SupervisionObserver::Pulse JobMonitor::OnPulse(const SupervisionPolicy& policy) {
  const MonotonicTime now = clock_->Now();
  FollowMetrics(now);
  FollowStatus(now);
  FollowLogs(policy, now);
  int restarts = 0;
  for (size_t i = 0; i < policy.processes().size(); ++i) restarts += policy.restarts(static_cast<int>(i));
  view_.set_restarts(restarts);
  Pulse pulse;
  pulse.made_progress = view_.TakeProgress();
  if (!policy.is_ending()) {
    terminal_->Show(view_);
    if (view_.since_progress(now) > stall_timeout_) {
      pulse.stall_diagnosis = fmt::format("nothing has progressed for {}: {}", FormatSpan(view_.since_progress(now)),
                                          view_.DescribeWaits());
    }
    return pulse;
  }
  if (!was_ending_) {
    was_ending_ = true;
    terminal_->ShowNow(view_);
    terminal_->Line(fmt::format("[{}] ending: {}", FormatSpan(now - start_), Reason(policy)));
  }
  std::vector<std::string> remaining;
  for (size_t i = 0; i < policy.processes().size(); ++i) {
    if (policy.is_running(static_cast<int>(i))) remaining.push_back(policy.processes()[i].name);
  }
  if (remaining.empty()) return pulse;
  view_.set_ending(std::move(remaining));
  terminal_->Show(view_);
  return pulse;
}

std::string JobMonitor::Reason(const SupervisionPolicy& policy) const {
  for (const SupervisionPolicy::Process& process : policy.processes()) {
    const std::string who = process.role == ProcessRole::kQueue ? "the queue died" : process.name + " ended with";
    const auto log = logs_.find(process.name);
    if (!policy.reason().starts_with(who + " ") || log == logs_.end() || log->second.last_words.empty()) continue;
    return fmt::format("{}: {}", policy.reason(), log->second.last_words);
  }
  return policy.reason();
}

void JobMonitor::FollowMetrics(MonotonicTime now) {
  const MetricsTail::News news = tail_.Poll();
  if (news.restarted || tensorboard_ == nullptr) {
    // Event files are derived from metrics.jsonl and written anew with it.
    static_cast<void>(RealFileSystem()->RemoveAll(paths_.tensorboard()));
    tensorboard_ = std::make_unique<TensorboardWriter>(RealFileSystem(), paths_.tensorboard(),
                                                       static_cast<int64_t>(time(nullptr)));
  }
  if (!has_read_metrics_) {
    has_read_metrics_ = true;
    if (!news.lines.empty()) run_seconds_before_ = news.lines.back().GetOr("time/wall_s", 0);
  }
  for (const MetricsLine& line : news.lines) {
    view_.OnMetrics(line, now);
    std::vector<std::pair<std::string, double>> scalars(line.values.begin(), line.values.end());
    std::erase_if(scalars, [](const auto& scalar) { return scalar.first == "step"; });
    const absl::Status written = tensorboard_->Write(line.step(), static_cast<double>(time(nullptr)), scalars);
    if (!written.ok() && !tensorboard_failed_) {
      tensorboard_failed_ = true;
      terminal_->Line("TensorBoard file: " + std::string(written.message()));
    }
  }
}

void JobMonitor::FollowStatus(MonotonicTime now) {
  StatusFeed::Reading reading = feed_->Latest();
  if (reading.serial == last_serial_) return;
  last_serial_ = reading.serial;
  if (reading.status.has_value()) {
    last_status_ = reading.status;
    if (now >= next_sample_) {
      next_sample_ = now + kSampleInterval;
      const double wall_s = run_seconds_before_ + absl::ToDoubleSeconds(now - start_);
      static_cast<void>(
          RealFileSystem()->AppendToFile(paths_.samples(), FormatSample(SampleOf(*reading.status, wall_s)) + "\n"));
    }
  }
  view_.OnStatus(reading.status, now);
}

void JobMonitor::FollowLogs(const SupervisionPolicy& policy, MonotonicTime now) {
  for (const SupervisionPolicy::Process& process : policy.processes()) {
    const auto [found, is_new] = logs_.try_emplace(process.name, FollowedLog{LogTail(paths_.log(process.name))});
    FollowedLog& log = found->second;
    for (const std::string& line : log.tail.Poll()) {
      const auto [level, text] = LevelAndText(line);
      if (process.role == ProcessRole::kTrainer) {
        view_.NoteProgress(now);
        if (level == "info") view_.set_trainer_note(text);
      }
      if (const std::string words = fmt::format("{} ends: ", process.name);
          level == "error" && text.starts_with(words)) {
        log.last_words = text.substr(words.size());
      }
      if (level != "error" || ++log.errors_shown > kErrorsShown) continue;
      terminal_->Line(
          fmt::format("[{}] {}: {}{}", FormatSpan(now - start_), process.name, text,
                      log.errors_shown < kErrorsShown ? "" : fmt::format(" (more in {})", log.tail.path())));
    }
  }
}

JobView ViewOf(const Config& config, MonotonicTime start) {
  return JobView(config.GetInteger("trainer.steps"), static_cast<int>(config.GetInteger("rollout.workers")),
                 config.GetInteger("trainer.groups_per_step") * config.GetInteger("trainer.group_size"), start);
}

std::string LastLines(const std::string& path, int count) {
  std::deque<std::string> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.empty()) continue;
    lines.push_back(line);
    if (lines.size() > static_cast<size_t>(count)) lines.pop_front();
  }
  std::string text;
  for (const std::string& line : lines) text += fmt::format("{}    {}", text.empty() ? "" : "\n", line);
  return text;
}

}  // namespace leeway
