#ifndef LEEWAY_LAUNCH_DISPLAY_JOB_VIEW_H_
#define LEEWAY_LAUNCH_DISPLAY_JOB_VIEW_H_

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/clock.h"
#include "launch/report/metrics_file.h"
#include "leeway/v1/queue.pb.h"

namespace leeway {

// What is known of a running job, put together from metrics.jsonl and the queue's status. Plain; no threads, no I/O.
class JobView {
 public:
  // `batch_episodes`: episodes of one step (B·G).
  JobView(int64_t total_steps, int workers, int64_t batch_episodes, MonotonicTime start)
      : total_steps_(total_steps),
        workers_(workers),
        batch_episodes_(batch_episodes),
        start_(start),
        last_progress_(start) {}

  // A line of metrics.jsonl. Lines of a restored trainer may begin again below.
  void OnMetrics(const MetricsLine& line, MonotonicTime now);
  // The queue's answer; nullopt: it does not answer.
  void OnStatus(const std::optional<v1::StatusResponse>& status, MonotonicTime now);
  void set_restarts(int restarts) { restarts_ = restarts; }
  // What the trainer last said in its log before its first version.
  void set_trainer_note(std::string note) { trainer_note_ = std::move(note); }
  // The job is ending; these processes are still there.
  void set_ending(std::vector<std::string> remaining) { remaining_ = std::move(remaining); }
  // Something else moved.
  void NoteProgress(MonotonicTime now) { last_progress_ = now; }

  // True once for every step that no earlier life of the trainer had reached.
  bool TakeProgress();
  // Time since anything moved: a step, a completed trajectory, an evaluation episode, whatever NoteProgress was told;
  // or a turn of an episode, unless a whole batch of episodes has failed since without one that was completed.
  absl::Duration since_progress(MonotonicTime now) const { return now - last_progress_; }
  // Who waits for what, for how long, since which lease: for the watchdog's last words. Longest wait first.
  std::string DescribeWaits() const;

  // Why the queue's store takes no trajectories at the moment ("disk full: ..."); empty: it takes them.
  std::string StoreRefusal() const;

  int64_t step() const { return step_; }
  int64_t total_steps() const { return total_steps_; }
  int restarts() const { return restarts_; }
  const MetricsLine& last_line() const { return last_line_; }
  std::optional<double> last_evaluation() const { return last_evaluation_; }
  std::optional<double> best_evaluation() const { return best_evaluation_; }
  const std::optional<v1::StatusResponse>& status() const { return status_; }
  // Mean reward of the newest steps (up to 10), less noisy than one step's.
  std::optional<double> recent_reward() const;
  // Seconds that a role spent in each state ("wait:queue_full") in the newest steps, all its processes together.
  std::map<std::string, double> recent_states(const std::string& role) const;
  // Steps a second of the run's own clock (time/wall_s) over the newest steps; 0 until two are known.
  double steps_per_second() const;
  std::optional<absl::Duration> time_left() const;
  absl::Duration elapsed(MonotonicTime now) const { return now - start_; }
  // What there is to say instead of figures, before the first step and while the job ends; empty in between.
  std::string Phase() const;

 private:
  const int64_t total_steps_;
  const int workers_;
  const int64_t batch_episodes_;
  const MonotonicTime start_;

  int64_t step_ = 0;
  int64_t best_step_ = 0;
  bool has_progress_ = false;
  MonotonicTime last_progress_;
  // What moves while the job does; any change is progress.
  uint64_t progress_mark_ = 0;
  double turns_ = 0;
  uint64_t failures_ = 0;
  uint64_t failures_at_progress_ = 0;
  int restarts_ = 0;
  MetricsLine last_line_;
  std::deque<double> rewards_;
  std::deque<MetricsLine> recent_;
  std::deque<std::pair<int64_t, double>> step_times_s_;
  std::optional<double> last_evaluation_;
  std::optional<double> best_evaluation_;
  std::optional<v1::StatusResponse> status_;
  std::string trainer_note_;
  std::optional<std::vector<std::string>> remaining_;
};

}  // namespace leeway

#endif  // LEEWAY_LAUNCH_DISPLAY_JOB_VIEW_H_
