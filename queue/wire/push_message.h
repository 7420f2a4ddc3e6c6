#ifndef LEEWAY_QUEUE_WIRE_PUSH_MESSAGE_H_
#define LEEWAY_QUEUE_WIRE_PUSH_MESSAGE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "leeway/v1/queue.pb.h"

namespace leeway {

// A v1::PushRequest as its bytes, written without making the message: a large payload is pointed at, not copied. Not
// thread-safe.
class PushMessage {
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

  void Clear();
  bool empty() const { return pieces_.empty(); }
  const std::vector<Piece>& pieces() const { return pieces_; }
  std::vector<Piece>* mutable_pieces() { return &pieces_; }
  // Of all pieces.
  uint64_t size_bytes() const;

  void SetIdentity(const v1::WorkerIdentity& identity);
  // Adds a PushChunk with `size` bytes of `payload` from `offset` on.
  void AddChunk(uint64_t sequence, const Payload& payload, uint64_t offset, uint64_t size);

 private:
  std::string* Text();

  std::vector<Piece> pieces_;
};

}  // namespace leeway

#endif  // LEEWAY_QUEUE_WIRE_PUSH_MESSAGE_H_
