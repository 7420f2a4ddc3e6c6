#ifndef LEEWAY_BENCHMARKS_QUEUE_LOAD_SHAPE_H_
#define LEEWAY_BENCHMARKS_QUEUE_LOAD_SHAPE_H_

#include <cstdint>
#include <string>

namespace leeway {

// What is asked of a queue, ours or a peer's.
struct LoadShape {
  // Of one serialised trajectory, about.
  uint64_t payload_bytes = 1 << 10;
  uint64_t pushes = 1 << 18;
  int producers = 8;
  // Unanswered pushes of one producer.
  uint64_t depth = 16;
  uint32_t group_size = 8;
  // Trajectories of a batch are groups_per_step * group_size; `pushes` is a multiple of it.
  uint64_t groups_per_step = 32;
  // While put and get run at once: so many steps may lie in the queue.
  uint64_t steps_ahead = 8;
  // What a producer has handed to its client, in lots of `depth`: with two, one is on the wire and one is packed.
  uint64_t lots = 2;
  // On disk instead of in memory, below the folder of the measurement.
  bool is_durable = false;

  uint64_t batch() const { return groups_per_step * group_size; }
  uint64_t steps() const { return pushes / batch(); }
};

// What came of it. Rates are trajectories per second; a phase that was not asked for is 0.
struct LoadResult {
  double put = 0;   // into a queue that nobody reads
  double get = 0;   // out of it again
  double flow = 0;  // in at one end and out at the other, at once
  // From push to answer, seconds.
  double latency_p50 = 0;
  double latency_p99 = 0;
  // CPU seconds of all processes for one trajectory that went in and out.
  double queue_cpu = 0;
  double clients_cpu = 0;
};

}  // namespace leeway

#endif  // LEEWAY_BENCHMARKS_QUEUE_LOAD_SHAPE_H_
