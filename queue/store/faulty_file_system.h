#ifndef LEEWAY_QUEUE_STORE_FAULTY_FILE_SYSTEM_H_
#define LEEWAY_QUEUE_STORE_FAULTY_FILE_SYSTEM_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "rocksdb/file_system.h"

namespace leeway {

class FaultyWritableFile;

// A disk that fails as told. For tests, and through the environment variable LEEWAY_STORE_FAULTS for the real queue in
// builds with failpoints. Directories, renames and removals are durable at once; what a file holds may be lost.
// Thread-safe. Must outlive its files.
class FaultyStoreFileSystem : public rocksdb::FileSystemWrapper {
 public:
  enum class Operation { kCreate, kReserve, kAppend, kSync, kOther };
  enum class Fault { kNoSpace, kInputOutput };
  struct Rule {
    Fault fault = Fault::kInputOutput;
    // Nothing = every operation that needs space or the disk: kReserve, kAppend and kSync.
    std::optional<Operation> operation;
    // So many matching operations; -1 = all.
    int times = -1;
    // Only files with this in their path.
    std::string path_contains;
    // Only while this file exists.
    std::string while_file_exists;
  };
  // What reaches the disk of the bytes that were not synced when it crashes. Zeros only in database logs: RocksDB
  // itself refuses any other file of which a later part is there and an earlier one is not.
  enum class Torn { kNothing, kHalf, kHalfAndZeros };

  explicit FaultyStoreFileSystem(std::shared_ptr<rocksdb::FileSystem> target = rocksdb::FileSystem::Default());
  const char* Name() const override { return "FaultyStoreFileSystem"; }

  // Keeps appended bytes in this process until they are synced, so that its end loses the others.
  void LoseUnsynced();
  void AddRule(Rule rule);
  void Heal();  // no rules, no capacity
  // Bytes that all files made through this object may take, reservations included. A file that reaches it gets what
  // still fits.
  void SetCapacity(uint64_t bytes);
  // `sleep` is called with `delay` before every sync.
  void DelaySyncs(absl::Duration delay, std::function<void(absl::Duration)> sleep);
  // The n-th next change of the disk (from 1) is not made, nor any later one.
  void CrashAt(uint64_t n, Torn torn = Torn::kNothing);
  void Crash(Torn torn = Torn::kNothing);
  bool crashed() const;

  // Changes of the disk so far: what CrashAt counts.
  uint64_t changes() const;
  // Operations that a rule made fail.
  uint64_t faults() const;
  uint64_t appended_bytes() const;
  // What counts against the capacity.
  uint64_t taken_bytes() const;
  // Of files, successful.
  uint64_t syncs() const;

  rocksdb::IOStatus NewWritableFile(const std::string& path, const rocksdb::FileOptions& options,
                                    std::unique_ptr<rocksdb::FSWritableFile>* file,
                                    rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus ReopenWritableFile(const std::string& path, const rocksdb::FileOptions& options,
                                       std::unique_ptr<rocksdb::FSWritableFile>* file,
                                       rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus ReuseWritableFile(const std::string& path, const std::string& old_path,
                                      const rocksdb::FileOptions& options,
                                      std::unique_ptr<rocksdb::FSWritableFile>* file,
                                      rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus DeleteFile(const std::string& path, const rocksdb::IOOptions& options,
                               rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus RenameFile(const std::string& from, const std::string& to, const rocksdb::IOOptions& options,
                               rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus Truncate(const std::string& path, size_t size, const rocksdb::IOOptions& options,
                             rocksdb::IODebugContext* debug) override;

 private:
  friend class FaultyWritableFile;
  struct Space {
    uint64_t size_bytes = 0;
    uint64_t reserved_bytes = 0;
    uint64_t taken() const { return size_bytes > reserved_bytes ? size_bytes : reserved_bytes; }
  };

  // Before a change of `path`: counts it, and says whether it fails. `bytes` it wants to append or reserve in all.
  rocksdb::IOStatus Begin(Operation operation, const std::string& path);
  // How many of `bytes` more (kAppend), or up to which size (kReserve), the capacity allows; takes them.
  uint64_t TakeSpace(Operation operation, const std::string& path, uint64_t bytes);
  void CrashNow() LEEWAY_REQUIRES(mutex_);
  std::unique_ptr<rocksdb::FSWritableFile> Wrap(const std::string& path, std::unique_ptr<rocksdb::FSWritableFile> file,
                                                uint64_t size_bytes);

  mutable Mutex mutex_;
  bool lose_unsynced_ LEEWAY_GUARDED_BY(mutex_) = false;
  std::vector<Rule> rules_ LEEWAY_GUARDED_BY(mutex_);
  std::optional<uint64_t> capacity_bytes_ LEEWAY_GUARDED_BY(mutex_);
  std::map<std::string, Space> space_ LEEWAY_GUARDED_BY(mutex_);
  uint64_t taken_bytes_ LEEWAY_GUARDED_BY(mutex_) = 0;
  absl::Duration sync_delay_ LEEWAY_GUARDED_BY(mutex_);
  std::function<void(absl::Duration)> sleep_ LEEWAY_GUARDED_BY(mutex_);
  std::optional<uint64_t> crash_at_change_ LEEWAY_GUARDED_BY(mutex_);
  Torn torn_ LEEWAY_GUARDED_BY(mutex_) = Torn::kNothing;
  bool crashed_ LEEWAY_GUARDED_BY(mutex_) = false;
  uint64_t changes_ LEEWAY_GUARDED_BY(mutex_) = 0;
  uint64_t faults_ LEEWAY_GUARDED_BY(mutex_) = 0;
  uint64_t appended_bytes_ LEEWAY_GUARDED_BY(mutex_) = 0;
  uint64_t syncs_ LEEWAY_GUARDED_BY(mutex_) = 0;
  std::set<FaultyWritableFile*> open_ LEEWAY_GUARDED_BY(mutex_);
};

// By this text, parts separated by commas:
//   lose_unsynced           unsynced bytes die with the process
//   enospc_file=PATH        writing answers "no space" while PATH exists
//   eio_file=PATH           writing answers "I/O error" while PATH exists
//   sync_delay_ms=N         every sync takes N ms longer
//   capacity_mb=N           the store's new files may take N MiB
// INVALID_ARGUMENT names the bad part.
absl::StatusOr<std::shared_ptr<FaultyStoreFileSystem>> ParseStoreFaults(absl::string_view text);

// What a store uses when it is told nothing: the machine's disk; with failpoints compiled in and LEEWAY_STORE_FAULTS
// set, that one. INVALID_ARGUMENT as above.
absl::StatusOr<std::shared_ptr<rocksdb::FileSystem>> StoreFileSystemOfEnvironment();

}  // namespace leeway

#endif  // LEEWAY_QUEUE_STORE_FAULTY_FILE_SYSTEM_H_
