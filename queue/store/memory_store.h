#ifndef LEEWAY_QUEUE_STORE_MEMORY_STORE_H_
#define LEEWAY_QUEUE_STORE_MEMORY_STORE_H_

#include "absl/container/flat_hash_map.h"
#include "queue/store/trajectory_store.h"

namespace leeway {

// Payloads in memory: fast, gone with the process. Put never fails for space: the ledger's reservations bound it.
// Thread-compatible.
class MemoryStore : public TrajectoryStore {
 public:
  absl::Status Put(const PayloadKey& key, Payload payload) override;
  absl::StatusOr<Payload> Get(const PayloadKey& key) const override;
  void Erase(const PayloadKey& key) override;

  uint64_t payloads() const override { return payloads_.size(); }
  uint64_t bytes() const override { return bytes_; }

 private:
  absl::flat_hash_map<PayloadKey, Payload> payloads_;

  // Sum of their sizes.
  uint64_t bytes_ = 0;
};

}  // namespace leeway

#endif  // LEEWAY_QUEUE_STORE_MEMORY_STORE_H_
