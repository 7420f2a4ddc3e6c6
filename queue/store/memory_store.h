#ifndef LEEWAY_QUEUE_STORE_MEMORY_STORE_H_
#define LEEWAY_QUEUE_STORE_MEMORY_STORE_H_

#include "absl/container/flat_hash_map.h"
#include "queue/store/queue_store.h"

namespace leeway {

// Payloads in memory: fast, gone with the process. Put never fails for space: the ledger's reservations bound it. Every
// write counts as durable at once. Thread-compatible.
class MemoryStore : public QueueStore {
 public:
  absl::Status Put(const PayloadKey& key, Payload payload) override;
  absl::StatusOr<std::shared_ptr<const StoredPayload>> Get(const PayloadKey& key) const override;
  void Erase(const PayloadKey& key) override;
  uint64_t payloads() const override { return payloads_.size(); }
  uint64_t bytes() const override { return bytes_; }

  bool is_durable() const override { return false; }
  uint64_t Write(std::vector<StoreRecord>) override { return 0; }
  void WhenDurable(uint64_t, std::function<void()> done) override { done(); }
  std::string refusal() const override { return ""; }
  absl::Status Recover(const RecordVisitor&) const override { return absl::OkStatus(); }

 private:
  absl::flat_hash_map<PayloadKey, std::shared_ptr<const PayloadInMemory>> payloads_;

  // Sum of their sizes.
  uint64_t bytes_ = 0;
};

}  // namespace leeway

#endif  // LEEWAY_QUEUE_STORE_MEMORY_STORE_H_
