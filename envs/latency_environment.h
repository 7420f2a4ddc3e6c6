#ifndef LEEWAY_ENVS_LATENCY_ENVIRONMENT_H_
#define LEEWAY_ENVS_LATENCY_ENVIRONMENT_H_

// Makes any task slow, to show what asynchrony is worth: each call of an environment is deemed to take a log-normal
// time. The time is reported through SimulatedLatency, so it holds no thread.

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "envs/environment.h"

namespace leeway {

// exp(Normal(log(median), sigma)).
struct LatencyDistribution {
  absl::Duration median;
  double sigma = 0.0;
};

// Parses the configuration's `task.latency`: "lognormal(median=20ms, sigma=1.0)". The median is a positive duration
// with a unit (ms, s, m), sigma a number from 0 to 5; both are required. INVALID_ARGUMENT: says which part is wrong and
// shows the form that is expected.
absl::StatusOr<LatencyDistribution> ParseLatency(absl::string_view text);

// The latency of call `call` (0 = Reset, then the steps) of an episode: a pure function of (run seed, ticket, member,
// call), so it does not depend on the attempt, on threads, or on what other episodes do.
absl::Duration LatencyOf(const LatencyDistribution& distribution, const EpisodeKey& key, uint32_t call);

// `task` with that latency added to what its environments report themselves.
std::unique_ptr<Task> WithLatency(std::unique_ptr<Task> task, const LatencyDistribution& distribution);

}  // namespace leeway

#endif  // LEEWAY_ENVS_LATENCY_ENVIRONMENT_H_
