#ifndef LEEWAY_QUEUE_WIRE_PUSH_PIPELINE_H_
#define LEEWAY_QUEUE_WIRE_PUSH_PIPELINE_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "leeway/v1/queue.pb.h"
#include "rpc/streams/payload_message.h"

namespace leeway {

// The pushes of one identity that have no final answer yet: numbered, cut, packed into messages, sent again after FULL
// or after a break, answered in order. The rules of pushing without stream, threads or clock. Not thread-safe: callers
// lock around it.
//
//   added -> sent -> answered                       FULL or a break: sent -> added
//
// Credits: never more than they allow are sent and unanswered; what is beyond waits here, and whoever adds bounds that.
//
// After FULL everything behind it in the pipe is answered FULL too; it goes out again, in order, when all those answers
// are there and retry_after has passed.
struct PushCredits {
  // Sent and unanswered at the same time, at most; one push always may be. 0 = no limit.
  uint64_t pushes = 0;
  uint64_t bytes = 0;
};

class PushPipeline {
 public:
  using Done = std::function<void(absl::StatusOr<v1::PushAnswer>)>;
  // What is told to whom once the caller has released its lock, in this order.
  struct Answered {
    Done done;
    absl::StatusOr<v1::PushAnswer> answer;
    void Tell() { done(std::move(answer)); }
  };
  using Callbacks = std::vector<Answered>;

  // Messages carry about `max_chunk_bytes`.
  PushPipeline(const v1::WorkerIdentity& identity, uint64_t max_chunk_bytes, const PushCredits& credits = {})
      : max_chunk_bytes_(max_chunk_bytes), credits_(credits) {
    *head_.mutable_identity() = identity;
  }

  void Add(std::string payload, Done done);

  // Fills the next message, a v1::PushRequest (cleared before). False: nothing to send now (nothing added, answers to
  // FULL outstanding, or retry_after not over).
  bool NextMessage(MonotonicTime now, PayloadMessage* message);
  // When NextMessage has something, as far as is known: now or before if at once, InfiniteFuture if not without Add or
  // answers.
  MonotonicTime NextSend(MonotonicTime now) const;
  // Bytes that are not sent yet.
  uint64_t unsent_bytes() const { return unsent_bytes_; }
  // Waiting for more pushes would not make the next message larger: one is full, or the credits are used up by what is
  // there.
  bool fills_message() const;

  // Takes answers off the stream, moving from `response`. INTERNAL: the queue answered what was not asked; the stream
  // is of no use any more.
  absl::Status OnAnswers(v1::PushResponse* response, MonotonicTime now, Callbacks* callbacks);
  // The stream is gone: everything unanswered has to be sent again, on the next one.
  void OnDisconnected();
  // Answers everything with `status`.
  void FailAll(const absl::Status& status, Callbacks* callbacks);

  int64_t unanswered() const { return static_cast<int64_t>(items_.size()); }

 private:
  struct Item {
    PayloadMessage::Payload payload;
    Done done;
  };

  void SendAgain();
  // The first unsent one may be sent.
  bool HasCredit() const;

  // What every message begins with, and a chunk without its data.
  v1::PushRequest head_;
  v1::PushChunk chunk_;
  const uint64_t max_chunk_bytes_;
  const PushCredits credits_;
  // Oldest first; the first one's sequence number is `first_sequence_`.
  std::deque<Item> items_;
  uint64_t first_sequence_ = 1;
  // So many of items_ are sent whole, and `offset_` bytes of the next.
  size_t sent_ = 0;
  uint64_t offset_ = 0;
  // Of the sent ones.
  uint64_t sent_bytes_ = 0;
  uint64_t unsent_bytes_ = 0;
  // So many of the sent ones were answered FULL; not 0 only until all of them are.
  size_t full_ = 0;
  MonotonicTime not_before_;
};

}  // namespace leeway

#endif  // LEEWAY_QUEUE_WIRE_PUSH_PIPELINE_H_
