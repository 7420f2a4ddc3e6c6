#ifndef LEEWAY_WEIGHTSYNC_WEIGHT_SUBSCRIBER_H_
#define LEEWAY_WEIGHTSYNC_WEIGHT_SUBSCRIBER_H_

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "leeway/v1/queue.pb.h"
#include "leeway/v1/weights.pb.h"

namespace leeway {

// Verified, committed weights, ready to be generated from. Bytes in manifest layout order; they stay valid and
// unchanged while the object lives (releasing it gives the buffer back as the next shadow).
struct CommittedWeights {
  v1::WeightsVersion weights;
  std::string digest;
  std::shared_ptr<const std::byte> bytes;
  uint64_t total_bytes = 0;
};

// A rollout worker's side of DESIGN 3.4. Attaches to the publisher, keeps a double buffer, reconnects by itself with
// back-off, and never hands out bytes that were not proved equal to a committed manifest. Thread-safe.
class WeightSubscriber {
 public:
  virtual ~WeightSubscriber() = default;

  // Uses this identity from now on (attaches, or attaches again, under it). Does not block.
  virtual void SetIdentity(const v1::WorkerIdentity& identity) = 0;
  // Committed weights newer than those last taken, if any: called by the engine at a token boundary. Does not block.
  // A relabel (same digest) is handed out too, with the same bytes.
  virtual std::optional<CommittedWeights> TakeNewer() = 0;
  // Blocks until TakeNewer would give something, `timeout`, or Shutdown.
  virtual bool WaitForNewer(absl::Duration timeout) = 0;
  // The queue said that this version is committed (a ticket or heartbeat named it): a verified shadow with that digest
  // may be swapped in even if the publisher died before it could say so.
  virtual void NoteCommitted(const v1::WeightsVersion& weights, const std::string& digest) = 0;
  // The engine generates from `weights` now.
  virtual void ReportSwapped(const v1::WeightsVersion& weights, absl::Duration took) = 0;
  // True after the publisher fenced this identity: register again, then SetIdentity.
  virtual bool is_fenced() const = 0;
  // True while the loader is still inside a load that was given up (fenced, replaced, too late): until it comes back,
  // whatever is announced can not be received, under this identity or the next.
  virtual bool has_abandoned_load() const = 0;
  virtual void Shutdown() = 0;
};

}  // namespace leeway

#endif  // LEEWAY_WEIGHTSYNC_WEIGHT_SUBSCRIBER_H_
