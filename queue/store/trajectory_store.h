#ifndef LEEWAY_QUEUE_STORE_TRAJECTORY_STORE_H_
#define LEEWAY_QUEUE_STORE_TRAJECTORY_STORE_H_

// Where the bytes of acknowledged trajectories lie. The ledger says which of them exist; a store only keeps and returns
// them.

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace leeway {

// The serialised v1::Trajectory, shared without copying: a reader may hold it after the store has erased it.
using Payload = std::shared_ptr<const std::string>;

// One member of one group. Issue numbers are left out on purpose: a member has at most one acknowledged trajectory at a
// time.
struct PayloadKey {
  uint64_t ticket = 0;
  uint32_t member = 0;

  friend bool operator==(const PayloadKey& a, const PayloadKey& b) {
    return a.ticket == b.ticket && a.member == b.member;
  }
  template <typename H>
  friend H AbslHashValue(H h, const PayloadKey& key) {
    return H::combine(std::move(h), key.ticket, key.member);
  }
};

// Used under the caller's lock: implementations need no locking of their own. Bounds are the ledger's business: a store
// is never asked to hold more than was reserved at issue, so RESOURCE_EXHAUSTED means that a disk is full.
class TrajectoryStore {
 public:
  virtual ~TrajectoryStore() = default;

  // Keeps `payload` under `key`, replacing nothing: ALREADY_EXISTS = the key is taken (the caller's bug).
  // RESOURCE_EXHAUSTED = no space now; nothing was kept and the same call may be repeated later.
  virtual absl::Status Put(const PayloadKey& key, Payload payload) = 0;
  // NOT_FOUND = never put or erased; DATA_LOSS = the bytes are damaged.
  virtual absl::StatusOr<Payload> Get(const PayloadKey& key) const = 0;
  // Idempotent.
  virtual void Erase(const PayloadKey& key) = 0;

  virtual uint64_t payloads() const = 0;
  virtual uint64_t bytes() const = 0;
};

}  // namespace leeway

#endif  // LEEWAY_QUEUE_STORE_TRAJECTORY_STORE_H_
