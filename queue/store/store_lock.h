#ifndef LEEWAY_QUEUE_STORE_STORE_LOCK_H_
#define LEEWAY_QUEUE_STORE_STORE_LOCK_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "rocksdb/file_system.h"

namespace leeway {

// DIR/lock: one process at a time writes a store. Held until destroyed; the system lets go of it when the process dies.
class StoreLock {
 public:
  // ALREADY_EXISTS, naming directory and process: somebody has it. INTERNAL: the file cannot be made.
  static absl::StatusOr<std::unique_ptr<StoreLock>> Take(std::shared_ptr<rocksdb::FileSystem> file_system,
                                                         const std::string& directory);
  ~StoreLock();

 private:
  StoreLock(std::shared_ptr<rocksdb::FileSystem> file_system, rocksdb::FileLock* lock)
      : file_system_(std::move(file_system)), lock_(lock) {}

  const std::shared_ptr<rocksdb::FileSystem> file_system_;
  rocksdb::FileLock* const lock_;
};

}  // namespace leeway

#endif  // LEEWAY_QUEUE_STORE_STORE_LOCK_H_
