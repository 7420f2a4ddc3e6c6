#ifndef LEEWAY_QUEUE_STORE_QUEUE_STORE_H_
#define LEEWAY_QUEUE_STORE_QUEUE_STORE_H_

// What a queue keeps: the bytes of acknowledged trajectories, and records from which the ledger and everything beside
// it come back after a restart.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace leeway {

// A serialised v1::Trajectory, shared without copying.
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

// A payload as a store holds it: in memory, or a place on disk. It stays readable after the store has erased it.
class StoredPayload {
 public:
  virtual ~StoredPayload() = default;
  virtual uint64_t size_bytes() const = 0;
  // May read the disk (no lock is needed, any thread). DATA_LOSS: the bytes are damaged.
  virtual absl::StatusOr<Payload> Load() const = 0;
};

// A payload that is in memory.
class PayloadInMemory final : public StoredPayload {
 public:
  explicit PayloadInMemory(Payload payload) : payload_(std::move(payload)) {}
  uint64_t size_bytes() const override { return payload_->size(); }
  absl::StatusOr<Payload> Load() const override { return payload_; }

 private:
  const Payload payload_;
};

// A record to be written, or (without a value) to be removed. Keys are the caller's, they start with a small letter.
struct StoreRecord {
  std::string key;
  std::optional<std::string> value;
};

// Role: payloads and records, and when they are safe. A *write* is everything that was Put, Erased and given to Write
// since the write before; it is atomic: after a crash all of it is there, or nothing, and never without the writes
// before it.
//
// Threads: Put, Get, Erase, Write and the counts under the caller's lock (one call at a time); WhenDurable and refusal
// from any thread; callbacks run on a thread of the store's, or before WhenDurable returns, without a lock. Blocking:
// Recover reads the disk, and so does StoredPayload::Load; Get may open a file. Nothing else waits for the disk.
//
// Bounds are the ledger's business: a store is never asked to hold more than was reserved at issue, so
// RESOURCE_EXHAUSTED means that the disk is full, broken or behind.
class QueueStore {
 public:
  virtual ~QueueStore() = default;

  // ---- payloads -----------------------------------------------------------------------------------------------------

  // Keeps `payload` under `key`, replacing nothing: ALREADY_EXISTS = the key is taken (the caller's bug).
  // RESOURCE_EXHAUSTED = not now, the message says why; nothing was kept and the same call may be repeated later.
  virtual absl::Status Put(const PayloadKey& key, Payload payload) = 0;
  // NOT_FOUND = never put or erased.
  virtual absl::StatusOr<std::shared_ptr<const StoredPayload>> Get(const PayloadKey& key) const = 0;
  // Idempotent.
  virtual void Erase(const PayloadKey& key) = 0;
  virtual uint64_t payloads() const = 0;
  virtual uint64_t bytes() const = 0;

  // ---- writes -------------------------------------------------------------------------------------------------------

  // False: records are not wanted, and everything is gone with the process.
  virtual bool is_durable() const = 0;
  // Ends a write. Returns its number: 1, 2, ...
  virtual uint64_t Write(std::vector<StoreRecord> records) = 0;
  // Calls `done` once write `number` (0: nothing) and all before it are durable; in the order of the calls for the same
  // or rising numbers. While the disk fails nothing becomes durable and the store tries again; callbacks that are still
  // waiting when the store is destroyed are dropped.
  virtual void WhenDurable(uint64_t number, std::function<void()> done) = 0;
  // Why Put is refused at this moment, for people and for answers; empty = it is not.
  virtual std::string refusal() const = 0;

  // ---- after a restart ----------------------------------------------------------------------------------------------

  using RecordVisitor = std::function<absl::Status(absl::string_view key, absl::string_view value)>;
  // Every record that was durable, ascending by key. Before the first Put and Write. The first error of `visit` ends
  // it.
  virtual absl::Status Recover(const RecordVisitor& visit) const = 0;
};

}  // namespace leeway

#endif  // LEEWAY_QUEUE_STORE_QUEUE_STORE_H_
