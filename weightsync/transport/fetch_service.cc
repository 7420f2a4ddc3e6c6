#include "weightsync/transport/fetch_service.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/failpoint.h"
#include "base/hash.h"
#include "grpcpp/impl/codegen/proto_utils.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "rpc/streams/server_stream.h"
#include "weightsync/transport/bucket_codec.h"

namespace leeway {
namespace {

using FetchStream = ServerWriteStream<grpc::ByteBuffer>;
using Pin = std::shared_ptr<const PublishedBytes>;

void DropPin(void* pin) { delete static_cast<Pin*>(pin); }

// A slice of the memory itself; the memory lives until the slice is gone.
grpc::Slice PinnedSlice(const Pin& bytes, uint64_t offset, size_t size) {
  return grpc::Slice(bytes->bytes().data() + offset, size, &DropPin, new Pin(bytes));
}

}  // namespace

absl::StatusOr<v1::FetchRequest> ParseFetchRequest(const grpc::ByteBuffer& request, uint64_t max_bucket_bytes) {
  grpc::ByteBuffer copy(request);
  v1::FetchRequest parsed;
  if (!grpc::SerializationTraits<v1::FetchRequest>::Deserialize(&copy, &parsed).ok())
    return absl::InvalidArgumentError("unreadable FetchRequest");
  if (parsed.bucket_bytes() == 0 || parsed.bucket_bytes() > max_bucket_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("FetchRequest.bucket_bytes is ", parsed.bucket_bytes(), ": expected 1 to ", max_bucket_bytes));
  }
  return parsed;
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* ServeFetch(std::shared_ptr<const PublishedBytes> bytes,
                                                       uint64_t bucket_bytes) {
  std::shared_ptr<FetchStream> stream = FetchStream::Start([](const absl::Status&) {});
  stream->WriteAll([bytes = std::move(bytes), bucket_bytes, offset = uint64_t{0}](grpc::ByteBuffer* message) mutable {
    const uint64_t total = bytes->bytes().size();
    if (offset >= total) return false;
    LEEWAY_FAILPOINT("weights_publisher_mid_transfer");
    const size_t size = std::min(bucket_bytes, total - offset);
    const uint64_t hash = Hash64(bytes->bytes().data() + offset, size);
    const grpc::Slice slices[] = {grpc::Slice(EncodeBucketHeader(offset, hash, size)),
                                  PinnedSlice(bytes, offset, size)};
    *message = grpc::ByteBuffer(slices, 2);
    offset += size;
    return true;
  });
  return stream.get();
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* RefuseFetch(const absl::Status& status) {
  std::shared_ptr<FetchStream> stream = FetchStream::Start([](const absl::Status&) {});
  stream->Finish(status);
  return stream.get();
}

}  // namespace leeway
