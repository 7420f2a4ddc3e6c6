#include "envs/tasks/reverse5.h"

#include <string>

#include "base/random.h"
#include "envs/single_turn.h"

namespace leeway {
namespace {

Exercise ExerciseOfSeed(uint64_t seed) {
  RandomStream random({.seed = seed, .purpose = RandomPurpose::kTask});
  std::string letters(5, 'a');
  for (char& letter : letters) letter = static_cast<char>('a' + random.NextBelow(26));
  return {.prompt = letters + ">", .solution = std::string(letters.rbegin(), letters.rend())};
}

}  // namespace

std::unique_ptr<Task> NewReverse5Task() {
  return NewProceduralTask({
      .name = "reverse5",
      .exercise_of_seed = ExerciseOfSeed,
      .score = [](const Exercise& exercise,
                  const std::string& answer) { return ShareOfRightCharacters(exercise.solution, answer); },
      .instance_of = [](const Exercise& exercise) { return exercise.prompt; },
      .max_prompt_tokens = 6,
      .max_answer_tokens = 5,
  });
}

}  // namespace leeway
