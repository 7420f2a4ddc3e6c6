#ifndef LEEWAY_QUEUE_DURABLE_REPLIES_H_
#define LEEWAY_QUEUE_DURABLE_REPLIES_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <utility>

#include "absl/status/status.h"
#include "base/mutex.h"

namespace leeway {

// Answers that wait until the store has made durable what they tell. They go out in the order in which they were added,
// one at a time, each once: with OK when its write is durable, with UNAVAILABLE when the queue stops before that.
//
//   Add ──► waiting ──OnDurable(number)──► sent(OK)          waiting ──Shutdown──► sent(UNAVAILABLE)
//
// Threads: thread-safe. Replies run on the thread of whichever call made them possible, without the lock; they must not
// block. Never blocks.
class DurableReplies {
 public:
  using Reply = std::function<void(const absl::Status& status)>;

  // Sent once write `number` is durable; at once if it is and nothing waits before it.
  void Add(uint64_t number, Reply reply) LEEWAY_EXCLUDES(mutex_);
  bool IsDurable(uint64_t number) LEEWAY_EXCLUDES(mutex_);
  // Write `number` and all before it are durable.
  void OnDurable(uint64_t number) LEEWAY_EXCLUDES(mutex_);
  // Sends everything that waits, and everything later whose write is not durable yet, with UNAVAILABLE.
  void Shutdown() LEEWAY_EXCLUDES(mutex_);

 private:
  // Sends what can be sent; one thread at a time, the others leave it to that one.
  void Send() LEEWAY_EXCLUDES(mutex_);

  Mutex mutex_;
  std::deque<std::pair<uint64_t, Reply>> waiting_ LEEWAY_GUARDED_BY(mutex_);
  uint64_t durable_ LEEWAY_GUARDED_BY(mutex_) = 0;
  bool sending_ LEEWAY_GUARDED_BY(mutex_) = false;
  bool shut_down_ LEEWAY_GUARDED_BY(mutex_) = false;
};

}  // namespace leeway

#endif  // LEEWAY_QUEUE_DURABLE_REPLIES_H_
