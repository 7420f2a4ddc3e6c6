#ifndef LEEWAY_QUEUE_STORE_DISK_PENDING_WRITES_H_
#define LEEWAY_QUEUE_STORE_DISK_PENDING_WRITES_H_

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "queue/store/disk/payload_place.h"
#include "queue/store/queue_store.h"

namespace leeway {

// Some whole writes, one behind the other, that go to the disk together and become durable together. What cancels out
// among them is left out: a payload erased before it was ever durable costs nothing.
struct WriteGroup {
  struct Put {
    PayloadKey key;
    Payload payload;
    // Set by whoever writes it.
    PayloadPlace place;
  };
  struct Erased {
    PayloadKey key;
    PayloadPlace place;
  };

  // The number of its last write; 0 = a group of the store's own (rewriting).
  uint64_t last_write = 0;
  std::vector<Put> puts;
  // Durable payloads that end. A key that is also in `puts` ends first.
  std::vector<Erased> erased;
  // One per key. These three are ascending by key.
  std::vector<StoreRecord> records;

  // Bytes that its writes hold in memory.
  uint64_t held_bytes = 0;
  // Keys that its writes touched, and the last change among them.
  std::vector<PayloadKey> touched;
  uint64_t last_change = 0;
  // The payloads' places are set and synced (a second attempt need not write them again).
  bool payloads_are_placed = false;

  bool empty() const { return last_write == 0 && puts.empty(); }
};

// What was given to the store and is not durable yet, over the index of what is. A plain class: no files, no threads;
// needs the caller's lock.
class PendingWrites {
 public:
  // Of small durable payloads the newest, so many bytes of them, stay in memory: most are read soon after.
  explicit PendingWrites(uint64_t cached_bytes_limit) : cached_bytes_limit_(cached_bytes_limit) {}

  struct Found {
    // Set when it is in memory (it is not durable yet, or small and new); else `place` holds.
    Payload in_memory;
    PayloadPlace place;
  };

  void OnRecovered(const PayloadKey& key, const PayloadPlace& place);

  // ---- the store's user ---------------------------------------------------------------------------------------------

  // ALREADY_EXISTS.
  absl::Status Put(const PayloadKey& key, Payload payload);
  // NOT_FOUND.
  absl::StatusOr<Found> Get(const PayloadKey& key) const;
  void Erase(const PayloadKey& key);
  // Ends a write; 1, 2, ...
  uint64_t EndWrite(std::vector<StoreRecord> records);
  uint64_t payloads() const { return payloads_; }
  uint64_t bytes() const { return bytes_; }

  // ---- the store's writer -------------------------------------------------------------------------------------------

  bool has_ended_writes() const { return !ended_.empty(); }
  // Ended writes in order, at least one if there is one, else up to `limit_bytes` of memory. One group at a time.
  WriteGroup TakeGroup(uint64_t limit_bytes);
  // The group is durable.
  void OnDurable(const WriteGroup& group);
  // The durable place of a payload, or nothing.
  const PayloadPlace* DurablePlace(const PayloadKey& key) const;

  uint64_t last_write() const { return last_write_; }
  // Held in memory by writes that are not durable, the open one included.
  uint64_t held_bytes() const { return held_bytes_; }

 private:
  // A payload put, or (null) erased.
  struct Change {
    PayloadKey key;
    Payload payload;
    uint64_t number = 0;
  };
  struct PendingWrite {
    std::vector<Change> changes;
    std::vector<StoreRecord> records;
    uint64_t held_bytes = 0;
  };
  struct Latest {
    Payload payload;
    uint64_t number = 0;
  };

  struct Durable {
    PayloadPlace place;
    // Null: it has to be read.
    Payload cached;
  };

  bool Exists(const PayloadKey& key) const;
  const Durable* FindDurable(const PayloadKey& key) const;
  void EraseDurable(const PayloadKey& key);
  void Cache(const PayloadKey& key, Durable* durable, Payload payload);
  void AddChange(const PayloadKey& key, Payload payload);

  // Keys that may have a cached payload, at most.
  static constexpr size_t kMaxCached = 65536;

  const uint64_t cached_bytes_limit_;
  absl::flat_hash_map<PayloadKey, Durable> durable_;
  // Oldest first; what was erased since stays until its turn.
  std::deque<PayloadKey> cached_;
  uint64_t cached_bytes_ = 0;
  // The last change of every key that has one which is not durable.
  absl::flat_hash_map<PayloadKey, Latest> latest_;
  PendingWrite open_;
  std::deque<PendingWrite> ended_;
  uint64_t last_write_ = 0;
  uint64_t last_change_ = 0;
  uint64_t held_bytes_ = 0;
  // As the user sees it.
  uint64_t payloads_ = 0;
  uint64_t bytes_ = 0;
};

}  // namespace leeway

#endif  // LEEWAY_QUEUE_STORE_DISK_PENDING_WRITES_H_
