#ifndef LEEWAY_LAUNCH_ROLES_TASK_OPTIONS_H_
#define LEEWAY_LAUNCH_ROLES_TASK_OPTIONS_H_

#include <cstdint>

#include "envs/environment.h"
#include "envs/registry.h"
#include "launch/config/config.h"
#include "model/shape.h"
#include "tokenizer/tokenizer.h"

namespace leeway {

// What all roles take from the configuration in the same way. `config` is resolved (config/resolve.h) unless said
// otherwise.

// Also of an unresolved configuration.
TaskOptions TaskOptionsOf(const Config& config);

ModelShape ShapeOf(const Config& config, int64_t vocabulary);

// The longest serialised trajectory of an episode of `task`: every token with its log-probability and a version run of
// its own, legal sets of every turn, and what is around them.
int64_t LargestTrajectoryBytes(const Task& task, int64_t vocabulary);

}  // namespace leeway

#endif  // LEEWAY_LAUNCH_ROLES_TASK_OPTIONS_H_
