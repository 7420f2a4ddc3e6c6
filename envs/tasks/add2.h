#ifndef LEEWAY_ENVS_TASKS_ADD2_H_
#define LEEWAY_ENVS_TASKS_ADD2_H_

#include <memory>

#include "envs/environment.h"

namespace leeway {

// Add two numbers of two digits.
//   47+85=132            prompt "47+85=", answer "132"
//   12+34=046            the sum always has three digits, written from the left
// Numbers 10-99. Of the 4,095 unordered pairs an eighth is held out: 47+85 and 85+47 lie on the same side. The answer
// ends after three tokens, earlier at a sampled end-of-text. Reward: the share of the three places that hold the right
// digit. 10 ids an episode. Meant for a supervised warm start; from scratch a small model does not find it.
std::unique_ptr<Task> NewAdd2Task();

}  // namespace leeway

#endif  // LEEWAY_ENVS_TASKS_ADD2_H_
