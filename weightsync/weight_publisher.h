#ifndef LEEWAY_WEIGHTSYNC_WEIGHT_PUBLISHER_H_
#define LEEWAY_WEIGHTSYNC_WEIGHT_PUBLISHER_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "leeway/v1/queue.pb.h"
#include "leeway/v1/weights.pb.h"

namespace leeway {

// A tensor to publish: borrowed bytes, alive and unchanged until Prepare returns.
struct TensorView {
  std::string name;
  std::vector<int64_t> shape;
  std::string dtype;  // safetensors name
  absl::Span<const std::byte> bytes;
};

// What the stages before the commit achieved.
struct PreparedPublish {
  v1::Manifest manifest;
  // Proved that they hold the bytes. May be empty: a publish without live receivers commits too.
  std::vector<v1::WorkerIdentity> members;
  // Failed, refused or too late: out of the membership; the trainer tells the queue (FenceWorker).
  struct Fenced {
    v1::WorkerIdentity identity;
    std::string name;
    std::string reason;
  };
  std::vector<Fenced> fenced;
  double seconds = 0;
  uint64_t bytes_sent = 0;
};

// The trainer's side of DESIGN 3.4: announce -> transfer -> verify, then (after the queue's Commit) commit or abandon.
//
//   idle ──Prepare──► prepared ──Commit──► idle         Prepare of the committed (lineage, version) again: same digest,
//   same answer.
//                        └───────Abandon──► idle
//
// One caller at a time. Blocks at most the deadline given. A joiner that attaches between publishes is brought to the
// newest committed version by a full, verified load in the background; one that attaches during a publish waits for its
// end.
class WeightPublisher {
 public:
  virtual ~WeightPublisher() = default;

  // Errors: INVALID_ARGUMENT (version goes back within a lineage, or the same version with other bytes). A receiver's
  // failure is not an error.
  virtual absl::StatusOr<PreparedPublish> Prepare(const v1::WeightsVersion& weights,
                                                  absl::Span<const TensorView> tensors, absl::Duration timeout) = 0;
  // Members swap in at their next token boundary. Keeps the bytes for joiners.
  virtual void Commit(const v1::WeightsVersion& weights) = 0;
  virtual void Abandon(const v1::WeightsVersion& weights, const std::string& reason) = 0;
  // Receivers attached now.
  virtual int member_count() const = 0;
};

}  // namespace leeway

#endif  // LEEWAY_WEIGHTSYNC_WEIGHT_PUBLISHER_H_
