#ifndef LEEWAY_QUEUE_STORE_ROCKSDB_STORE_H_
#define LEEWAY_QUEUE_STORE_ROCKSDB_STORE_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "queue/store/queue_store.h"

namespace rocksdb {
class FileSystem;
}  // namespace rocksdb

namespace leeway {

struct RocksDbStoreOptions {
  // Made if it is missing, with its parents. One process at a time may have it open for writing.
  std::string directory;
  // Where files are written; null = the real one, or the one that LEEWAY_STORE_FAULTS describes in builds with
  // failpoints (queue/store/faulty_file_system.h).
  std::shared_ptr<rocksdb::FileSystem> file_system;
  const Clock* clock = RealClock();
  // For offline inspection, also beside a running queue: Recover and Get only, of what was durable at Open. Changes
  // nothing.
  bool read_only = false;

  // Payloads up to this size lie in the database, in bundles of about so many bytes; larger ones in segments: one sync
  // instead of two for the former, no second writing of the latter.
  uint64_t inline_bytes = 8 << 10;
  uint64_t bundle_bytes = 256 << 10;
  uint64_t segment_bytes = 64 << 20;
  // Space kept for the database's log when the disk is full. Put is refused while half as much of small payloads and
  // records waits for the disk, so that these fit. Large payloads have what is left of their segments; if more wait,
  // they hold up what comes behind.
  uint64_t ballast_bytes = 16 << 20;
  // Put is refused while more than this waits in memory for the disk.
  uint64_t waiting_bytes = 256 << 20;
  // So many bytes of small durable payloads, the newest, are kept in memory for the lease that follows.
  uint64_t cached_bytes = 32 << 20;
  // Most bytes that share a sync.
  uint64_t group_bytes = 16 << 20;
  // Pause between attempts while the disk fails: doubles from the first to the second; the latter also between looks
  // for space when it is full.
  absl::Duration first_pause = absl::Milliseconds(20);
  absl::Duration longest_pause = absl::Seconds(1);
};

// Counters since Open, and the state now.
struct StoreStatistics {
  // Groups of writes made durable, syncs of the database's log and of segments, failed attempts.
  uint64_t groups = 0;
  uint64_t log_syncs = 0;
  uint64_t segment_syncs = 0;
  uint64_t failures = 0;
  // Bytes appended to segments by groups, written again into others, into other bundles, and put into the database's
  // log.
  uint64_t segment_bytes_written = 0;
  uint64_t rewritten_bytes = 0;
  uint64_t rewritten_bundle_bytes = 0;
  uint64_t log_bytes_written = 0;
  // Large payloads held, and what their files take.
  uint64_t live_segment_bytes = 0;
  uint64_t segment_file_bytes = 0;
  uint64_t segments = 0;
  // Small payloads held, and what their bundles take.
  uint64_t live_bundle_bytes = 0;
  uint64_t bundle_bytes = 0;
  uint64_t bundles = 0;
  // In memory, not durable yet.
  uint64_t waiting_bytes = 0;
  // Over the last 1024 syncs.
  absl::Duration sync_p50;
  absl::Duration sync_p99;
};

// Everything on disk: answers may be given once WhenDurable says so. Many writes share one sync (group commit): while
// one group is written the next one gathers. A large payload is written once, into an append-only segment file; the
// small ones of a group lie in the database as one value; lists beside them hold places and hashes. In memory stay an
// index entry per payload and what is not durable yet.
//
// When writing fails nothing of the group counts as durable; it is written again, into a new segment or a reopened
// database, until it succeeds or the store is destroyed; Put is refused meanwhile and refusal() says why, Get goes on.
// When the disk is full a ballast file is given up, so that accepted small payloads and the ledger's records still
// become durable; pushes are taken again when there is room for the ballast and a segment.
//
// Threads: as QueueStore; of two threads of its own one writes, and callbacks run on either. Blocking: Open and Recover
// read the disk, Get of a large payload may open a file. What Get handed out can be loaded as long as the store exists.
// The destructor waits for the write in progress and running callbacks; writes not yet begun are lost, as in a crash,
// so wait for the last one first.
class RocksDbStore : public QueueStore {
 public:
  // ALREADY_EXISTS: another store, maybe of another process, has the directory open. DATA_LOSS: files are missing or
  // damaged, the message says which. FAILED_PRECONDITION: written in another format. RESOURCE_EXHAUSTED, INTERNAL: the
  // disk. Read-only: NOT_FOUND if there is none.
  static absl::StatusOr<std::unique_ptr<RocksDbStore>> Open(const RocksDbStoreOptions& options);
  ~RocksDbStore() override;

  absl::Status Put(const PayloadKey& key, Payload payload) override;
  // What is damaged says so in Load.
  absl::StatusOr<std::shared_ptr<const StoredPayload>> Get(const PayloadKey& key) const override;
  void Erase(const PayloadKey& key) override;
  uint64_t payloads() const override;
  uint64_t bytes() const override;
  bool is_durable() const override { return true; }
  uint64_t Write(std::vector<StoreRecord> records) override;
  void WhenDurable(uint64_t number, std::function<void()> done) override;
  std::string refusal() const override;
  absl::Status Recover(const RecordVisitor& visit) const override;

  // Any thread.
  StoreStatistics Statistics() const;

 private:
  class Implementation;
  explicit RocksDbStore(std::unique_ptr<Implementation> implementation);

  const std::unique_ptr<Implementation> implementation_;
};

}  // namespace leeway

#endif  // LEEWAY_QUEUE_STORE_ROCKSDB_STORE_H_
