#include "weightsync/pages.h"

#include <sys/mman.h>

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace leeway {
namespace {

constexpr uint64_t kLargePageBytes = 2 << 20;

}  // namespace

absl::StatusOr<std::shared_ptr<std::byte>> AllocatePages(uint64_t size_bytes) {
  const uint64_t mapped_bytes = std::max<uint64_t>(size_bytes, 1);
  void* data = mmap(nullptr, mapped_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED)
    return absl::ResourceExhaustedError(absl::StrCat("cannot map ", mapped_bytes, " bytes for weights"));
  // A wish only: small pages work too.
  if (mapped_bytes >= kLargePageBytes) madvise(data, mapped_bytes, MADV_HUGEPAGE);
  return std::shared_ptr<std::byte>(static_cast<std::byte*>(data),
                                    [mapped_bytes](std::byte* held) { munmap(held, mapped_bytes); });
}

}  // namespace leeway
