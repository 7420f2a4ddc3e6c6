#include "weightsync/publish/published_bytes.h"

#include <algorithm>
#include <atomic>

#include "base/logging.h"
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

absl::StatusOr<std::shared_ptr<PublishedBytes>> PublishedBytesPool::Stage(
    uint64_t size_bytes, bool wants_shared_memory, const std::function<bool(const SharedMemorySegment&)>& may_reuse) {
  const auto is_reusable = [&](const std::shared_ptr<PublishedBytes>& memory) {
    if (memory->bytes().size() != size_bytes) return false;
    if (!wants_shared_memory) return true;
    return memory->segment() != nullptr && may_reuse(*memory->segment());
  };
  std::shared_ptr<PublishedBytes> found;
  // What is free and not fit for this version is given back first, so that there are never more than two and those
  // still read.
  known_.erase(std::remove_if(known_.begin(), known_.end(),
                              [&](const std::shared_ptr<PublishedBytes>& memory) {
                                if (memory.use_count() > 1) return false;
                                if (found != nullptr || !is_reusable(memory)) return true;
                                found = memory;
                                return false;
                              }),
               known_.end());
  if (found != nullptr) {
    // The last holder's reads are over before we write.
    std::atomic_thread_fence(std::memory_order_acquire);
    return found;
  }

  if (wants_shared_memory) {
    absl::StatusOr<std::shared_ptr<PublishedBytes>> shared = PublishedBytes::InSharedMemory(run_, size_bytes);
    if (shared.ok()) {
      known_.push_back(*shared);
      return shared;
    }
    LEEWAY_LOG_WARNING("weights go to receivers over gRPC instead of shared memory: {}", shared.status().ToString());
  }
  LEEWAY_ASSIGN_OR_RETURN(std::shared_ptr<PublishedBytes> pages, PublishedBytes::InPrivateMemory(size_bytes));
  known_.push_back(pages);
  return pages;
}

}  // namespace leeway
