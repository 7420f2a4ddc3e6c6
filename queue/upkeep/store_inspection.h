#ifndef LEEWAY_QUEUE_UPKEEP_STORE_INSPECTION_H_
#define LEEWAY_QUEUE_UPKEEP_STORE_INSPECTION_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "leeway/v1/queue.pb.h"
#include "queue/store/rocksdb_store.h"

namespace leeway {

// What lies in a durable store, without the run's configuration and without a queue.
struct StoreContents {
  // As a queue that goes on from it would answer; times are unknown.
  v1::StatusResponse status;
  uint64_t groups_per_step = 0;
  uint32_t group_size = 0;
  uint64_t budget = 0;
  uint64_t lineage = 0;
  // Processes that have run on it.
  uint64_t lives = 0;
  uint64_t payloads = 0;
  uint64_t payload_bytes = 0;
  StoreStatistics statistics;
  // Trajectories whose bytes are not what was acknowledged, one sentence each. A queue has their groups generated
  // again.
  std::vector<std::string> damaged;
};

// Reads a store, also one that a queue has open, and changes nothing. Blocks for the time of a recovery, and then for
// that of reading all trajectories, each of which is compared with its hash; `progress` (may be empty) is called before
// each of them. NOT_FOUND: no store; DATA_LOSS: what a restarted queue would refuse, by name. Other errors: something
// cannot be read at this moment.
using InspectionProgress = std::function<void(uint64_t payloads, uint64_t of_payloads, uint64_t bytes)>;
absl::StatusOr<StoreContents> InspectStore(const std::string& directory, const InspectionProgress& progress = {});
// For people.
std::string DescribeContents(const StoreContents& contents);

}  // namespace leeway

#endif  // LEEWAY_QUEUE_UPKEEP_STORE_INSPECTION_H_
