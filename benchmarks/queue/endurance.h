#ifndef LEEWAY_BENCHMARKS_QUEUE_ENDURANCE_H_
#define LEEWAY_BENCHMARKS_QUEUE_ENDURANCE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "benchmarks/queue/figures.h"

namespace leeway {

// Long runs of a bounded queue with 8 producers of small trajectories, and what must not grow in them. Both print what
// they see while they run, and return what has to hold.

// `pushes` through the queue with a consumer that keeps up: the queue's resident size after the first tenth (at most
// 10^6) against its largest afterwards, the same of a store on disk.
std::vector<Target> Soak(uint64_t pushes, bool is_durable, const std::string& folder);

// A consumer that stops for `pause` while the producers go on: resident sizes of the queue and of the producers'
// process while all are blocked, why they say that they are, and how evenly they go on when it comes back.
std::vector<Target> Stall(absl::Duration pause, bool is_durable, const std::string& folder);

}  // namespace leeway

#endif  // LEEWAY_BENCHMARKS_QUEUE_ENDURANCE_H_
