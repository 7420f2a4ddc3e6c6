#ifndef LEEWAY_BASE_METRICS_H_
#define LEEWAY_BASE_METRICS_H_

#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/histogram.h"

namespace leeway {

// A process's metrics under their `area/name` names ("queue/groups"). The same values go to metrics.jsonl (through the
// trainer) and, as `leeway_area_name`, to a Prometheus endpoint: there every byte that Prometheus does not take in a
// name is '_', and names that become equal show the last value. Thread-safe.
class Metrics {
 public:
  Metrics();
  ~Metrics();
  void SetGauge(absl::string_view name, double value);
  // For the endpoint alone, as a Prometheus histogram.
  void SetHistogram(absl::string_view name, const Histogram& histogram);
  // The gauges as they are now.
  std::map<std::string, double> Snapshot() const;

  // Serves /metrics on 127.0.0.1:port (0 = any free one) until the object dies; returns the port.
  absl::StatusOr<int> Serve(int port);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace leeway

#endif  // LEEWAY_BASE_METRICS_H_
