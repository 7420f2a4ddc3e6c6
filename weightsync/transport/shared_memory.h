#ifndef LEEWAY_WEIGHTSYNC_TRANSPORT_SHARED_MEMORY_H_
#define LEEWAY_WEIGHTSYNC_TRANSPORT_SHARED_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/mutex.h"
#include "weightsync/transport/receiver_transport.h"

namespace leeway {

// Transport between processes of one machine: the publisher writes a version once into a POSIX shared-memory object,
// receivers map it read-only and copy it, bucket by bucket, into their shadow.
//
// Mapping pages costs more than copying them, so objects and mappings live on from publish to publish; only the *name*
// is short-lived: it is there while receivers open it and is unlinked when they have, so that a killed job leaves
// nothing behind. In the window between, a killed publisher leaves the name; the next publisher on the machine removes
// it. An object's owner holds a file lock on it for as long as it lives, which is how a living owner is told from a
// dead one, across process-id reuse and containers.

// The publisher's side of one object. Movable, not copyable, not thread-safe.
class SharedMemorySegment {
 public:
  // Makes "/leeway-<run>-<pid>-<serial>", reserves its memory and maps it writable; characters of `run` other than
  // letters, digits, '-' and '_' become '_'. RESOURCE_EXHAUSTED: not enough shared memory (with the remedy). INTERNAL:
  // the system's reason.
  static absl::StatusOr<std::unique_ptr<SharedMemorySegment>> Create(const std::string& run, uint64_t size_bytes);
  // Unlinks and unmaps.
  ~SharedMemorySegment();
  SharedMemorySegment(const SharedMemorySegment&) = delete;
  SharedMemorySegment& operator=(const SharedMemorySegment&) = delete;

  const std::string& name() const { return name_; }
  absl::Span<std::byte> bytes() const { return absl::MakeSpan(data_, size_bytes_); }
  // Removes the name; who has mapped it keeps it. Calling it again does nothing.
  void Unlink();
  bool is_linked() const { return is_linked_; }

 private:
  SharedMemorySegment(std::string name, int fd, std::byte* data, uint64_t size_bytes);

  const std::string name_;
  // Open for the lock's sake.
  const int fd_;
  std::byte* const data_;
  const uint64_t size_bytes_;
  bool is_linked_ = true;
};

// Unlinks objects "leeway-*" whose owner is dead. Returns their names. Failures to look are ignored: it is
// housekeeping.
std::vector<std::string> RemoveStaleSegments();

// Both sides remember the same objects: the publisher whom it need not give a name again, the receiver what it keeps
// mapped. Appends `name` (or moves it to the end) and drops the oldest beyond two, since a publisher writes two objects
// in turn.
void RememberSegment(const std::string& name, std::vector<std::string>* names);

// The receiver's side. Thread-safe.
class SharedMemoryTransport : public ReceiverTransport {
 public:
  // NOT_FOUND: no such object here (publisher on another machine, or gone), with the remedy. INVALID_ARGUMENT: it is
  // smaller than the version.
  absl::StatusOr<std::unique_ptr<BucketReader>> Open(const TransferRequest& request) override;

 private:
  class Mapping;

  Mutex mutex_;
  std::vector<std::string> names_ LEEWAY_GUARDED_BY(mutex_);
  std::list<std::shared_ptr<const Mapping>> mappings_ LEEWAY_GUARDED_BY(mutex_);
};

}  // namespace leeway

#endif  // LEEWAY_WEIGHTSYNC_TRANSPORT_SHARED_MEMORY_H_
