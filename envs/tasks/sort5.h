#ifndef LEEWAY_ENVS_TASKS_SORT5_H_
#define LEEWAY_ENVS_TASKS_SORT5_H_

#include <memory>

#include "envs/environment.h"

namespace leeway {

// Sort five digits.
//   31524>12345          prompt "31524>", answer "12345"
// Digits 0-9 with repetition: 100,000 instances, an eighth of them held out. The answer ends after five tokens, earlier
// at a sampled end-of-text. Reward: the share of the five places that hold the right digit. 12 ids an episode. A
// uniformly random policy over the 64 symbols earns 0.0156; learnable from scratch.
std::unique_ptr<Task> NewSort5Task();

}  // namespace leeway

#endif  // LEEWAY_ENVS_TASKS_SORT5_H_
