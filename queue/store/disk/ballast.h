#ifndef LEEWAY_QUEUE_STORE_DISK_BALLAST_H_
#define LEEWAY_QUEUE_STORE_DISK_BALLAST_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "rocksdb/file_system.h"

namespace leeway {

// A file that only takes space. It is given up when the disk is full, so that what must still be written (small
// records, and payloads already accepted) can be. Thread-compatible; blocks for the disk.
class Ballast {
 public:
  Ballast(rocksdb::FileSystem* file_system, std::string path, uint64_t size_bytes)
      : file_system_(file_system), path_(std::move(path)), size_bytes_(size_bytes) {}

  // Makes the file unless it is there. RESOURCE_EXHAUSTED, INTERNAL: it is not.
  absl::Status Take();
  // Gives its space back, also that of a file which an earlier process made. False: there was none to give.
  bool GiveUp();
  // There is a file, this process's or an earlier one's.
  bool exists() const;
  bool is_held() const { return is_held_ || size_bytes_ == 0; }

 private:
  rocksdb::FileSystem* const file_system_;
  const std::string path_;
  const uint64_t size_bytes_;
  bool is_held_ = false;
};

}  // namespace leeway

#endif  // LEEWAY_QUEUE_STORE_DISK_BALLAST_H_
