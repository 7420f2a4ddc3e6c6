#include "launch/display/job_view.h"

#include <algorithm>

#include "fmt/format.h"
#include "fmt/ranges.h"

namespace leeway {
namespace {

constexpr size_t kRecentSteps = 10;

}  // namespace

void JobView::OnMetrics(const MetricsLine& line, MonotonicTime now) {
  last_progress_ = now;
  if (const auto evaluation = line.Get("eval/reward")) {
    last_evaluation_ = evaluation;
    best_evaluation_ = std::max(best_evaluation_.value_or(*evaluation), *evaluation);
  }
  if (line.step() == 0) return;
  if (line.step() <= step_) {
    // A restored trainer: rates begin anew.
    step_times_s_.clear();
    rewards_.clear();
    recent_.clear();
  }
  step_ = line.step();
  if (step_ > best_step_) {
    best_step_ = step_;
    has_progress_ = true;
  }
  last_line_ = line;
  if (const auto reward = line.Get("reward/mean")) rewards_.push_back(*reward);
  if (const auto wall_s = line.Get("time/wall_s")) step_times_s_.emplace_back(step_, *wall_s);
  recent_.push_back(line);
  while (recent_.size() > kRecentSteps) recent_.pop_front();
  while (rewards_.size() > kRecentSteps) rewards_.pop_front();
  while (step_times_s_.size() > 5 * kRecentSteps) step_times_s_.pop_front();
}

void JobView::OnStatus(const std::optional<v1::StatusResponse>& status, MonotonicTime now) {
  status_ = status;
  if (!status.has_value()) return;
  uint64_t mark = status->generated_tokens() + status->committed().version() + (status->committed().lineage() << 40);
  for (const v1::EvaluationResult& evaluation : status->evaluations()) mark += evaluation.episodes();
  double turns = 0;
  for (const v1::WorkerStatus& worker : status->workers()) {
    if (const auto found = worker.report().gauges().find("rollout/turns"); found != worker.report().gauges().end())
      turns += found->second;
  }
  failures_ = 0;
  for (const auto& [code, count] : status->episode_failures()) failures_ += count;
  const bool has_turned = std::exchange(turns_, turns) != turns;
  if (std::exchange(progress_mark_, mark) != mark) {
    failures_at_progress_ = failures_;
    last_progress_ = now;
  } else if (has_turned && failures_ - failures_at_progress_ < static_cast<uint64_t>(batch_episodes_)) {
    last_progress_ = now;
  }
}

bool JobView::TakeProgress() { return std::exchange(has_progress_, false); }

std::string JobView::DescribeWaits() const {
  if (!status_.has_value()) return "the queue does not answer";
  std::vector<v1::OpenWait> waits(status_->waits().begin(), status_->waits().end());
  std::sort(waits.begin(), waits.end(),
            [](const v1::OpenWait& a, const v1::OpenWait& b) { return a.seconds() > b.seconds(); });
  std::string text;
  const bool is_trainer_waiting =
      std::any_of(waits.begin(), waits.end(), [](const v1::OpenWait& wait) { return wait.who() == "trainer"; });
  if (failures_ > failures_at_progress_) {
    text = fmt::format("{} episodes failed and none was completed (in all:", failures_ - failures_at_progress_);
    const std::map<std::string, uint64_t> by_code(status_->episode_failures().begin(),
                                                  status_->episode_failures().end());
    for (const auto& [code, count] : by_code) text += fmt::format(" {} {}", code, count);
    text += ")";
  }
  for (const v1::OpenWait& wait : waits) {
    if (!text.empty()) text += "; ";
    text += fmt::format("{} waits ({}) for {:.1f} s", wait.who(), wait.cause(), wait.seconds());
    if (!wait.detail().empty()) text += ": " + wait.detail();
  }
  if (!is_trainer_waiting) {
    text += text.empty() ? "" : "; ";
    text += "the trainer waits for nothing at the queue: it computes, publishes, or has stopped";
  }
  for (const v1::WorkerStatus& worker : status_->workers()) {
    if (!text.empty()) text += "; ";
    text += fmt::format("{} {}, version {}, {} tickets, heard {:.1f} s ago", worker.name(),
                        worker.alive() ? "is alive" : "is lost", worker.holds().version(), worker.running_tickets(),
                        worker.seconds_since_heartbeat());
  }
  for (const v1::EvaluationResult& evaluation : status_->evaluations()) {
    if (evaluation.complete()) continue;
    text += fmt::format("{}evaluation of version {} has {} episodes", text.empty() ? "" : "; ",
                        evaluation.weights().version(), evaluation.episodes());
  }
  return text;
}

std::string JobView::StoreRefusal() const {
  if (!status_.has_value()) return "";
  for (const v1::OpenWait& wait : status_->waits()) {
    if (wait.cause() == "store_refuses") return wait.detail();
  }
  return "";
}

std::optional<double> JobView::recent_reward() const {
  if (rewards_.empty()) return std::nullopt;
  double sum = 0;
  for (const double reward : rewards_) sum += reward;
  return sum / static_cast<double>(rewards_.size());
}

std::map<std::string, double> JobView::recent_states(const std::string& role) const {
  std::map<std::string, double> states;
  for (const MetricsLine& line : recent_) {
    for (const std::string kind : {"wait", "busy"}) {
      const std::string prefix = kind + "/" + role + "/";
      for (auto at = line.values.lower_bound(prefix); at != line.values.end() && at->first.rfind(prefix, 0) == 0;
           ++at) {
        const std::string state =
            at->first.substr(prefix.size(), at->first.size() - prefix.size() - 2);  // without "_s"
        states[kind + ":" + state] += at->second;
      }
    }
  }
  return states;
}

double JobView::steps_per_second() const {
  if (step_times_s_.size() < 2) return 0;
  const double seconds = step_times_s_.back().second - step_times_s_.front().second;
  return seconds > 0 ? static_cast<double>(step_times_s_.back().first - step_times_s_.front().first) / seconds : 0;
}

std::optional<absl::Duration> JobView::time_left() const {
  const double rate = steps_per_second();
  if (rate <= 0) return std::nullopt;
  return absl::Seconds(static_cast<double>(total_steps_ - step_) / rate);
}

std::string JobView::Phase() const {
  if (remaining_.has_value()) return fmt::format("ending: waiting for {}", fmt::join(*remaining_, ", "));
  if (step_ > 0) return "";
  if (!status_.has_value()) return "starting: waiting for the queue";
  int alive = 0;
  for (const v1::WorkerStatus& worker : status_->workers()) alive += worker.alive() ? 1 : 0;
  if (status_->committed().version() == 0) {
    return fmt::format("starting: {} of {} rollout workers registered, waiting for the trainer's first weights{}",
                       alive, workers_, trainer_note_.empty() ? "" : fmt::format(" (it says: {})", trainer_note_));
  }
  return fmt::format("first step: {} groups generated or under way, {} ready, {} episodes failed", status_->groups(),
                     status_->counts().ready(), failures_);
}

}  // namespace leeway
