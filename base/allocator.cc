#include "base/allocator.h"

#include <malloc.h>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"

#ifdef LEEWAY_JEMALLOC
#include <jemalloc/jemalloc.h>

// Read by jemalloc before main(). Freed memory is kept; large blocks are no exception; huge pages for all of it. And it
// is used again before anything new is: by itself jemalloc does not cut a block from a free one that is more than 64
// (2^6) times as large, so that after a batch was freed, and its pieces grew together, the next one came from new
// pages.
extern "C" {
const char* malloc_conf =
    "dirty_decay_ms:-1,muzzy_decay_ms:-1,oversize_threshold:0,lg_extent_max_active_fit:40,thp:always,"
    "metadata_thp:auto";
}
#endif

namespace leeway {

void PrepareAllocator() {
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
#ifndef LEEWAY_JEMALLOC
  // The nearest that glibc has: blocks below the largest threshold it accepts come from a heap that is never trimmed.
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  mallopt(M_TOP_PAD, 16 << 20);
#endif
}

std::string AllocatorName() {
#ifdef LEEWAY_JEMALLOC
  const char* version = nullptr;
  size_t size = sizeof(version);
  if (mallctl("version", &version, &size, nullptr, 0) == 0) return absl::StrCat("jemalloc ", version);
#endif
  return "glibc";
}

}  // namespace leeway
