#include "weightsync/publish/published_bytes.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/logging.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "weightsync/pages.h"

namespace leeway {

absl::StatusOr<std::shared_ptr<PublishedBytes>> PublishedBytes::InSharedMemory(const std::string& run,
                                                                               uint64_t size_bytes) {
  auto made = std::shared_ptr<PublishedBytes>(new PublishedBytes);
  LEEWAY_ASSIGN_OR_RETURN(made->segment_, SharedMemorySegment::Create(run, size_bytes));
  made->bytes_ = made->segment_->bytes();
  return made;
}

absl::StatusOr<std::shared_ptr<PublishedBytes>> PublishedBytes::InPrivateMemory(uint64_t size_bytes) {
  auto made = std::shared_ptr<PublishedBytes>(new PublishedBytes);
  LEEWAY_ASSIGN_OR_RETURN(made->pages_, AllocatePages(size_bytes));
  made->bytes_ = absl::MakeSpan(made->pages_.get(), size_bytes);
  return made;
}

// What holders gave back. The lock also orders their last reads before our next writes.
struct PublishedBytesPool::Returned {
  Mutex mutex;
  std::vector<std::shared_ptr<PublishedBytes>> free LEEWAY_GUARDED_BY(mutex);
};

PublishedBytesPool::PublishedBytesPool(std::string run)
    : run_(std::move(run)), returned_(std::make_shared<Returned>()) {}
PublishedBytesPool::~PublishedBytesPool() = default;

absl::StatusOr<std::shared_ptr<PublishedBytes>> PublishedBytesPool::Stage(
    uint64_t size_bytes, bool wants_shared_memory, const std::function<bool(const SharedMemorySegment&)>& may_reuse) {
  std::vector<std::shared_ptr<PublishedBytes>> free;
  {
    MutexLock lock(&returned_->mutex);
    free.swap(returned_->free);
  }
  // What is free and not fit for this version is given up, so that there are never more than two and those still read.
  const auto found = std::find_if(free.begin(), free.end(), [&](const std::shared_ptr<PublishedBytes>& memory) {
    if (memory->bytes().size() != size_bytes) return false;
    return !wants_shared_memory || (memory->segment() != nullptr && may_reuse(*memory->segment()));
  });
  std::shared_ptr<PublishedBytes> memory;
  if (found != free.end()) {
    memory = *found;
  } else {
    free.clear();
    LEEWAY_ASSIGN_OR_RETURN(memory, Allocate(size_bytes, wants_shared_memory));
  }
  PublishedBytes* const bytes = memory.get();
  return std::shared_ptr<PublishedBytes>(bytes,
                                         [returned = returned_, memory = std::move(memory)](PublishedBytes*) mutable {
                                           MutexLock lock(&returned->mutex);
                                           returned->free.push_back(std::move(memory));
                                         });
}

absl::StatusOr<std::shared_ptr<PublishedBytes>> PublishedBytesPool::Allocate(uint64_t size_bytes,
                                                                             bool wants_shared_memory) const {
  if (wants_shared_memory) {
    absl::StatusOr<std::shared_ptr<PublishedBytes>> shared = PublishedBytes::InSharedMemory(run_, size_bytes);
    if (shared.ok()) return shared;
    LEEWAY_LOG_WARNING("weights go to receivers over gRPC instead of shared memory: {}", shared.status().ToString());
  }
  return PublishedBytes::InPrivateMemory(size_bytes);
}

}  // namespace leeway
