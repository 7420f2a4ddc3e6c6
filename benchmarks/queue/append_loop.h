#ifndef LEEWAY_BENCHMARKS_QUEUE_APPEND_LOOP_H_
#define LEEWAY_BENCHMARKS_QUEUE_APPEND_LOOP_H_

#include <cstdint>
#include <string>

namespace leeway {

// What the disk gives at best: append, fdatasync, again. One thread.
struct AppendResult {
  double appends_per_s = 0;
  double sync_p50 = 0;  // seconds
  double sync_p99 = 0;
};
AppendResult MeasureAppends(uint64_t bytes, int appends, const std::string& folder);

}  // namespace leeway

#endif  // LEEWAY_BENCHMARKS_QUEUE_APPEND_LOOP_H_
