#ifndef LEEWAY_RPC_STREAMS_PAYLOAD_MESSAGE_H_
#define LEEWAY_RPC_STREAMS_PAYLOAD_MESSAGE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "google/protobuf/message_lite.h"

namespace leeway {

// A protobuf message that carries payloads, as its bytes, put together without making the message: a large payload is
// pointed at, not copied. No gRPC here: byte_buffer.h hands it over. Not thread-safe.
class PayloadMessage {
 public:
  // Payloads are shared with those who may have to send them again.
  using Payload = std::shared_ptr<const std::string>;

  // Bytes in order: those of `text`, or (text empty) the `view`, which `owner` keeps alive.
  struct Piece {
    std::string text;
    absl::string_view view;
    Payload owner;
    absl::string_view bytes() const { return owner == nullptr ? absl::string_view(text) : view; }
  };

  void Clear() { pieces_.clear(); }
  bool empty() const { return pieces_.empty(); }
  const std::vector<Piece>& pieces() const { return pieces_; }
  std::vector<Piece>* mutable_pieces() { return &pieces_; }
  // Of all pieces, and these one behind the other.
  uint64_t size_bytes() const;
  std::string ToString() const;

  // Fields of the message itself. What is added twice is merged, as protobuf does it.
  void AddFields(const google::protobuf::MessageLite& fields);
  // An element of the repeated message field `field`: `head`, and in its bytes field `data_field` `size` bytes of
  // `payload` from `offset` on. Field numbers are below 16.
  void AddElement(uint32_t field, const google::protobuf::MessageLite& head, uint32_t data_field,
                  const Payload& payload, uint64_t offset, uint64_t size);

 private:
  std::string* Text();

  std::vector<Piece> pieces_;
};

}  // namespace leeway

#endif  // LEEWAY_RPC_STREAMS_PAYLOAD_MESSAGE_H_
