#include "queue/store/store_lock.h"

#include <fcntl.h>
#include <unistd.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "queue/store/disk/io_status.h"

namespace leeway {
namespace {

// The process that has `path` locked, 0 = none is known. Only for a lock of another process: closing any descriptor of
// a file ends the locks that this process has on it.
pid_t HolderOf(const std::string& path) {
  const int descriptor = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (descriptor < 0) return 0;
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  const pid_t holder = fcntl(descriptor, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK ? lock.l_pid : 0;
  close(descriptor);
  return holder;
}

}  // namespace

absl::StatusOr<std::unique_ptr<StoreLock>> StoreLock::Take(std::shared_ptr<rocksdb::FileSystem> file_system,
                                                           const std::string& directory) {
  const std::string path = absl::StrCat(directory, "/lock");
  rocksdb::FileLock* lock = nullptr;
  const rocksdb::IOStatus status = file_system->LockFile(path, rocksdb::IOOptions(), &lock, nullptr);
  if (status.ok()) return std::unique_ptr<StoreLock>(new StoreLock(std::move(file_system), lock));
  const std::string message = status.ToString();
  // RocksDB has no code for either.
  if (absl::StrContains(message, "by current process")) {
    return absl::AlreadyExistsError(absl::StrCat("the queue store ", directory, " is already open in this process"));
  }
  if (const pid_t holder = HolderOf(path); holder != 0) {
    return absl::AlreadyExistsError(absl::StrCat("the queue store ", directory, " is in use by process ", holder,
                                                 ": end that queue first, or give this one another directory"));
  }
  return FromRocksDb(status, absl::StrCat("lock ", path));
}

StoreLock::~StoreLock() { file_system_->UnlockFile(lock_, rocksdb::IOOptions(), nullptr).PermitUncheckedError(); }

}  // namespace leeway
