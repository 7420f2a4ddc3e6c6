#include "weightsync/transport/receiver_transport.h"

#include <algorithm>

#include "base/failpoint.h"
#include "base/status_macros.h"

namespace leeway {
namespace {

// Not OK when a test wants the bucket damaged on its way.
absl::Status CameIntact() {
  LEEWAY_FAILPOINT_STATUS("weights_receiver_corrupted_bucket");
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadAllBuckets(BucketReader* reader, const TransferRequest& request, absl::Span<std::byte> destination,
                            const std::function<bool()>& is_wanted) {
  LEEWAY_CHECK(destination.size() == request.total_bytes && request.bucket_bytes > 0)
      << destination.size() << " bytes for " << request.total_bytes << " in buckets of " << request.bucket_bytes;
  for (uint64_t offset = 0; offset < request.total_bytes; offset += request.bucket_bytes) {
    LEEWAY_FAILPOINT_STATUS("weights_receiver_mid_transfer");
    if (!is_wanted()) return absl::CancelledError("the load is no longer wanted");
    if (request.deadline.HasPassed()) return absl::DeadlineExceededError("the transfer took too long");
    const uint64_t size = std::min(request.bucket_bytes, request.total_bytes - offset);
    LEEWAY_RETURN_IF_ERROR(reader->Read(offset, destination.subspan(offset, size)));
    // One bit, as a faulty line would: only the digest can tell.
    if (!CameIntact().ok()) destination[offset + size / 2] ^= std::byte{0x10};
  }
  return absl::OkStatus();
}

}  // namespace leeway
