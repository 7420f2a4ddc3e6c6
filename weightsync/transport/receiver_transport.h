#ifndef LEEWAY_WEIGHTSYNC_TRANSPORT_RECEIVER_TRANSPORT_H_
#define LEEWAY_WEIGHTSYNC_TRANSPORT_RECEIVER_TRANSPORT_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/clock.h"
#include "leeway/v1/queue.pb.h"
#include "leeway/v1/types.pb.h"

namespace leeway {

// Names of the transports in Hello.transport and in configurations.
inline constexpr char kSharedMemoryTransport[] = "shared_memory";
inline constexpr char kGrpcTransport[] = "grpc";

// What to receive, as the publisher's Transfer message said.
struct TransferRequest {
  v1::WorkerIdentity identity;
  v1::WeightsVersion weights;
  uint64_t total_bytes = 0;
  // Every read is of this size, but for the last one of the version. At least 1.
  uint64_t bucket_bytes = 0;
  // Empty: the bytes come over gRPC, whatever the transport is otherwise.
  std::string shared_memory_name;
  Deadline deadline = Deadline::Infinite();
};

// The bytes of one version, bucket by bucket, in order. One thread reads; any thread may cancel.
class BucketReader {
 public:
  virtual ~BucketReader() = default;
  // Fills `destination` with the bytes from `offset` on. Blocks until they are there, the request's deadline, or
  // Cancel. Errors: DATA_LOSS (the bucket is not what was sent), CANCELLED, DEADLINE_EXCEEDED, and whatever the
  // transport reports.
  virtual absl::Status Read(uint64_t offset, absl::Span<std::byte> destination) = 0;
  // A blocked Read and all later ones return CANCELLED. Does not block.
  virtual void Cancel() = 0;
};

// A way to get bytes from the publisher. Opened once a load; readers must not outlive it. Knows nothing of manifests,
// verification or membership: it may deliver wrong bytes, and the load finds out.
class ReceiverTransport {
 public:
  virtual ~ReceiverTransport() = default;
  virtual absl::StatusOr<std::unique_ptr<BucketReader>> Open(const TransferRequest& request) = 0;
};

// Reads all buckets into `destination` (of total_bytes). Checks `is_wanted` before each and stops with CANCELLED when
// it says no. The proof that these are the announced bytes is not made here (VerifyBytes). Failpoint:
// weights_receiver_mid_transfer, before each bucket.
absl::Status ReadAllBuckets(BucketReader* reader, const TransferRequest& request, absl::Span<std::byte> destination,
                            const std::function<bool()>& is_wanted);

}  // namespace leeway

#endif  // LEEWAY_WEIGHTSYNC_TRANSPORT_RECEIVER_TRANSPORT_H_
