#include "queue/durable_replies.h"

#include <algorithm>

namespace leeway {

void DurableReplies::Add(uint64_t number, Reply reply) {
  {
    MutexLock lock(&mutex_);
    waiting_.push_back({number, std::move(reply)});
  }
  Send();
}

bool DurableReplies::IsDurable(uint64_t number) {
  MutexLock lock(&mutex_);
  return number <= durable_;
}

void DurableReplies::OnDurable(uint64_t number) {
  {
    MutexLock lock(&mutex_);
    durable_ = std::max(durable_, number);
  }
  Send();
}

void DurableReplies::Shutdown() {
  {
    MutexLock lock(&mutex_);
    shut_down_ = true;
  }
  Send();
}

void DurableReplies::Send() {
  while (true) {
    std::deque<std::pair<uint64_t, Reply>> ready;
    uint64_t durable = 0;
    {
      MutexLock lock(&mutex_);
      if (sending_) return;
      durable = durable_;
      while (!waiting_.empty() && (shut_down_ || waiting_.front().first <= durable)) {
        ready.push_back(std::move(waiting_.front()));
        waiting_.pop_front();
      }
      if (ready.empty()) return;
      sending_ = true;
    }
    for (auto& [number, reply] : ready) {
      reply(number <= durable ? absl::OkStatus()
                              : absl::UnavailableError("the queue stopped before this was durable: ask again"));
    }
    MutexLock lock(&mutex_);
    sending_ = false;
  }
}

}  // namespace leeway
