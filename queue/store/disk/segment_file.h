#ifndef LEEWAY_QUEUE_STORE_DISK_SEGMENT_FILE_H_
#define LEEWAY_QUEUE_STORE_DISK_SEGMENT_FILE_H_

// Segment files: payloads one behind the other, nothing else. Which bytes are whose, and their hashes, are in the
// database.

#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/mutex.h"
#include "queue/store/disk/payload_place.h"
#include "queue/store/queue_store.h"
#include "rocksdb/file_system.h"

namespace leeway {

// DIR/000000000042.payloads
std::string SegmentPath(const std::string& directory, uint64_t number);
// The number in such a name (without the directory); 0 = another file.
uint64_t SegmentNumberOfName(absl::string_view name);

// The one segment that is being written. Thread-compatible; every call may wait for the disk, without a deadline: that
// is the operating system's.
class SegmentWriter {
 public:
  // A new file whose space is the file's from the start, so that a full disk is met here and not in the middle of a
  // payload. RESOURCE_EXHAUSTED, INTERNAL: there is no such file then. The name itself is durable when this returns.
  static absl::StatusOr<std::unique_ptr<SegmentWriter>> Create(rocksdb::FileSystem* file_system,
                                                               const std::string& directory, uint64_t number,
                                                               uint64_t capacity_bytes);
  ~SegmentWriter();

  // After an error only Seal may be called. Append does not make durable, Sync does.
  absl::Status Append(absl::string_view bytes);
  absl::Status Sync();
  // Ends writing and gives unused space back. Best effort: what was synced is safe without it.
  void Seal();

  uint64_t number() const { return number_; }
  uint64_t size_bytes() const { return size_bytes_; }
  uint64_t room_bytes() const { return capacity_bytes_ > size_bytes_ ? capacity_bytes_ - size_bytes_ : 0; }
  uint64_t synced_bytes() const { return synced_bytes_; }
  bool is_synced() const { return synced_bytes_ == size_bytes_; }

 private:
  SegmentWriter(uint64_t number, uint64_t capacity_bytes, std::string path,
                std::unique_ptr<rocksdb::FSWritableFile> file);

  const uint64_t number_;
  const uint64_t capacity_bytes_;
  const std::string path_;
  // Null once sealed.
  std::unique_ptr<rocksdb::FSWritableFile> file_;
  uint64_t size_bytes_ = 0;
  uint64_t synced_bytes_ = 0;
};

// An open segment: readable as long as somebody holds it, also when its name is gone. Thread-safe.
class SegmentReader {
 public:
  SegmentReader(std::string path, std::unique_ptr<rocksdb::FSRandomAccessFile> file)
      : path_(std::move(path)), file_(std::move(file)) {}

  // DATA_LOSS, naming payload, file and place: the bytes are not those that were written. INTERNAL: the disk failed.
  absl::StatusOr<Payload> Read(const PayloadKey& key, const PayloadPlace& place) const;

 private:
  const std::string path_;
  const std::unique_ptr<rocksdb::FSRandomAccessFile> file_;
};

// Hands out open segments, each at most once at a time; the last user closes it, so open files are bounded by what is
// being read. Thread-safe.
class SegmentReaders {
 public:
  SegmentReaders(std::shared_ptr<rocksdb::FileSystem> file_system, std::string directory)
      : file_system_(std::move(file_system)), directory_(std::move(directory)) {}

  // NOT_FOUND, INTERNAL: cannot be opened.
  absl::StatusOr<std::shared_ptr<const SegmentReader>> Open(uint64_t number);
  void Forget(uint64_t number);

 private:
  const std::shared_ptr<rocksdb::FileSystem> file_system_;
  const std::string directory_;
  Mutex mutex_;
  std::map<uint64_t, std::weak_ptr<const SegmentReader>> open_ LEEWAY_GUARDED_BY(mutex_);
};

}  // namespace leeway

#endif  // LEEWAY_QUEUE_STORE_DISK_SEGMENT_FILE_H_
