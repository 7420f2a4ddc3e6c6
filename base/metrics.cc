#include "base/metrics.h"

#include <prometheus/collectable.h>
#include <prometheus/exposer.h>
#include <prometheus/gauge.h>
#include <prometheus/registry.h>

#include <exception>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/mutex.h"

namespace leeway {
namespace {
std::string PrometheusName(absl::string_view name) {
  std::string text = absl::StrCat("leeway_", name);
  for (char& letter : text) {
    if (!absl::ascii_isalnum(letter)) letter = '_';
  }
  return text;
}

// The histograms as Prometheus asks for them.
class Histograms final : public prometheus::Collectable {
 public:
  void Set(absl::string_view name, const Histogram& histogram) LEEWAY_EXCLUDES(mutex_) {
    MutexLock lock(&mutex_);
    histograms_.insert_or_assign(PrometheusName(name), histogram);
  }
  std::vector<prometheus::MetricFamily> Collect() const override LEEWAY_EXCLUDES(mutex_) {
    MutexLock lock(&mutex_);
    std::vector<prometheus::MetricFamily> families;
    for (const auto& [name, histogram] : histograms_) {
      prometheus::MetricFamily& family = families.emplace_back();
      family.name = name;
      family.type = prometheus::MetricType::Histogram;
      prometheus::ClientMetric::Histogram& filled = family.metric.emplace_back().histogram;
      filled.sample_count = histogram.total();
      filled.sample_sum = histogram.sum();
      uint64_t cumulative = 0;
      for (size_t i = 0; i < histogram.counts().size(); ++i) {
        cumulative += histogram.counts()[i];
        const bool is_last = i == histogram.upper_bounds().size();
        filled.bucket.push_back(
            {cumulative, is_last ? std::numeric_limits<double>::infinity() : histogram.upper_bounds()[i]});
      }
    }
    return families;
  }

 private:
  mutable Mutex mutex_;
  std::map<std::string, Histogram> histograms_ LEEWAY_GUARDED_BY(mutex_);
};

}  // namespace

struct Metrics::State {
  std::shared_ptr<prometheus::Registry> registry = std::make_shared<prometheus::Registry>();
  const std::shared_ptr<Histograms> histograms = std::make_shared<Histograms>();
  Mutex mutex;
  std::map<std::string, prometheus::Gauge*> gauges LEEWAY_GUARDED_BY(mutex);
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

void Metrics::SetHistogram(absl::string_view name, const Histogram& histogram) {
  state_->histograms->Set(name, histogram);
}

std::map<std::string, double> Metrics::Snapshot() const {
  MutexLock lock(&state_->mutex);
  std::map<std::string, double> values;
  for (const auto& [name, gauge] : state_->gauges) values[name] = gauge->Value();
  return values;
}

absl::StatusOr<int> Metrics::Serve(int port) {
  try {
    state_->exposer = std::make_unique<prometheus::Exposer>(absl::StrCat("127.0.0.1:", port), /*num_threads=*/1);
    state_->exposer->RegisterCollectable(state_->registry);
    state_->exposer->RegisterCollectable(state_->histograms);
    return state_->exposer->GetListeningPorts().front();
  } catch (const std::exception& error) {
    return absl::UnavailableError(absl::StrCat("metrics endpoint on 127.0.0.1:", port, ": ", error.what()));
  }
}

}  // namespace leeway
