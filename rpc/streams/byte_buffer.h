#ifndef LEEWAY_RPC_STREAMS_BYTE_BUFFER_H_
#define LEEWAY_RPC_STREAMS_BYTE_BUFFER_H_

#include <utility>
#include <vector>

#include "grpcpp/support/byte_buffer.h"
#include "rpc/streams/payload_message.h"

namespace leeway {

// The message's bytes for gRPC, without copying them; they live as long as gRPC needs them.
inline grpc::ByteBuffer ToByteBuffer(PayloadMessage message) {
  using Piece = PayloadMessage::Piece;
  std::vector<grpc::Slice> slices;
  slices.reserve(message.pieces().size());
  for (Piece& piece : *message.mutable_pieces()) {
    auto* const kept = new Piece(std::move(piece));
    const absl::string_view bytes = kept->bytes();
    slices.emplace_back(
        const_cast<char*>(bytes.data()), bytes.size(), [](void* owned) { delete static_cast<Piece*>(owned); }, kept);
  }
  return grpc::ByteBuffer(slices.data(), slices.size());
}

}  // namespace leeway

#endif  // LEEWAY_RPC_STREAMS_BYTE_BUFFER_H_
