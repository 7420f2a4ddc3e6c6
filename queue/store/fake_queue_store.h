#ifndef LEEWAY_QUEUE_STORE_FAKE_QUEUE_STORE_H_
#define LEEWAY_QUEUE_STORE_FAKE_QUEUE_STORE_H_

#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/mutex.h"
#include "queue/store/queue_store.h"

namespace leeway {

// A durable store in memory whose disk is driven by hand: writes become durable when the test says so, and a crash
// keeps exactly the durable ones. Callbacks run inside MakeDurable, without a lock. Thread-safe.
class FakeQueueStore : public QueueStore {
 public:
  FakeQueueStore() = default;

  absl::Status Put(const PayloadKey& key, Payload payload) override;
  absl::StatusOr<std::shared_ptr<const StoredPayload>> Get(const PayloadKey& key) const override;
  void Erase(const PayloadKey& key) override;
  uint64_t payloads() const override;
  uint64_t bytes() const override;
  bool is_durable() const override { return true; }
  uint64_t Write(std::vector<StoreRecord> records) override;
  void WhenDurable(uint64_t number, std::function<void()> done) override;
  std::string refusal() const override;
  // What was durable when this store was made (by Crash), and has become so since.
  absl::Status Recover(const RecordVisitor& visit) const override;

  // ---- the test's side ----------------------------------------------------------------------------------------------

  // Writes up to `number` reach the disk; runs the callbacks that waited for them.
  void MakeDurable(uint64_t number);
  void MakeAllDurable();
  // While true (at first: false) each write is durable when Write returns. Also makes durable what was written before.
  void MakeDurableAtOnce(bool at_once);
  // Put answers RESOURCE_EXHAUSTED with this reason until the reason is empty again.
  void RefusePuts(std::string reason);

  // The last number that Write returned, and the last that is durable.
  uint64_t written() const;
  uint64_t durable() const;
  // The durable value, or nothing.
  std::optional<std::string> DurableRecord(const std::string& key) const;
  // A store as a new process finds it: only what was durable; its writes count from 1 again, by hand. This store's
  // waiting callbacks are dropped.
  std::unique_ptr<FakeQueueStore> Crash();

 private:
  using Payloads = absl::flat_hash_map<PayloadKey, std::shared_ptr<const StoredPayload>>;
  struct PendingWrite {
    // In order; null = erased.
    std::vector<std::pair<PayloadKey, std::shared_ptr<const StoredPayload>>> payloads;
    std::vector<StoreRecord> records;
  };

  mutable Mutex mutex_;
  // As the caller sees it.
  Payloads payloads_ LEEWAY_GUARDED_BY(mutex_);
  uint64_t bytes_ LEEWAY_GUARDED_BY(mutex_) = 0;
  std::string refusal_ LEEWAY_GUARDED_BY(mutex_);
  bool at_once_ LEEWAY_GUARDED_BY(mutex_) = false;
  // What the next Write will end.
  PendingWrite open_ LEEWAY_GUARDED_BY(mutex_);
  // Writes durable_ + 1, durable_ + 2, ...
  std::deque<PendingWrite> pending_ LEEWAY_GUARDED_BY(mutex_);
  uint64_t durable_ LEEWAY_GUARDED_BY(mutex_) = 0;
  // As the disk has it.
  Payloads durable_payloads_ LEEWAY_GUARDED_BY(mutex_);
  std::map<std::string, std::string> durable_records_ LEEWAY_GUARDED_BY(mutex_);
  // In the order of the calls.
  std::deque<std::pair<uint64_t, std::function<void()>>> waiting_ LEEWAY_GUARDED_BY(mutex_);
};

}  // namespace leeway

#endif  // LEEWAY_QUEUE_STORE_FAKE_QUEUE_STORE_H_
