#ifndef LEEWAY_LAUNCH_REPORT_METRICS_FILE_H_
#define LEEWAY_LAUNCH_REPORT_METRICS_FILE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace leeway {

// One line of metrics.jsonl: numbers by metric name, and the lag histogram (trained tokens by lag). Values that were
// not finite (null in the file) are left out.
struct MetricsLine {
  std::map<std::string, double> values;
  std::vector<int64_t> lag_histogram;

  std::optional<double> Get(const std::string& name) const;
  double GetOr(const std::string& name, double fallback) const { return Get(name).value_or(fallback); }
  int64_t step() const { return static_cast<int64_t>(GetOr("step", 0)); }
};

// nullopt for anything but a JSON object with a "step" (a torn last line, for example).
std::optional<MetricsLine> ParseMetricsLine(const std::string& text);

// All lines of a file up to the first bad one, in order. An absent file has none.
std::vector<MetricsLine> ReadMetricsFile(const std::string& path);

// Follows a metrics.jsonl that another process appends to. A trainer that restores cuts the file back; then everything
// is read again.
class MetricsTail {
 public:
  explicit MetricsTail(std::string path) : path_(std::move(path)) {}

  struct News {
    // What was read before is void (the file became shorter): start over with `lines`.
    bool restarted = false;
    std::vector<MetricsLine> lines;
  };
  // What came since the last call. Blocks on the file only.
  News Poll();

 private:
  const std::string path_;
  uint64_t offset_ = 0;  // behind the last whole line read
  // The bytes just before offset_, to notice a file that was cut back and has grown past offset_ again.
  std::string last_line_;
};

}  // namespace leeway

#endif  // LEEWAY_LAUNCH_REPORT_METRICS_FILE_H_
