#ifndef LEEWAY_COLLECTIVE_CPU_RENDEZVOUS_STORE_H_
#define LEEWAY_COLLECTIVE_CPU_RENDEZVOUS_STORE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"

namespace leeway {

// Where ranks find each other and agree on why they failed. It lives outside the ranks, so that it survives each of
// them. Keys are written once and never change; who uses it puts a generation in front of all keys, a new one for every
// new set of ranks. Thread-safe.
class RendezvousStore {
 public:
  virtual ~RendezvousStore() = default;

  // Writes `value` unless the key has one, atomically, and returns what the key holds then. DEADLINE_EXCEEDED,
  // UNAVAILABLE: the store does not answer; the key may have been written.
  virtual absl::StatusOr<std::string> SetOnce(const std::string& key, const std::string& value,
                                              const Deadline& deadline) = 0;
  // Waits until the key has a value. DEADLINE_EXCEEDED when it has none by then; asked at least once.
  virtual absl::StatusOr<std::string> Get(const std::string& key, const Deadline& deadline) = 0;
};

}  // namespace leeway

#endif  // LEEWAY_COLLECTIVE_CPU_RENDEZVOUS_STORE_H_
