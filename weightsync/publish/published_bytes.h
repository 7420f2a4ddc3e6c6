#ifndef LEEWAY_WEIGHTSYNC_PUBLISH_PUBLISHED_BYTES_H_
#define LEEWAY_WEIGHTSYNC_PUBLISH_PUBLISHED_BYTES_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "weightsync/transport/shared_memory.h"

namespace leeway {

// The bytes of one version as the publisher keeps them for receivers: shared memory, or private pages where nobody can
// map it. Written while it is staged, then read-only until every holder has let go.
class PublishedBytes {
 public:
  static absl::StatusOr<std::shared_ptr<PublishedBytes>> InSharedMemory(const std::string& run, uint64_t size_bytes);
  static absl::StatusOr<std::shared_ptr<PublishedBytes>> InPrivateMemory(uint64_t size_bytes);

  absl::Span<std::byte> bytes() const { return bytes_; }
  // Null for private memory.
  SharedMemorySegment* segment() const { return segment_.get(); }

 private:
  PublishedBytes() = default;
  std::unique_ptr<SharedMemorySegment> segment_;
  std::shared_ptr<std::byte> pages_;
  absl::Span<std::byte> bytes_;
};

// Which memory the next version is written to. Two lie in turn under the committed and the staged version, so that
// pages are touched for the first time only twice; a third exists while somebody still reads an older version. Stage is
// for one caller; holders may let go on any thread, also after the pool is gone.
class PublishedBytesPool {
 public:
  explicit PublishedBytesPool(std::string run);
  ~PublishedBytesPool();

  // Memory of this size that nobody else holds; it comes back when the last holder lets go. `wants_shared_memory`:
  // receivers would map it; then memory that exists already is taken only if `may_reuse` says that they all can (they
  // have it mapped). Falls back to private memory, with a warning, when shared memory is short. RESOURCE_EXHAUSTED: no
  // memory at all.
  absl::StatusOr<std::shared_ptr<PublishedBytes>> Stage(
      uint64_t size_bytes, bool wants_shared_memory, const std::function<bool(const SharedMemorySegment&)>& may_reuse);

 private:
  struct Returned;

  absl::StatusOr<std::shared_ptr<PublishedBytes>> Allocate(uint64_t size_bytes, bool wants_shared_memory) const;

  const std::string run_;
  const std::shared_ptr<Returned> returned_;
};

}  // namespace leeway

#endif  // LEEWAY_WEIGHTSYNC_PUBLISH_PUBLISHED_BYTES_H_
