#ifndef LEEWAY_RPC_STREAMS_OUTGOING_QUEUE_H_
#define LEEWAY_RPC_STREAMS_OUTGOING_QUEUE_H_

#include <cstddef>
#include <deque>
#include <utility>

#include "base/status_macros.h"

namespace leeway {

// What a stream still has to write: one message in flight, the others behind it, at most `limit` in all. The rules of
// writing on a stream, without the stream. Not thread-safe.
template <class Message>
class OutgoingQueue {
 public:
  explicit OutgoingQueue(size_t limit) : limit_(limit) {}

  // False when the queue is full, closed or broken: the message is not taken, and left as it was.
  bool Add(Message&& message) {
    if (closed_ || messages_.size() >= limit_) return false;
    messages_.push_back(std::move(message));
    return true;
  }
  // The message to write now, which is in flight from here on; null when one is in flight or there is none. Stays valid
  // until Done.
  const Message* StartNext() {
    if (in_flight_ || messages_.empty()) return nullptr;
    in_flight_ = true;
    return &messages_.front();
  }
  // The write of the message in flight ended. Not ok: the stream is broken, nothing more can be written.
  void Done(bool ok) {
    LEEWAY_CHECK(in_flight_) << "a write ended that was not started";
    in_flight_ = false;
    messages_.pop_front();
    if (!ok) Drop();
  }
  // Nothing more is taken; what is queued is still written.
  void Close() { closed_ = true; }
  // Nothing more is taken or written, but for the one in flight.
  void Drop() {
    closed_ = true;
    while (messages_.size() > (in_flight_ ? 1u : 0u)) messages_.pop_back();
  }

  // Messages not yet written, the one in flight included.
  size_t size() const { return messages_.size(); }
  // Everything that was taken is written (or dropped).
  bool idle() const { return messages_.empty(); }

 private:
  const size_t limit_;
  // A deque, so that the message in flight keeps its address.
  std::deque<Message> messages_;
  bool in_flight_ = false;
  bool closed_ = false;
};

}  // namespace leeway

#endif  // LEEWAY_RPC_STREAMS_OUTGOING_QUEUE_H_
