#ifndef LEEWAY_QUEUE_STORE_DISK_PENDING_WRITES_H_
#define LEEWAY_QUEUE_STORE_DISK_PENDING_WRITES_H_

#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/node_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "queue/store/disk/payload_place.h"
#include "queue/store/queue_store.h"

namespace leeway {

// A payload in the store's index. Stays where it is as long as it exists, is durable, or has changes that are not.
struct IndexedPayload {
  PayloadKey key;
  // Where it is durable, if it is. Changed by the writer alone, so that the writer may read it without the lock.
  PayloadPlace place;
  // As the user sees it; its bytes while they are in memory: not durable, small and new, or being rewritten.
  bool exists = false;
  Payload payload;
  // Changes that are not durable.
  uint32_t pending = 0;
  // The place in the order of cached payloads; 0 = not cached.
  uint64_t cached_as = 0;
  // The last group that it was part of, by its last write, with so many changes. The writer's.
  uint64_t group = 0;
  uint32_t changes_in_group = 0;
};

// Some whole writes, one behind the other, that go to the disk together and become durable together. What cancels out
// among them is left out: a payload erased before it was ever durable costs nothing.
struct WriteGroup {
  struct Put {
    IndexedPayload* indexed = nullptr;
    Payload payload;
    // Set by whoever writes it.
    PayloadPlace place;
  };
  // A run of puts that lie one behind the other: [begin, end).
  struct List {
    uint64_t number = 0;
    uint64_t segment = 0;
    uint64_t offset = 0;
    size_t begin = 0;
    size_t end = 0;
  };
  // What an older list becomes; without bits: all of it has ended.
  struct EndedList {
    uint64_t number = 0;
    bool is_bundle = false;
    std::string ended;
  };
  struct Erased {
    IndexedPayload* indexed = nullptr;
    PayloadPlace place;
  };

  // The number of its last write; 0 = a group of the store's own (rewriting).
  uint64_t last_write = 0;
  std::vector<Put> puts;
  // Durable payloads that end, ascending by list. A key that is also in `puts` ends first.
  std::vector<Erased> erased;
  // One per key, ascending.
  std::vector<StoreRecord> records;

  // Set by whoever writes it. With it the payloads' places are set and synced; a second attempt must not place them
  // again, because the first may be on the disk.
  bool is_placed = false;
  std::vector<List> lists;
  std::vector<EndedList> ended_lists;

  // Bytes that its writes hold in memory, and of those what is for the database's log.
  uint64_t held_bytes = 0;
  uint64_t held_small_bytes = 0;
  // One per key.
  std::vector<IndexedPayload*> touched;

  bool empty() const { return last_write == 0 && puts.empty(); }
};

// Ascending by list, and within it.
void SortByPlace(std::vector<WriteGroup::Erased>* erased);

// What was given to the store and is not durable yet, over the index of what is. A plain class: no files, no threads;
// needs the caller's lock (MakeGroup does not).
class PendingWrites {
 public:
  struct Options {
    // Most bytes of writes that make a group.
    uint64_t group_bytes = 0;
    // Of small durable payloads the newest, so many bytes of them, stay in memory: most are read soon after.
    uint64_t cached_bytes = 0;
    // Payloads up to this size are small.
    uint64_t small_bytes = 0;
  };

  explicit PendingWrites(const Options& options) : options_(options) {}

  struct Found {
    // Set when it is in memory (it is not durable yet, or small and new); else `place` holds.
    Payload in_memory;
    PayloadPlace place;
  };

  // DATA_LOSS: it lies somewhere already.
  absl::Status OnRecovered(const PlacedPayload& payload);

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

  // Writes that wait together, in their order.
  struct Gathered {
    // A payload put, or (null) erased.
    struct Change {
      IndexedPayload* indexed = nullptr;
      Payload payload;
    };
    uint64_t last_write = 0;
    std::vector<Change> changes;
    std::vector<StoreRecord> records;
    uint64_t held_bytes = 0;
    uint64_t held_small_bytes = 0;
    // Records, when it was last looked whether some replace others.
    size_t distinct_records = 0;
  };

  bool has_ended_writes() const { return !ended_.empty(); }
  // The oldest ended writes, as many as make a group. One group at a time.
  Gathered TakeGathered();
  // Only the last change of a key and the last value of a record count. Without the lock, by the writer.
  static WriteGroup MakeGroup(Gathered gathered);
  // The group is durable.
  void OnDurable(const WriteGroup& group);
  // The payload if it is durable, or nothing.
  IndexedPayload* FindDurable(const PayloadKey& key);
  // A group of the store's own: its payloads stay in memory until it is durable or given up, because meanwhile nobody
  // can tell where they are.
  void OnRewriting(const WriteGroup& group);
  void OnGivenUp(const WriteGroup& group);

  uint64_t last_write() const { return last_write_; }
  // Held in memory by writes that are not durable, the open one included; and of those what is not of large payloads.
  uint64_t held_bytes() const { return held_bytes_; }
  uint64_t held_small_bytes() const { return held_small_bytes_; }

 private:
  void AddChange(IndexedPayload* indexed, Payload payload);
  void Hold(uint64_t bytes, bool is_small);
  void DropReplacedRecords(Gathered* gathered);
  void Cache(IndexedPayload* indexed);
  void Uncache(IndexedPayload* indexed);

  // Payloads that were cached and may be so still, at most.
  static constexpr size_t kMaxCached = 65536;
  // So many records are looked through for those that others have replaced.
  static constexpr size_t kManyRecords = 16384;

  const Options options_;
  absl::node_hash_map<PayloadKey, IndexedPayload> index_;
  // Oldest first, null = not any more; the first has number `first_cached_`.
  std::deque<IndexedPayload*> cached_;
  uint64_t first_cached_ = 1;
  uint64_t cached_bytes_ = 0;
  Gathered open_;
  std::deque<Gathered> ended_;
  uint64_t last_write_ = 0;
  uint64_t held_bytes_ = 0;
  uint64_t held_small_bytes_ = 0;
  // As the user sees it.
  uint64_t payloads_ = 0;
  uint64_t bytes_ = 0;
};

}  // namespace leeway

#endif  // LEEWAY_QUEUE_STORE_DISK_PENDING_WRITES_H_
