#include "envs/single_turn.h"

#include <algorithm>
#include <utility>

#include "base/status_macros.h"
#include "envs/stream_split.h"

namespace leeway {

absl::StatusOr<Observation> SingleTurnEnvironment::Reset(uint64_t seed) {
  LEEWAY_ASSIGN_OR_RETURN(exercise_, rules_->exercise_of_seed(seed));
  is_waiting_for_answer_ = true;
  Observation observation;
  observation.text = exercise_.prompt;
  observation.max_answer_tokens = rules_->max_answer_tokens;
  return observation;
}

absl::StatusOr<StepResult> SingleTurnEnvironment::Step(const std::string& answer) {
  if (!is_waiting_for_answer_) return absl::FailedPreconditionError("Step without a running episode: call Reset first");
  is_waiting_for_answer_ = false;
  StepResult result;
  result.state = EpisodeState::kTerminated;
  result.reward = rules_->score(exercise_, answer);
  return result;
}

namespace {

class ProceduralTask : public Task {
 public:
  explicit ProceduralTask(ProceduralTaskSpec spec)
      : spec_(std::move(spec)), rules_(std::make_shared<SingleTurnRules>()) {
    rules_->exercise_of_seed = spec_.exercise_of_seed;
    rules_->score = spec_.score;
    rules_->max_answer_tokens = spec_.max_answer_tokens;
  }

  std::string name() const override { return spec_.name; }
  std::unique_ptr<Environment> NewEnvironment() const override {
    return std::make_unique<SingleTurnEnvironment>(rules_);
  }
  uint64_t TrainSeed(uint64_t run_seed, uint64_t index) const override {
    return TrainStreamSeed(run_seed, index, [this](uint64_t seed) { return InstanceOf(seed); });
  }
  uint64_t EvaluationSeed(uint64_t run_seed, uint64_t index) const override {
    return HeldOutStreamSeed(run_seed, index, [this](uint64_t seed) { return InstanceOf(seed); });
  }
  std::optional<Demonstration> Demonstrate(uint64_t seed) const override {
    const Exercise exercise = spec_.exercise_of_seed(seed);
    Observation observation;
    observation.text = exercise.prompt;
    observation.max_answer_tokens = spec_.max_answer_tokens;
    Demonstration demonstration;
    demonstration.turns.emplace_back(std::move(observation), exercise.solution);
    return demonstration;
  }
  int max_turns() const override { return 1; }
  int max_episode_tokens() const override { return 1 + spec_.max_prompt_tokens + spec_.max_answer_tokens; }

 private:
  std::string InstanceOf(uint64_t seed) const { return spec_.instance_of(spec_.exercise_of_seed(seed)); }

  const ProceduralTaskSpec spec_;
  const std::shared_ptr<SingleTurnRules> rules_;
};

}  // namespace

std::unique_ptr<Task> NewProceduralTask(ProceduralTaskSpec spec) {
  return std::make_unique<ProceduralTask>(std::move(spec));
}

double ShareOfRightCharacters(absl::string_view solution, absl::string_view answer) {
  size_t right = 0;
  for (size_t i = 0; i < std::min(solution.size(), answer.size()); ++i) right += solution[i] == answer[i] ? 1 : 0;
  return static_cast<double>(right) / static_cast<double>(solution.size());
}

}  // namespace leeway
