#ifndef LEEWAY_WEIGHTSYNC_TRANSPORT_FETCH_SERVICE_H_
#define LEEWAY_WEIGHTSYNC_TRANSPORT_FETCH_SERVICE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "leeway/v1/weights.pb.h"
#include "weightsync/publish/published_bytes.h"

namespace grpc {
class ByteBuffer;
template <class Response>
class ServerWriteReactor;
}  // namespace grpc

namespace leeway {

// Transport grpc, publisher's side: bytes out of the published memory without a copy of ours. Buckets are made one by
// one as the receiver takes them, so a slow one costs one bucket; each pins the memory until gRPC is through with it.

// The request of a raw Fetch call. INVALID_ARGUMENT: unreadable, or buckets of 0 bytes or more than `max_bucket_bytes`.
absl::StatusOr<v1::FetchRequest> ParseFetchRequest(const grpc::ByteBuffer& request, uint64_t max_bucket_bytes);

// Answers a Fetch call with all buckets of `bytes`. Failpoint: weights_publisher_mid_transfer, before each bucket.
grpc::ServerWriteReactor<grpc::ByteBuffer>* ServeFetch(std::shared_ptr<const PublishedBytes> bytes,
                                                       uint64_t bucket_bytes);
// Answers it with an error.
grpc::ServerWriteReactor<grpc::ByteBuffer>* RefuseFetch(const absl::Status& status);

}  // namespace leeway

#endif  // LEEWAY_WEIGHTSYNC_TRANSPORT_FETCH_SERVICE_H_
