#ifndef LEEWAY_BASE_FAKE_CLOCK_H_
#define LEEWAY_BASE_FAKE_CLOCK_H_

#include <atomic>

#include "base/clock.h"

namespace leeway {

// A clock that moves only when a test says so. Thread-safe.
class FakeClock : public Clock {
 public:
  MonotonicTime Now() const override { return MonotonicTime{absl::Nanoseconds(now_ns_.load())}; }
  void Advance(absl::Duration by) { now_ns_ += absl::ToInt64Nanoseconds(by); }

 private:
  std::atomic<int64_t> now_ns_{1'000'000'000};
};

}  // namespace leeway

#endif  // LEEWAY_BASE_FAKE_CLOCK_H_
