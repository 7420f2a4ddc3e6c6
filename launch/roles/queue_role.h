#ifndef LEEWAY_LAUNCH_ROLES_QUEUE_ROLE_H_
#define LEEWAY_LAUNCH_ROLES_QUEUE_ROLE_H_

#include "launch/roles/role_process.h"
#include "queue/queue_server.h"

namespace leeway {

// The queue's options out of a resolved configuration. `task` gives the seeds and outlives the queue.
QueueOptions QueueOptionsOf(const Config& config, const Task* task, int32_t vocabulary, const RunPaths& paths);

}  // namespace leeway

#endif  // LEEWAY_LAUNCH_ROLES_QUEUE_ROLE_H_
