#include "weightsync/transport/fetch_client.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "base/status_macros.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "grpcpp/impl/codegen/proto_utils.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/sync_stream.h"
#include "leeway/v1/weights.grpc.pb.h"
#include "rpc/status_mapping.h"
#include "rpc/unary_call.h"
#include "weightsync/transport/bucket_codec.h"

namespace leeway {
namespace {

// Copies the bytes [begin, begin + size) of a message that lies in pieces.
void CopyOut(const std::vector<grpc::Slice>& slices, size_t begin, size_t size, std::byte* destination) {
  for (const grpc::Slice& slice : slices) {
    if (begin >= slice.size()) {
      begin -= slice.size();
      continue;
    }
    const size_t piece = std::min(slice.size() - begin, size);
    std::memcpy(destination, slice.begin() + begin, piece);
    destination += piece;
    size -= piece;
    begin = 0;
    if (size == 0) return;
  }
}

class FetchReader : public BucketReader {
 public:
  FetchReader(std::shared_ptr<grpc::Channel> channel, const TransferRequest& request) : channel_(std::move(channel)) {
    v1::FetchRequest fetch;
    *fetch.mutable_identity() = request.identity;
    *fetch.mutable_weights() = request.weights;
    fetch.set_bucket_bytes(request.bucket_bytes);
    context_.set_deadline(CallDeadline(request.deadline.Remaining()));
    // The announcement came over another connection; this one may still be pausing after the last publisher's death.
    context_.set_wait_for_ready(true);
    // As the generated stub does it, but with the answers left in gRPC's own buffers.
    const grpc::internal::RpcMethod method("/leeway.v1.Weights/Fetch", grpc::internal::RpcMethod::SERVER_STREAMING,
                                           channel_);
    reader_.reset(
        grpc::internal::ClientReaderFactory<grpc::ByteBuffer>::Create(channel_.get(), method, &context_, fetch));
  }
  ~FetchReader() override {
    if (is_finished_) return;
    context_.TryCancel();
    static_cast<void>(reader_->Finish());
  }

  absl::Status Read(uint64_t offset, absl::Span<std::byte> destination) override {
    grpc::ByteBuffer message;
    if (is_finished_ || !reader_->Read(&message)) return EndOfStream(offset);
    LEEWAY_ASSIGN_OR_RETURN(const uint64_t hash, Unpack(&message, offset, destination));
    if (Hash64(destination.data(), destination.size()) != hash)
      return absl::DataLossError(absl::StrCat("the bucket at byte ", offset, " does not have its hash"));
    return absl::OkStatus();
  }
  void Cancel() override {
    is_cancelled_ = true;
    context_.TryCancel();
  }

 private:
  absl::Status EndOfStream(uint64_t offset) {
    if (is_finished_) return absl::FailedPreconditionError("read after the end of Fetch");
    is_finished_ = true;
    const absl::Status status = FromGrpcStatus(reader_->Finish(), "Fetch", is_cancelled_);
    if (!status.ok()) return status;
    return absl::DataLossError(absl::StrCat("Fetch ended before the bucket at byte ", offset));
  }

  // Copies the data of the bucket out and returns the hash that it should have.
  static absl::StatusOr<uint64_t> Unpack(grpc::ByteBuffer* message, uint64_t offset,
                                         absl::Span<std::byte> destination) {
    std::vector<grpc::Slice> slices;
    static_cast<void>(message->Dump(&slices));
    char beginning[kMaxBucketHeaderBytes];
    const size_t known = std::min(message->Length(), sizeof(beginning));
    CopyOut(slices, 0, known, reinterpret_cast<std::byte*>(beginning));
    const std::optional<BucketHeader> header =
        DecodeBucketHeader(absl::string_view(beginning, known), message->Length());
    if (header.has_value()) {
      LEEWAY_RETURN_IF_ERROR(CheckPlace(offset, destination.size(), header->offset, header->data_bytes));
      CopyOut(slices, header->data_begin, header->data_bytes, destination.data());
      return header->hash;
    }
    // A publisher in another language may write the fields in another order.
    v1::Bucket bucket;
    const grpc::Status parsed = grpc::SerializationTraits<v1::Bucket>::Deserialize(message, &bucket);
    if (!parsed.ok()) return absl::DataLossError(absl::StrCat("the bucket at byte ", offset, " is not readable"));
    LEEWAY_RETURN_IF_ERROR(CheckPlace(offset, destination.size(), bucket.offset(), bucket.data().size()));
    std::memcpy(destination.data(), bucket.data().data(), destination.size());
    return bucket.hash();
  }

  static absl::Status CheckPlace(uint64_t offset, size_t size, uint64_t got_offset, size_t got_size) {
    if (got_offset == offset && got_size == size) return absl::OkStatus();
    return absl::DataLossError(absl::StrCat("expected the bucket of ", size, " bytes at byte ", offset, ", got ",
                                            got_size, " bytes at byte ", got_offset));
  }

  const std::shared_ptr<grpc::Channel> channel_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReader<grpc::ByteBuffer>> reader_;
  bool is_finished_ = false;
  std::atomic<bool> is_cancelled_{false};
};

}  // namespace

absl::StatusOr<std::unique_ptr<BucketReader>> FetchTransport::Open(const TransferRequest& request) {
  return std::make_unique<FetchReader>(channel_, request);
}

}  // namespace leeway
