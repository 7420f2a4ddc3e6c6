#ifndef LEEWAY_ENVS_SINGLE_TURN_H_
#define LEEWAY_ENVS_SINGLE_TURN_H_

// What tasks of one question and one answer have in common.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "envs/environment.h"

namespace leeway {

struct Exercise {
  std::string prompt;
  // What a perfect policy answers.
  std::string solution;
};

// How an episode goes: prompt, one answer of any tokens, its reward. Functions are called from several threads at once.
struct SingleTurnRules {
  // Errors: the seed names no exercise.
  std::function<absl::StatusOr<Exercise>(uint64_t seed)> exercise_of_seed;
  std::function<double(const Exercise& exercise, const std::string& answer)> score;
  int max_answer_tokens = 1;
};

// One episode by such rules, which it keeps alive: it may outlive its task.
class SingleTurnEnvironment : public Environment {
 public:
  explicit SingleTurnEnvironment(std::shared_ptr<const SingleTurnRules> rules) : rules_(std::move(rules)) {}

  absl::StatusOr<Observation> Reset(uint64_t seed) override;
  absl::StatusOr<StepResult> Step(const std::string& answer) override;

 private:
  std::shared_ptr<const SingleTurnRules> rules_;
  Exercise exercise_;
  bool is_waiting_for_answer_ = false;
};

// An endless single-turn task over the character vocabulary.
struct ProceduralTaskSpec {
  std::string name;
  // Never fails.
  std::function<Exercise(uint64_t seed)> exercise_of_seed;
  std::function<double(const Exercise& exercise, const std::string& answer)> score;
  // Tells instances apart for the split into training and held-out ones (envs/stream_split.h).
  std::function<std::string(const Exercise& exercise)> instance_of;
  int max_prompt_tokens = 0;
  int max_answer_tokens = 1;
};
std::unique_ptr<Task> NewProceduralTask(ProceduralTaskSpec spec);

// Share of the solution's characters that the answer has at their places: 1 for the solution, and what is missing or
// beyond counts nothing.
double ShareOfRightCharacters(absl::string_view solution, absl::string_view answer);

}  // namespace leeway

#endif  // LEEWAY_ENVS_SINGLE_TURN_H_
