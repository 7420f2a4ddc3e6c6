#ifndef LEEWAY_QUEUE_STORE_DISK_BUNDLE_READER_H_
#define LEEWAY_QUEUE_STORE_DISK_BUNDLE_READER_H_

// Reading of bundles, as segment_file.h does it for segments: many small payloads that are one value of the database.

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/mutex.h"
#include "queue/store/disk/payload_place.h"
#include "queue/store/queue_store.h"

namespace leeway {

class BundleReaders;

// One bundle: readable as long as somebody holds it and the store is open, also when the database has it no longer.
// Thread-safe; blocks for the disk unless its bytes are in memory.
class BundleReader : public std::enable_shared_from_this<BundleReader> {
 public:
  BundleReader(std::weak_ptr<BundleReaders> readers, uint64_t list) : readers_(std::move(readers)), list_(list) {}

  // DATA_LOSS, naming payload and place: the bytes are not those that were written. INTERNAL: the disk failed.
  // FAILED_PRECONDITION: the store is closed.
  absl::StatusOr<Payload> Read(const PayloadKey& key, const PayloadPlace& place);

 private:
  friend class BundleReaders;
  using Bytes = std::shared_ptr<const std::string>;
  // From memory, or else from the database; with `for_good` they stay in memory, or the error of reading them does.
  absl::StatusOr<Bytes> Load(bool for_good);
  void Drop();

  const std::weak_ptr<BundleReaders> readers_;
  const uint64_t list_;
  // Held while reading, so that several who need the same bundle read it once.
  Mutex mutex_;
  Bytes bytes_ LEEWAY_GUARDED_BY(mutex_);
  bool for_good_ LEEWAY_GUARDED_BY(mutex_) = false;
  // Why the bytes could not be kept.
  absl::Status lost_ LEEWAY_GUARDED_BY(mutex_);
};

// Hands out bundles, each at most once at a time. What was read last stays in memory for a moment: a lease reads
// neighbours. Thread-safe.
class BundleReaders : public std::enable_shared_from_this<BundleReaders> {
 public:
  // Reads a bundle's bytes from the database; any thread.
  using Source = std::function<absl::StatusOr<std::string>(uint64_t list)>;
  // At most `memory_bytes` of bundles (and one) stay in memory that nobody may need.
  BundleReaders(Source source, uint64_t memory_bytes) : source_(std::move(source)), memory_bytes_(memory_bytes) {}

  // Does not read.
  std::shared_ptr<BundleReader> Open(uint64_t list);
  // Before a bundle leaves the database: who has opened it keeps its bytes (or the error of reading them).
  void KeepForHolders(uint64_t list);
  void Forget(uint64_t list);

 private:
  friend class BundleReader;
  // Keeps it in memory, and lets go of what was read before.
  void OnLoaded(std::shared_ptr<BundleReader> reader, uint64_t size_bytes);

  struct Recent {
    std::shared_ptr<BundleReader> reader;
    uint64_t size_bytes = 0;
  };

  const Source source_;
  const uint64_t memory_bytes_;
  Mutex mutex_;
  std::map<uint64_t, std::weak_ptr<BundleReader>> open_ LEEWAY_GUARDED_BY(mutex_);
  // Oldest first.
  std::deque<Recent> recent_ LEEWAY_GUARDED_BY(mutex_);
  uint64_t recent_bytes_ LEEWAY_GUARDED_BY(mutex_) = 0;
};

}  // namespace leeway

#endif  // LEEWAY_QUEUE_STORE_DISK_BUNDLE_READER_H_
