#ifndef LEEWAY_COLLECTIVE_CPU_FAKE_RENDEZVOUS_STORE_H_
#define LEEWAY_COLLECTIVE_CPU_FAKE_RENDEZVOUS_STORE_H_

#include <map>
#include <string>

#include "base/mutex.h"
#include "collective/cpu/rendezvous_store.h"

namespace leeway {

// A store for ranks in one process.
class FakeRendezvousStore final : public RendezvousStore {
 public:
  absl::StatusOr<std::string> SetOnce(const std::string& key, const std::string& value,
                                      const Deadline& deadline) override {
    MutexLock lock(&mutex_);
    const std::string& held = values_.emplace(key, value).first->second;
    changed_.NotifyAll();
    return held;
  }

  absl::StatusOr<std::string> Get(const std::string& key, const Deadline& deadline) override {
    MutexLock lock(&mutex_);
    for (;;) {
      if (const auto found = values_.find(key); found != values_.end()) return found->second;
      if (deadline.HasPassed()) return absl::DeadlineExceededError("no value of " + key);
      changed_.WaitUntil(&mutex_, deadline);
    }
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::map<std::string, std::string> values_ LEEWAY_GUARDED_BY(mutex_);
};

}  // namespace leeway

#endif  // LEEWAY_COLLECTIVE_CPU_FAKE_RENDEZVOUS_STORE_H_
