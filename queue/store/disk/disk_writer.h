#ifndef LEEWAY_QUEUE_STORE_DISK_DISK_WRITER_H_
#define LEEWAY_QUEUE_STORE_DISK_DISK_WRITER_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "queue/store/disk/ballast.h"
#include "queue/store/disk/bundle_reader.h"
#include "queue/store/disk/pending_writes.h"
#include "queue/store/disk/record_database.h"
#include "queue/store/disk/segment_file.h"
#include "queue/store/disk/segment_table.h"
#include "queue/store/rocksdb_store.h"
#include "rocksdb/file_system.h"

namespace leeway {

// How a group of writes gets onto the disk: large payloads into the active segment and synced there, then everything
// else in one synced batch of the database, small payloads as bundles; and what keeps the directory in order: sealing,
// removing and choosing segments and bundles, the spare segment, the ballast.
//
// Files: DIR/records/ (the database), DIR/segments/NUMBER.payloads, DIR/ballast.
//
// Threads: ReadPayload and AddSyncTimes from any thread; the rest one call at a time (the store's writer). Blocking:
// all wait for the disk, none waits for anything else or retries by itself, except once with the ballast's space.
class DiskWriter {
 public:
  DiskWriter(const RocksDbStoreOptions& options, std::shared_ptr<rocksdb::FileSystem> file_system);
  ~DiskWriter();

  // Opens what is there, or makes a new store; fills `index`. RESOURCE_EXHAUSTED, INTERNAL, DATA_LOSS (what is missing
  // or damaged, and where), FAILED_PRECONDITION (another format); NOT_FOUND (only when reading only).
  absl::Status Open(PendingWrites* index);

  // OK: the group is durable, and its places are set. Else nothing of it counts; the same group may be given again,
  // first of all others. After RESOURCE_EXHAUSTED is_full().
  absl::Status Write(WriteGroup* group);
  // Must follow a Write that was OK, once readers find the new places. Does not block for long.
  void OnDurable(const WriteGroup& group);
  // Not while a Write is to be repeated: its payloads may lie in files that nothing refers to yet. Removes files
  // without live payloads, prepares the spare segment, takes the ballast back, reopens the database after a failure. To
  // be called after groups, and now and then while full or failing.
  absl::Status Housekeep();
  // Space is short: nothing new should be accepted until Housekeep has found enough of it. Empty = it is not.
  const std::string& full_reason() const { return full_reason_; }
  bool is_full() const { return !full_reason_.empty(); }

  // Living payloads of segments or bundles that hold too much garbage, to be erased and put again by a group of the
  // store's own; as many as it likes, the first ones first. None while the disk is full.
  std::vector<PayloadKey> WantRewriting() const;
  // A payload to be rewritten cannot be read: what it lies in stays as it is.
  void OnDamaged(const PayloadPlace& place);

  // A payload that stays readable after it was erased, as long as this object exists. Reads nothing (opens a segment
  // that nobody has open). A payload that cannot be read says so in Load.
  std::shared_ptr<const StoredPayload> ReadPayload(const PayloadKey& key, const PayloadPlace& place) const;

  absl::Status Scan(absl::string_view begin, absl::string_view end, const RecordDatabase::Visitor& visit) const {
    return database_->Scan(begin, end, visit);
  }
  // Without sync times, which any thread may add to a copy.
  StoreStatistics Statistics() const;
  void AddSyncTimes(StoreStatistics* statistics) const;

 private:
  absl::Status OpenSegments(PendingWrites* index);
  absl::Status OpenLists(const absl::flat_hash_map<uint64_t, uint64_t>& file_sizes, PendingWrites* index);
  absl::Status OpenList(uint64_t list, std::vector<PlacedPayload> payloads, absl::string_view ended,
                        const absl::flat_hash_map<uint64_t, uint64_t>& file_sizes, PendingWrites* index);
  absl::Status OpenFormat();
  // RESOURCE_EXHAUSTED: too little space even to open the database. RocksDB must not meet a full disk there: it ends
  // the process.
  absl::Status CheckSpace() const;
  // OK also if it only logs; then is_full().
  absl::Status ReopenDatabase(bool flushes);
  void NoteIfOnlyLogs();
  absl::Status PlacePayloads(WriteGroup* group);
  absl::Status PlaceInSegments(WriteGroup* group, size_t begin);
  void PlaceInBundles(WriteGroup* group, size_t end);
  // Puts number `i` behind the group's last list, or begins one if that is of another segment or full.
  void AddToList(WriteGroup* group, size_t i, uint64_t segment, uint64_t offset);
  void EndLists(WriteGroup* group);
  absl::Status EnsureRoom(uint64_t size_bytes, uint64_t size_of_all_bytes);
  absl::StatusOr<std::unique_ptr<SegmentWriter>> CreateSegment(uint64_t capacity_bytes);
  absl::Status SyncActive();
  void SealActive();
  void RemoveGarbage();
  absl::Status WriteOnce(WriteGroup* group);
  absl::Status TakeSpaceBack();
  // Returns `status`.
  const absl::Status& NoteIfFull(const absl::Status& status);
  void NoteSync(absl::Duration took);
  std::string SegmentDirectory() const { return options_.directory + "/segments"; }

  const RocksDbStoreOptions options_;
  const std::shared_ptr<rocksdb::FileSystem> file_system_;
  // Shared with those who still read bundles.
  std::shared_ptr<RecordDatabase> database_;
  // Mutable: opening a segment for reading is no change of the store.
  mutable SegmentReaders segment_readers_;
  std::shared_ptr<BundleReaders> bundle_readers_;
  SegmentTable segments_;
  SegmentTable bundles_;
  Ballast ballast_;
  // Null until a large payload comes, and after a failure.
  std::unique_ptr<SegmentWriter> active_;
  // The next one, made while there is space.
  std::unique_ptr<SegmentWriter> spare_;
  uint64_t next_segment_ = 1;
  uint64_t next_list_ = 1;
  bool database_failed_ = false;
  // ... because there was no space; and what the ballast held is for the log alone.
  bool failed_for_space_ = false;
  // Of the database's log, when it was opened.
  uint64_t logged_bytes_at_open_ = 0;
  std::string full_reason_;
  MonotonicTime next_look_for_space_;

  StoreStatistics counters_;
  mutable Mutex sync_mutex_;
  // The last sync times, a ring.
  std::vector<absl::Duration> sync_times_ LEEWAY_GUARDED_BY(sync_mutex_);
  uint64_t syncs_ LEEWAY_GUARDED_BY(sync_mutex_) = 0;
};

}  // namespace leeway

#endif  // LEEWAY_QUEUE_STORE_DISK_DISK_WRITER_H_
