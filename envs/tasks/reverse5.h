#ifndef LEEWAY_ENVS_TASKS_REVERSE5_H_
#define LEEWAY_ENVS_TASKS_REVERSE5_H_

#include <memory>

#include "envs/environment.h"

namespace leeway {

// Write five letters backwards.
//   hello>olleh          prompt "hello>", answer "olleh"
// Random lower-case letters with repetition: 26^5 instances, an eighth of them held out. The answer ends after five
// tokens, earlier at a sampled end-of-text. Reward: the share of the five places that hold the right letter. 12 ids an
// episode. A uniformly random policy over the 64 symbols earns 0.0156; learnable from scratch.
std::unique_ptr<Task> NewReverse5Task();

}  // namespace leeway

#endif  // LEEWAY_ENVS_TASKS_REVERSE5_H_
