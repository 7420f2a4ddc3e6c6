#include "base/metrics.h"

#include <prometheus/exposer.h>
#include <prometheus/gauge.h>
#include <prometheus/registry.h>

#include <exception>
#include <utility>

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
}  // namespace

struct Metrics::State {
  std::shared_ptr<prometheus::Registry> registry = std::make_shared<prometheus::Registry>();
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
    return state_->exposer->GetListeningPorts().front();
  } catch (const std::exception& error) {
    return absl::UnavailableError(absl::StrCat("metrics endpoint on 127.0.0.1:", port, ": ", error.what()));
  }
}

}  // namespace leeway
