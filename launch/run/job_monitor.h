#ifndef LEEWAY_LAUNCH_RUN_JOB_MONITOR_H_
#define LEEWAY_LAUNCH_RUN_JOB_MONITOR_H_

#include <map>
#include <memory>
#include <string>

#include "base/clock.h"
#include "launch/config/config.h"
#include "launch/display/job_view.h"
#include "launch/display/log_tail.h"
#include "launch/display/status_feed.h"
#include "launch/display/terminal.h"
#include "launch/report/tensorboard_writer.h"
#include "launch/run/run_directory.h"
#include "launch/supervision/supervisor.h"

namespace leeway {

// Watches a job for its supervisor: follows metrics.jsonl and the queue's status, shows them, writes TensorBoard files
// and process samples, and notices when nothing progresses. All on the supervisor's thread; StatusFeed has its own.
class JobMonitor : public SupervisionObserver {
 public:
  // All pointers outlive the object.
  JobMonitor(const Config& config, const RunPaths& paths, StatusFeed* feed, Terminal* terminal,
             const Clock* clock = RealClock());

  void OnEvent(const std::string& line, const std::string& log_path) override;
  Pulse OnPulse(const SupervisionPolicy& policy) override;

  const JobView& view() const { return view_; }
  // Why the job ends, with what the process that ended it said last.
  std::string Reason(const SupervisionPolicy& policy) const;
  // The newest answer of the queue while it lived.
  const std::optional<v1::StatusResponse>& last_status() const { return last_status_; }

 private:
  void FollowMetrics(MonotonicTime now);
  void FollowStatus(MonotonicTime now);
  // Shows errors as they are logged. The trainer's log moves in long work when nothing else does: it is a sign of life.
  void FollowLogs(const SupervisionPolicy& policy, MonotonicTime now);

  const RunPaths paths_;
  const absl::Duration stall_timeout_;
  StatusFeed* const feed_;
  Terminal* const terminal_;
  const Clock* const clock_;
  const MonotonicTime start_;
  // On the run's own clock: seconds of earlier starts, from the last line that they left.
  bool has_read_metrics_ = false;
  double run_seconds_before_ = 0;
  JobView view_;
  MetricsTail tail_;
  std::unique_ptr<TensorboardWriter> tensorboard_;
  bool tensorboard_failed_ = false;
  uint64_t last_serial_ = 0;
  struct FollowedLog {
    LogTail tail;
    int errors_shown = 0;
    // What the process ended with, if it said so.
    std::string last_words;
  };
  std::map<std::string, FollowedLog> logs_;  // by process
  MonotonicTime next_sample_;
  std::optional<v1::StatusResponse> last_status_;
  bool was_ending_ = false;
};

// The view of a job that has just been started.
JobView ViewOf(const Config& config, MonotonicTime start);

// The last lines of a file, indented; empty if there are none.
std::string LastLines(const std::string& path, int count);

}  // namespace leeway

#endif  // LEEWAY_LAUNCH_RUN_JOB_MONITOR_H_
