#ifndef LEEWAY_WEIGHTSYNC_WEIGHT_CLIENT_H_
#define LEEWAY_WEIGHTSYNC_WEIGHT_CLIENT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "rpc/security/connection_security.h"
#include "weightsync/weight_subscriber.h"

namespace leeway {

class ReceiverTransport;

// The receiver of DESIGN 3.4 over gRPC, in a rollout worker's process.
//
// Threads: gRPC's own (control stream), one that keeps the time (connects, tries again with back-off and jitter,
// heartbeats), one that loads and verifies bytes. The methods only take a lock for a moment: the engine is never held
// up by a transfer. Memory: two buffers of the model's size (active and shadow), mapped once, plus one bucket. A
// version that the engine still holds keeps its buffer; the next load waits for it.
class GrpcWeightSubscriber : public WeightSubscriber {
 public:
  struct Options {
    // GrpcWeightPublisher::address().
    std::string publisher_address;
    // How the publisher is to know this caller, over TCP.
    ConnectionSecurity security;
    // Of this worker, for messages: "rollout-0".
    std::string name;
    // Names, shapes and dtypes in the order in which the worker wants the bytes (MakeLayout).
    v1::Manifest expected;
    // "shared_memory" (publisher on this machine) or "grpc".
    std::string transport = "shared_memory";
    absl::Duration initial_backoff = absl::Milliseconds(50);
    absl::Duration max_backoff = absl::Seconds(2);
  };

  // INVALID_ARGUMENT: options. Does not connect: SetIdentity does.
  static absl::StatusOr<std::unique_ptr<GrpcWeightSubscriber>> Create(const Options& options);
  // Shutdown.
  ~GrpcWeightSubscriber() override;

  void SetIdentity(const v1::WorkerIdentity& identity) override;
  std::optional<CommittedWeights> TakeNewer() override;
  bool WaitForNewer(absl::Duration timeout) override;
  void NoteCommitted(const v1::WeightsVersion& weights, const std::string& digest) override;
  void ReportSwapped(const v1::WeightsVersion& weights, absl::Duration took) override;
  bool is_fenced() const override;
  bool has_abandoned_load() const override;
  void Shutdown() override;

  // Why it was fenced last; empty if it never was. For logs.
  std::string fence_reason() const;

  // For tests: `wrap` gets the real transport and returns the one to use. Before SetIdentity.
  void WrapTransportForTest(
      const std::function<std::unique_ptr<ReceiverTransport>(std::unique_ptr<ReceiverTransport>)>& wrap);

 private:
  class Impl;
  explicit GrpcWeightSubscriber(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace leeway

#endif  // LEEWAY_WEIGHTSYNC_WEIGHT_CLIENT_H_
