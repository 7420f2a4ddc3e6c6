#ifndef LEEWAY_ROLLOUT_ROLLOUT_OPTIONS_H_
#define LEEWAY_ROLLOUT_ROLLOUT_OPTIONS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "model/shape.h"
#include "rollout/engine/engine.h"
#include "rollout/engine/sampler.h"
#include "rollout/episodes/episode_runner.h"

namespace leeway {

// What a rollout worker is told. launch fills it from the resolved configuration.
struct RolloutOptions {
  // Unique per worker slot; a restarted worker uses the same one, which fences its former life.
  std::string name = "rollout-0";
  std::string run_fingerprint;
  // The run's seed: all sampling derives from it.
  uint64_t seed = 0;
  ModelShape shape;
  // Weights come as bf16 and are computed with as such (model.dtype).
  bool bf16_weights = false;
  UpdateMode update_mode = UpdateMode::kFinish;

  // Training episodes: temperature only (DESIGN 3.3). Evaluation may use everything.
  float temperature = 1.0f;
  SamplingParameters evaluation_sampling;

  // Episodes under way at once (slots). Tickets are acquired while some are free.
  int max_episodes = 384;
  // New tokens in one forward pass, prefill and decode together; decodes always run.
  int64_t token_budget = 4096;
  // Threads of the kernels (class "compute", the driving loop included) and of environments (class "env").
  int compute_threads = 1;
  int environment_threads = 4;

  EpisodeLimits limits;

  // Trajectories pushed and not answered at which no new episode is started.
  int max_unanswered_pushes = 1024;
  // The queue did not answer anything for so long: Run ends with UNAVAILABLE.
  absl::Duration queue_timeout = absl::Seconds(120);
  // The loader of weights did not come back for so long from a load that was given up: Run ends with UNAVAILABLE.
  absl::Duration abandoned_load_timeout = absl::Seconds(5);
  // Nothing progressed for so long: a line in the log says what waits; a driving loop stuck for twice as long sends no
  // heartbeat, so that the queue gives its tickets to others.
  absl::Duration watchdog_period = absl::Seconds(30);

  // INVALID_ARGUMENT listing everything that is impossible, in the words of the configuration keys.
  absl::Status Validate() const;
};

}  // namespace leeway

#endif  // LEEWAY_ROLLOUT_ROLLOUT_OPTIONS_H_
