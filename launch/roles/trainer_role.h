#ifndef LEEWAY_LAUNCH_ROLES_TRAINER_ROLE_H_
#define LEEWAY_LAUNCH_ROLES_TRAINER_ROLE_H_

#include <string>

#include "envs/environment.h"
#include "launch/config/config.h"
#include "trainer/trainer_options.h"

namespace leeway {

// The trainer's options out of a resolved configuration.
TrainerOptions TrainerOptionsOf(const Config& config, const Task& task, int64_t vocabulary,
                                const std::string& run_directory);

}  // namespace leeway

#endif  // LEEWAY_LAUNCH_ROLES_TRAINER_ROLE_H_
