#include "envs/play.h"

#include <cmath>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace leeway {
namespace {

absl::Status CheckAnswer(const Observation& observation, const std::string& answer) {
  if (answer.size() > static_cast<size_t>(observation.max_answer_tokens)) {
    return absl::InvalidArgumentError(absl::StrCat("answer '", absl::CHexEscape(answer), "' is longer than the ",
                                                   observation.max_answer_tokens, " characters allowed"));
  }
  if (!observation.legal_characters.has_value()) return absl::OkStatus();
  if (answer.find_first_not_of(*observation.legal_characters) != std::string::npos) {
    return absl::InvalidArgumentError(absl::StrCat("answer '", absl::CHexEscape(answer),
                                                   "' has a character that is not in the legal set '",
                                                   absl::CHexEscape(*observation.legal_characters), "'"));
  }
  if (!observation.end_of_text_is_legal && answer.size() < static_cast<size_t>(observation.max_answer_tokens)) {
    return absl::InvalidArgumentError(absl::StrCat("answer '", absl::CHexEscape(answer), "' ends before its ",
                                                   observation.max_answer_tokens,
                                                   " characters, but end-of-text is not legal"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckObservation(const Observation& observation) {
  if (observation.max_answer_tokens < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("observation allows ", observation.max_answer_tokens, " answer tokens; at least 1 is needed"));
  }
  if (observation.legal_characters.has_value() && observation.legal_characters->empty() &&
      !observation.end_of_text_is_legal) {
    return absl::InvalidArgumentError(
        "observation has no legal answer: no legal character, and end-of-text is not legal");
  }
  return absl::OkStatus();
}

absl::StatusOr<PlayedEpisode> PlayEpisode(Environment& environment, uint64_t seed, const Policy& policy,
                                          int max_turns) {
  PlayedEpisode episode;
  LEEWAY_ASSIGN_OR_RETURN(Observation observation, environment.Reset(seed));
  while (episode.turns < max_turns) {
    LEEWAY_RETURN_IF_ERROR(CheckObservation(observation));
    const std::string answer = policy(observation);
    LEEWAY_RETURN_IF_ERROR(CheckAnswer(observation, answer));
    absl::StrAppend(&episode.transcript, observation.text, answer);
    LEEWAY_ASSIGN_OR_RETURN(StepResult result, environment.Step(answer));
    ++episode.turns;
    if (result.reward.has_value()) {
      if (!std::isfinite(*result.reward)) {
        return absl::InvalidArgumentError(absl::StrCat("reward of turn ", episode.turns, " is ", *result.reward));
      }
      episode.reward = episode.reward.value_or(0.0) + *result.reward;
    }
    episode.state = result.state;
    if (episode.state != EpisodeState::kRunning) return episode;
    observation = std::move(result.next);
  }
  return absl::DeadlineExceededError(absl::StrCat("the episode is not over after ", max_turns, " turns"));
}

}  // namespace leeway
