#ifndef LEEWAY_QUEUE_STORE_DISK_RECORD_DATABASE_H_
#define LEEWAY_QUEUE_STORE_DISK_RECORD_DATABASE_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "queue/store/disk/pending_writes.h"

namespace rocksdb {
class DB;
class Env;
class FileSystem;
class WriteBatch;
}  // namespace rocksdb

namespace leeway {

// The RocksDB part of a store: records, lists of payloads, and bundles of small payloads (column family "bundles").
// Every write is one synced batch. After a write has failed the database takes no more until it was reopened; reading
// goes on meanwhile.
//
// Threads: ReadBundle from any thread; the rest one call at a time (the store's writer). Blocking: all
// wait for the disk. Errors: RESOURCE_EXHAUSTED = no space, DATA_LOSS = damaged, INTERNAL = the disk failed.
class RecordDatabase {
 public:
  struct Options {
    std::string directory;
    std::shared_ptr<rocksdb::FileSystem> file_system;
    // Neither locks nor changes anything; sees what was durable when it was opened. NOT_FOUND: there is no database.
    bool read_only = false;
  };

  static absl::StatusOr<std::unique_ptr<RecordDatabase>> Open(const Options& options);
  ~RecordDatabase();

  // What a placed group changes, at once. Payloads whose place is in a segment must be synced there.
  absl::Status Write(const WriteGroup& group);
  // After a failed Write. What the log holds is written anew, since after a failed sync the system's cached pages may
  // differ from the disk's; the log is kept only without `flushes`, or where there is no space for that.
  absl::Status Reopen(bool flushes);
  // Only reading and Reopen are allowed afterwards; nothing is written any more, in the background neither.
  absl::Status StopWriting();
  // What the log holds was not written into tables, for want of space. Until it is reopened with space, a write takes
  // no more room on the disk than its own in the log; memory grows with it.
  bool only_logs() const;

  // A bundle's bytes, unverified. DATA_LOSS = they are not there; FAILED_PRECONDITION = it was closed.
  absl::StatusOr<std::string> ReadBundle(uint64_t list) const;
  // Only ReadBundle may be called afterwards. Waits for those in progress.
  void Close() { Exchange(nullptr); }

  using Visitor = std::function<absl::Status(absl::string_view key, absl::string_view value)>;
  // Keys from `begin` to before `end`, ascending. The first error of `visit` ends it.
  absl::Status Scan(absl::string_view begin, absl::string_view end, const Visitor& visit) const;

  // Bytes handed to the log so far.
  uint64_t logged_bytes() const { return logged_bytes_; }

 private:
  struct Opened;
  enum class Mode { kWrite, kWriteWithoutFlush, kRead };

  explicit RecordDatabase(const Options& options);
  absl::StatusOr<std::shared_ptr<Opened>> OpenIn(Mode mode) const;
  absl::StatusOr<std::shared_ptr<Opened>> OpenForWriting(bool flushes) const;
  // What an attempt to flush without enough space has left behind: RocksDB does not count it as obsolete. Only while
  // nothing is flushed.
  void RemoveStrayTables(rocksdb::DB* database) const;
  std::shared_ptr<Opened> current() const;
  // Closes what was current, when nobody reads it any more.
  void Exchange(std::shared_ptr<Opened> opened);

  const Options options_;
  // Outlives every database opened in it.
  const std::unique_ptr<rocksdb::Env> env_;
  // The writer's; emptied and filled for each group, because memory touched for the first time is dear.
  std::unique_ptr<rocksdb::WriteBatch> batch_;
  uint64_t logged_bytes_ = 0;
  mutable Mutex mutex_;
  mutable CondVar read_;
  // Null when closed.
  std::shared_ptr<Opened> current_ LEEWAY_GUARDED_BY(mutex_);
};

}  // namespace leeway

#endif  // LEEWAY_QUEUE_STORE_DISK_RECORD_DATABASE_H_
