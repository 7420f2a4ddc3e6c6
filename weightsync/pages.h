#ifndef LEEWAY_WEIGHTSYNC_PAGES_H_
#define LEEWAY_WEIGHTSYNC_PAGES_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"

namespace leeway {

// Page-aligned private memory, in large pages where the system gives them (touching small pages for the first time is
// slower than copying what is in them). Zero at first; used only once it is written; given back when the last holder
// lets go. Never null, also for zero bytes. RESOURCE_EXHAUSTED: not enough address space.
absl::StatusOr<std::shared_ptr<std::byte>> AllocatePages(uint64_t size_bytes);

}  // namespace leeway

#endif  // LEEWAY_WEIGHTSYNC_PAGES_H_
