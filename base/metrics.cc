#include "base/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/exposer.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/mutex.h"

namespace leeway {
namespace {
std::string PrometheusName(absl::string_view name) {
  return absl::StrCat("leeway_", absl::StrReplaceAll(name, {{"/", "_"}, {"-", "_"}, {".", "_"}}));
}
}  // namespace

struct Metrics::State {
  std::shared_ptr<prometheus::Registry> registry = std::make_shared<prometheus::Registry>();
  Mutex mutex;
  std::map<std::string, prometheus::Gauge*> gauges LEEWAY_GUARDED_BY(mutex);
  std::map<std::string, prometheus::Counter*> counters LEEWAY_GUARDED_BY(mutex);
  std::map<std::string, prometheus::Histogram*> histograms LEEWAY_GUARDED_BY(mutex);
  std::unique_ptr<prometheus::Exposer> exposer;
};

Metrics::Metrics() : state_(std::make_unique<State>()) {}
Metrics::~Metrics() = default;

void Metrics::SetGauge(absl::string_view name, double value) {
  MutexLock lock(&state_->mutex);
  prometheus::Gauge*& gauge = state_->gauges[std::string(name)];
  if (gauge == nullptr)
    gauge = &prometheus::BuildGauge().Name(PrometheusName(name)).Register(*state_->registry).Add({});
  gauge->Set(value);
}

void Metrics::AddToCounter(absl::string_view name, double by) {
  MutexLock lock(&state_->mutex);
  prometheus::Counter*& counter = state_->counters[std::string(name)];
  if (counter == nullptr)
    counter = &prometheus::BuildCounter().Name(PrometheusName(name)).Register(*state_->registry).Add({});
  counter->Increment(by);
}

void Metrics::Observe(absl::string_view name, double value, const std::vector<double>& bounds) {
  MutexLock lock(&state_->mutex);
  prometheus::Histogram*& histogram = state_->histograms[std::string(name)];
  if (histogram == nullptr) {
    histogram = &prometheus::BuildHistogram().Name(PrometheusName(name)).Register(*state_->registry).Add({}, bounds);
  }
  histogram->Observe(value);
}

std::map<std::string, double> Metrics::Snapshot() const {
  MutexLock lock(&state_->mutex);
  std::map<std::string, double> values;
  for (const auto& [name, gauge] : state_->gauges) values[name] = gauge->Value();
  for (const auto& [name, counter] : state_->counters) values[name] = counter->Value();
  return values;
}

absl::StatusOr<int> Metrics::Serve(int port) {
  try {
    state_->exposer = std::make_unique<prometheus::Exposer>(absl::StrCat("127.0.0.1:", port), /*num_threads=*/1);
    state_->exposer->RegisterCollectable(state_->registry);
    return state_->exposer->GetListeningPorts().front();
  } catch (const std::exception& error) {
    return absl::UnavailableError(absl::StrCat("metrics endpoint on 127.0.0.1:", port, ": ", error.what()));
  }
}

}  // namespace leeway
