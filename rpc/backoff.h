#ifndef LEEWAY_RPC_BACKOFF_H_
#define LEEWAY_RPC_BACKOFF_H_

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/clock.h"

namespace leeway {

// How long to wait before trying again: initial, initial * multiplier, ... up to maximum, each times a random factor in
// [1 - jitter, 1 + jitter], so that many clients do not come back at the same moment.
struct BackoffPolicy {
  absl::Duration initial = absl::Milliseconds(20);
  absl::Duration maximum = absl::Seconds(2);
  double multiplier = 2.0;
  double jitter = 0.2;
};

// The delays of one sequence of failures. Not thread-safe, no clock: the caller waits. Different seeds give different
// jitter.
class Backoff {
 public:
  Backoff(const BackoffPolicy& policy, uint64_t seed) : policy_(policy), seed_(seed) {}

  // The delay before the next try; longer each time.
  absl::Duration Next();
  // After a success: starts over from `initial`.
  void Reset() { failures_ = 0; }
  int failures() const { return failures_; }

 private:
  const BackoffPolicy policy_;
  const uint64_t seed_;
  int failures_ = 0;
  uint64_t drawn_ = 0;
};

// Calls `attempt` until it gives something that is not retryable (rpc/status_mapping.h) or `deadline` would pass before
// the next try. For idempotent calls only. `wait` sleeps that long and returns false when the caller is to give up
// (cancelled). Returns the last status of `attempt`.
absl::Status RetryWithBackoff(const BackoffPolicy& policy, uint64_t seed, const Deadline& deadline,
                              const std::function<bool(absl::Duration)>& wait,
                              const std::function<absl::Status()>& attempt);

}  // namespace leeway

#endif  // LEEWAY_RPC_BACKOFF_H_
