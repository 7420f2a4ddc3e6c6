#ifndef LEEWAY_ENVS_TASKS_GUESS20_H_
#define LEEWAY_ENVS_TASKS_GUESS20_H_

#include <memory>

#include "envs/environment.h"

namespace leeway {

// Find a secret number from 1 to 20 by guesses of two digits.
//   >10h15l13            first observation ">", then "h" (the secret is higher) or "l" (lower) after each wrong guess
// Legal characters: digits, always two of them; a guess outside 1-20 is answered like any other. Found at guess n:
// terminated, reward 1 - 0.05 * (n - 1). After ten wrong guesses: truncated, reward 0. At most 31 ids an episode.
// Binary search earns 0.865 on average, a uniformly random policy 0.075.
//
// There are only twenty instances: training and held-out stream draw their secrets independently and can not be
// disjoint.
std::unique_ptr<Task> NewGuess20Task();

}  // namespace leeway

#endif  // LEEWAY_ENVS_TASKS_GUESS20_H_
