#include "envs/latency_environment.h"

#include <cmath>
#include <map>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "envs/call_syntax.h"
#include "envs/task_wrapper.h"

namespace leeway {
namespace {

constexpr char kExample[] = "lognormal(median=20ms, sigma=1.0)";
constexpr double kMaxSigma = 5.0;

class LatencyEnvironment : public EnvironmentWrapper {
 public:
  LatencyEnvironment(std::unique_ptr<Environment> inner, const LatencyDistribution& distribution, const EpisodeKey& key)
      : EnvironmentWrapper(std::move(inner)), distribution_(distribution), key_(key) {}

  absl::StatusOr<Observation> Reset(uint64_t seed) override {
    calls_ = 0;
    DrawLatency();
    return inner().Reset(seed);
  }
  absl::StatusOr<StepResult> Step(const std::string& answer) override {
    DrawLatency();
    return inner().Step(answer);
  }
  absl::Duration SimulatedLatency() const override { return latency_ + inner().SimulatedLatency(); }

 private:
  void DrawLatency() { latency_ = LatencyOf(distribution_, key_, calls_++); }

  const LatencyDistribution distribution_;
  const EpisodeKey key_;

  // Calls of this episode so far, Reset included.
  uint32_t calls_ = 0;
  absl::Duration latency_ = absl::ZeroDuration();
};

class LatencyTask : public TaskWrapper {
 public:
  LatencyTask(std::unique_ptr<Task> inner, const LatencyDistribution& distribution)
      : TaskWrapper(std::move(inner)), distribution_(distribution) {}

  std::unique_ptr<Environment> NewEnvironmentFor(const EpisodeKey& key) const override {
    return std::make_unique<LatencyEnvironment>(inner().NewEnvironmentFor(key), distribution_, key);
  }

 private:
  const LatencyDistribution distribution_;
};

}  // namespace

absl::StatusOr<LatencyDistribution> ParseLatency(absl::string_view text) {
  using Arguments = std::map<std::string, std::string>;
  LEEWAY_ASSIGN_OR_RETURN(Arguments arguments, internal::ParseCall(text, "lognormal", "median,sigma", kExample));
  const auto fault = [&](const std::string& what) {
    return absl::InvalidArgumentError(absl::StrCat("'", text, "': ", what, "; expected for example ", kExample));
  };
  for (const char* key : {"median", "sigma"}) {
    if (arguments.count(key) == 0) return fault(absl::StrCat("'", key, "' is missing"));
  }
  LatencyDistribution distribution;
  const std::string& median = arguments["median"];
  if (!absl::ParseDuration(median, &distribution.median)) {
    return fault(absl::StrCat("median '", median, "' is not a duration with a unit"));
  }
  if (distribution.median <= absl::ZeroDuration() || distribution.median == absl::InfiniteDuration()) {
    return fault(absl::StrCat("median '", median, "' is not positive and finite"));
  }
  const std::string& sigma = arguments["sigma"];
  // Written so that NaN fails too.
  if (!absl::SimpleAtod(sigma, &distribution.sigma) ||
      !(distribution.sigma >= 0.0 && distribution.sigma <= kMaxSigma)) {
    return fault(absl::StrCat("sigma '", sigma, "' is not a number from 0 to ", kMaxSigma));
  }
  return distribution;
}

absl::Duration LatencyOf(const LatencyDistribution& distribution, const EpisodeKey& key, uint32_t call) {
  const double normal = RandomNormal({.seed = key.run_seed,
                                      .purpose = RandomPurpose::kLatency,
                                      .ticket = key.ticket,
                                      .member = key.member,
                                      .interaction = call});
  return distribution.median * std::exp(distribution.sigma * normal);
}

std::unique_ptr<Task> WithLatency(std::unique_ptr<Task> task, const LatencyDistribution& distribution) {
  return std::make_unique<LatencyTask>(std::move(task), distribution);
}

}  // namespace leeway
