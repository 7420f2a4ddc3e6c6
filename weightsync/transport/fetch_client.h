#ifndef LEEWAY_WEIGHTSYNC_TRANSPORT_FETCH_CLIENT_H_
#define LEEWAY_WEIGHTSYNC_TRANSPORT_FETCH_CLIENT_H_

#include <memory>

#include "weightsync/transport/receiver_transport.h"

namespace grpc {
class Channel;
}

namespace leeway {

// Transport grpc, receiver's side: one Fetch stream a load. Every bucket carries its own hash and is refused
// (DATA_LOSS) if it does not match, or is not the bucket that was to come. Bytes are copied once, from gRPC's buffers
// to the destination. Thread-safe.
class FetchTransport : public ReceiverTransport {
 public:
  // A connection of its own, so that bulk bytes never delay control messages.
  explicit FetchTransport(std::shared_ptr<grpc::Channel> channel) : channel_(std::move(channel)) {}

  // Does not block. Errors of the call come from Read.
  absl::StatusOr<std::unique_ptr<BucketReader>> Open(const TransferRequest& request) override;

 private:
  const std::shared_ptr<grpc::Channel> channel_;
};

}  // namespace leeway

#endif  // LEEWAY_WEIGHTSYNC_TRANSPORT_FETCH_CLIENT_H_
