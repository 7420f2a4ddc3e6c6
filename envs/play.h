#ifndef LEEWAY_ENVS_PLAY_H_
#define LEEWAY_ENVS_PLAY_H_

#include <functional>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "envs/environment.h"

namespace leeway {

// INVALID_ARGUMENT where no policy could answer an observation or it is malformed: an answer length below 1, a legal
// set without a character while end-of-text is not legal either.
absl::Status CheckObservation(const Observation& observation);

// Answers an observation with text of legal characters, at most max_answer_tokens bytes of it.
using Policy = std::function<std::string(const Observation& observation)>;

struct PlayedEpisode {
  // Sum of the rewards given; absent = the episode was never scored.
  std::optional<double> reward;
  int turns = 0;
  EpisodeState state = EpisodeState::kRunning;
  // Observations and answers as one text.
  std::string transcript;
};

// Plays one episode with a scripted policy and holds both sides to the rules: for tests of tasks, examples and
// debugging. Errors: those of the environment; INVALID_ARGUMENT for an illegal answer, a malformed observation or a
// reward that is not finite; DEADLINE_EXCEEDED when the episode is not over after `max_turns` turns.
absl::StatusOr<PlayedEpisode> PlayEpisode(Environment& environment, uint64_t seed, const Policy& policy, int max_turns);

}  // namespace leeway

#endif  // LEEWAY_ENVS_PLAY_H_
