#include "envs/tasks/sort5.h"

#include <algorithm>
#include <string>

#include "base/random.h"
#include "envs/single_turn.h"

namespace leeway {
namespace {

Exercise ExerciseOfSeed(uint64_t seed) {
  RandomStream random({.seed = seed, .purpose = RandomPurpose::kTask});
  std::string digits(5, '0');
  for (char& digit : digits) digit = static_cast<char>('0' + random.NextBelow(10));
  std::string sorted = digits;
  std::sort(sorted.begin(), sorted.end());
  return {.prompt = digits + ">", .solution = sorted};
}

}  // namespace

std::unique_ptr<Task> NewSort5Task() {
  return NewProceduralTask({
      .name = "sort5",
      .exercise_of_seed = ExerciseOfSeed,
      .score = [](const Exercise& exercise,
                  const std::string& answer) { return ShareOfRightCharacters(exercise.solution, answer); },
      .instance_of = [](const Exercise& exercise) { return exercise.prompt; },
      .max_prompt_tokens = 6,
      .max_answer_tokens = 5,
  });
}

}  // namespace leeway
