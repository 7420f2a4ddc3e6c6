#ifndef LEEWAY_WEIGHTSYNC_WEIGHT_SERVICE_H_
#define LEEWAY_WEIGHTSYNC_WEIGHT_SERVICE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "rpc/security/connection_security.h"
#include "weightsync/weight_publisher.h"

namespace leeway {

// The publisher of DESIGN 3.4 over gRPC: a server of its own inside the trainer's process, to which receivers dial in.
//
// Threads: gRPC's own (control streams, Fetch streams) and one that watches deadlines; Prepare blocks its caller only.
// Decisions are taken in PublisherState (publisher_state.h), under one lock, never while bytes are copied. Memory: the
// committed bytes and the bytes being published, both kept and written again by later publishes.
class GrpcWeightPublisher : public WeightPublisher {
 public:
  struct Options {
    // Where to listen: "unix:/path" or "host:port" (port 0 = any free one, see address()).
    std::string address;
    // Who may call over TCP.
    ConnectionSecurity security;
    // Names shared-memory objects ("/leeway-<run>-<pid>-..."): letters, digits, '-' and '_' are kept. Objects of dead
    // processes with the prefix "leeway-" are removed at Create.
    std::string run_name = "run";
    // Largest piece that travels at once; at least 1.
    uint64_t bucket_bytes = 1 << 20;
    // Longest time from an announce to its answer.
    absl::Duration announce_timeout = absl::Seconds(10);
    // Longest time for a joiner's load, from announce to verified.
    absl::Duration join_timeout = absl::Seconds(120);
    // Receivers are asked for a sign of life this often, and fenced after `heartbeat_timeout` of silence.
    absl::Duration heartbeat_interval = absl::Seconds(1);
    absl::Duration heartbeat_timeout = absl::Seconds(15);
  };

  // Starts to listen. INVALID_ARGUMENT: options. UNAVAILABLE: the address cannot be bound.
  static absl::StatusOr<std::unique_ptr<GrpcWeightPublisher>> Create(const Options& options);
  // Ends all streams (receivers see a lost connection and try again) and removes shared memory. Bounded by a few
  // seconds.
  ~GrpcWeightPublisher() override;

  absl::StatusOr<PreparedPublish> Prepare(const v1::WeightsVersion& weights, absl::Span<const TensorView> tensors,
                                          absl::Duration timeout) override;
  void Commit(const v1::WeightsVersion& weights) override;
  void Abandon(const v1::WeightsVersion& weights, const std::string& reason) override;
  int member_count() const override;

  // What receivers dial: Options::address with the real port.
  const std::string& address() const;

 private:
  class Impl;
  explicit GrpcWeightPublisher(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace leeway

#endif  // LEEWAY_WEIGHTSYNC_WEIGHT_SERVICE_H_
