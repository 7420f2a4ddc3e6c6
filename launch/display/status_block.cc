#include "launch/display/status_block.h"

#include <algorithm>
#include <map>

#include "fmt/format.h"

namespace leeway {
namespace {

// Columns of a UTF-8 text (no wide characters are used here).
size_t Columns(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string Cut(std::string text, size_t width) {
  while (Columns(text) > width) {
    do {
      text.pop_back();
    } while (!text.empty() && (text.back() & 0xC0) == 0x80);
    if (!text.empty() && (static_cast<unsigned char>(text.back()) >= 0xC0)) text.pop_back();
  }
  return text;
}

std::string Bar(double share, int width) {
  const int filled = static_cast<int>(std::clamp(share, 0.0, 1.0) * width);
  std::string bar;
  for (int i = 0; i < width; ++i) bar += i < filled ? "█" : "░";
  return bar;
}

std::string Optional(const std::optional<double>& value, const char* format = "{:.3f}") {
  return value.has_value() ? fmt::format(fmt::runtime(format), *value) : "–";
}

// The largest shares of the newest steps that a role spent waiting: "waiting_for_groups 41 %".
std::string Waits(const JobView& view, const std::string& role) {
  double total = 0;
  std::vector<std::pair<double, std::string>> waits;
  for (const auto& [state, seconds] : view.recent_states(role)) {
    total += seconds;
    if (state.rfind("wait:", 0) == 0) waits.emplace_back(seconds, state.substr(5));
  }
  if (total <= 0 || waits.empty()) return "–";
  std::sort(waits.rbegin(), waits.rend());
  std::string text;
  for (size_t i = 0; i < waits.size() && i < 2; ++i) {
    const double share = waits[i].first / total;
    if (i > 0 && share < 0.05) break;
    text += fmt::format("{}{} {:.0f} %", text.empty() ? "" : ", ", waits[i].second, 100 * share);
  }
  return text;
}

std::string Failures(const JobView& view) {
  if (!view.status().has_value()) return "0";
  uint64_t total = 0;
  std::string detail;
  for (const auto& [code, count] : std::map<std::string, uint64_t>(view.status()->episode_failures().begin(),
                                                                   view.status()->episode_failures().end())) {
    total += count;
    detail += fmt::format("{}{} {}", detail.empty() ? "" : ", ", code, count);
  }
  return total == 0 ? "0" : fmt::format("{} ({})", total, detail);
}

// Steps that changed no weight, because something in them was not finite.
std::string Skipped(const JobView& view) {
  const double skipped = view.last_line().GetOr("optimizer/skipped_steps", 0);
  return skipped > 0 ? fmt::format("   NOT FINITE {:.0f} steps", skipped) : "";
}

}  // namespace

std::string FormatSpan(absl::Duration span) {
  const int64_t seconds = absl::ToInt64Seconds(span);
  if (seconds < 60) return fmt::format("{} s", seconds);
  if (seconds < 3600) return fmt::format("{}:{:02}", seconds / 60, seconds % 60);
  return fmt::format("{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
}

std::string FormatCount(double count) {
  if (count < 1e4) return fmt::format("{:.0f}", count);
  if (count < 1e6) return fmt::format("{:.1f}k", count / 1e3);
  return fmt::format("{:.2f}M", count / 1e6);
}

std::vector<std::string> StatusBlock(const JobView& view, MonotonicTime now, int width) {
  const MetricsLine& line = view.last_line();
  std::vector<std::string> rows;
  const double share =
      view.total_steps() > 0 ? static_cast<double>(view.step()) / static_cast<double>(view.total_steps()) : 0;
  const auto left = view.time_left();
  rows.push_back(fmt::format("step     {} {}/{}   {} elapsed, {} left", Bar(share, 24), view.step(), view.total_steps(),
                             FormatSpan(view.elapsed(now)), left.has_value() ? FormatSpan(*left) : "?"));
  if (const std::string phase = view.Phase(); !phase.empty()) {
    rows.push_back(fmt::format("         {}", phase));
  } else {
    rows.push_back(fmt::format("reward   {} (mean of 10 steps)   eval {}   best eval {}",
                               Optional(view.recent_reward()), Optional(view.last_evaluation()),
                               Optional(view.best_evaluation())));
    rows.push_back(fmt::format("lag      mean {:.2f}, max {:.0f}   tokens/s train {}, generate {}",
                               line.GetOr("staleness/mean", 0), line.GetOr("staleness/max", 0),
                               FormatCount(line.GetOr("throughput/train_tokens_per_s", 0)),
                               FormatCount(line.GetOr("throughput/generate_tokens_per_s", 0))));
    rows.push_back(fmt::format("waits    trainer {}   rollout {}", Waits(view, "trainer"), Waits(view, "rollout")));
  }
  if (view.status().has_value()) {
    const v1::StatusResponse& status = *view.status();
    rows.push_back(fmt::format("queue    {} groups ({} running, {} ready), {} KiB   restarts {}{}   failures {}",
                               status.groups(), status.counts().running(), status.counts().ready(),
                               status.bytes() / 1024, view.restarts(), Skipped(view), Failures(view)));
  }
  if (const std::string refusal = view.StoreRefusal(); !refusal.empty()) {
    rows.push_back(fmt::format("PUSHES REFUSED by the queue's store: {}", refusal));
  }
  for (std::string& row : rows) row = Cut(row, static_cast<size_t>(std::max(width, 1)));
  return rows;
}

std::string StatusLine(const JobView& view, MonotonicTime now) {
  std::string refused = view.StoreRefusal();
  if (!refused.empty()) refused = "  PUSHES REFUSED by the queue's store: " + refused;
  if (const std::string phase = view.Phase(); !phase.empty())
    return fmt::format("[{}] {}{}", FormatSpan(view.elapsed(now)), phase, refused);
  const MetricsLine& line = view.last_line();
  const auto left = view.time_left();
  std::string text =
      fmt::format("[{}] step {}/{}  reward {}  eval {}  lag {:.2f} (max {:.0f})  tokens/s {} trained, {} generated",
                  FormatSpan(view.elapsed(now)), view.step(), view.total_steps(), Optional(view.recent_reward()),
                  Optional(view.last_evaluation()), line.GetOr("staleness/mean", 0), line.GetOr("staleness/max", 0),
                  FormatCount(line.GetOr("throughput/train_tokens_per_s", 0)),
                  FormatCount(line.GetOr("throughput/generate_tokens_per_s", 0)));
  if (view.status().has_value()) {
    text += fmt::format("  queue {} ({} ready)", view.status()->groups(), view.status()->counts().ready());
  }
  text += fmt::format("  waits: trainer {}; rollout {}  restarts {}{}  failures {}  left {}", Waits(view, "trainer"),
                      Waits(view, "rollout"), view.restarts(), Skipped(view), Failures(view),
                      left.has_value() ? FormatSpan(*left) : "?");
  return text + refused;
}

}  // namespace leeway
