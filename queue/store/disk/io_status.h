#ifndef LEEWAY_QUEUE_STORE_DISK_IO_STATUS_H_
#define LEEWAY_QUEUE_STORE_DISK_IO_STATUS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "rocksdb/status.h"

namespace leeway {

// RocksDB's status as ours, `what` (an action and its file) in front: RESOURCE_EXHAUSTED = no space, NOT_FOUND,
// DATA_LOSS = damaged bytes, INTERNAL = any other error of the disk.
absl::Status FromRocksDb(const rocksdb::Status& status, absl::string_view what);

// "disk full: ..." or "disk error: ...", for people and for answers. `status` is not OK.
std::string DescribeDiskTrouble(const absl::Status& status);

}  // namespace leeway

#endif  // LEEWAY_QUEUE_STORE_DISK_IO_STATUS_H_
