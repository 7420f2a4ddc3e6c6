#include "envs/tasks/add2.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_format.h"
#include "base/random.h"
#include "envs/single_turn.h"

namespace leeway {
namespace {

constexpr uint64_t kSmallest = 10;
constexpr uint64_t kLargest = 99;

Exercise ExerciseOfSeed(uint64_t seed) {
  RandomStream random({.seed = seed, .purpose = RandomPurpose::kTask});
  const uint64_t first = kSmallest + random.NextBelow(kLargest - kSmallest + 1);
  const uint64_t second = kSmallest + random.NextBelow(kLargest - kSmallest + 1);
  return {.prompt = absl::StrFormat("%d+%d=", first, second), .solution = absl::StrFormat("%03d", first + second)};
}

// "47+85=" and "85+47=" are one instance: who has learnt one has been told the other.
std::string InstanceOf(const Exercise& exercise) {
  const std::string first = exercise.prompt.substr(0, 2);
  const std::string second = exercise.prompt.substr(3, 2);
  return std::min(first, second) + "+" + std::max(first, second);
}

}  // namespace

std::unique_ptr<Task> NewAdd2Task() {
  return NewProceduralTask({
      .name = "add2",
      .exercise_of_seed = ExerciseOfSeed,
      .score = [](const Exercise& exercise,
                  const std::string& answer) { return ShareOfRightCharacters(exercise.solution, answer); },
      .instance_of = InstanceOf,
      .max_prompt_tokens = 6,
      .max_answer_tokens = 3,
  });
}

}  // namespace leeway
