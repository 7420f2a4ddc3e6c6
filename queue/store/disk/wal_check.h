#ifndef LEEWAY_QUEUE_STORE_DISK_WAL_CHECK_H_
#define LEEWAY_QUEUE_STORE_DISK_WAL_CHECK_H_

// What is wrong with a write-ahead log that RocksDB refuses.
//
// One group of writes is one log record, synced before the next one is begun. So the only damage that a loss of power
// may leave is within the last record: its parts, which may have reached the disk in any order. Damage with a record
// behind it has hit data that was reported durable. RocksDB's recovery modes cannot tell the two apart: one refuses
// both, the next drops everything behind the damage without a word.

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "rocksdb/file_system.h"

namespace leeway {

enum class WalState {
  kIntact,
  // Damaged with no record behind the damage: the last one was never completely written.
  kTornTail,
  // Damaged before a whole record: durable data is lost.
  kDamaged,
};

// Of one log's bytes (format of RocksDB and LevelDB without recycling: blocks of 32 KiB, fragments with CRC-32C).
WalState CheckWal(absl::string_view bytes);
// Of all logs of a database: a torn tail counts as one only in the last log that is not empty. Blocks; reads all logs.
absl::StatusOr<WalState> CheckWals(rocksdb::FileSystem* file_system, const std::string& directory);

}  // namespace leeway

#endif  // LEEWAY_QUEUE_STORE_DISK_WAL_CHECK_H_
