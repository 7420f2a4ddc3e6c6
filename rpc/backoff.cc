#include "rpc/backoff.h"

#include <algorithm>
#include <cmath>

#include "base/random.h"
#include "rpc/status_mapping.h"

namespace leeway {

absl::Duration Backoff::Next() {
  // Beyond this many failures every sane policy is at its maximum; the cap keeps pow() finite.
  const int exponent = std::min(failures_, 64);
  ++failures_;
  const absl::Duration plain = std::min(policy_.initial * std::pow(policy_.multiplier, exponent), policy_.maximum);
  RandomKey key{.seed = seed_, .purpose = RandomPurpose::kBackoff};
  key.position = drawn_++;
  return plain * (1.0 + policy_.jitter * (2.0 * RandomUniform(key) - 1.0));
}

absl::Status RetryWithBackoff(const BackoffPolicy& policy, uint64_t seed, const Deadline& deadline,
                              const std::function<bool(absl::Duration)>& wait,
                              const std::function<absl::Status()>& attempt) {
  Backoff backoff(policy, seed);
  while (true) {
    absl::Status status = attempt();
    if (!IsRetryable(status)) return status;
    const absl::Duration delay = backoff.Next();
    if (deadline.Remaining() <= delay || !wait(delay)) return status;
  }
}

}  // namespace leeway
