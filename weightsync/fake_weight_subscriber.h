#ifndef LEEWAY_WEIGHTSYNC_FAKE_WEIGHT_SUBSCRIBER_H_
#define LEEWAY_WEIGHTSYNC_FAKE_WEIGHT_SUBSCRIBER_H_

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "base/mutex.h"
#include "weightsync/weight_subscriber.h"

namespace leeway {

// A subscriber that a test feeds by hand, for tests of the engine and the worker: weights are delivered by Deliver,
// calls are recorded. Thread-safe, like the real one: WaitForNewer really waits until Deliver, Shutdown or the timeout.
class FakeWeightSubscriber : public WeightSubscriber {
 public:
  void SetIdentity(const v1::WorkerIdentity& identity) override LEEWAY_EXCLUDES(mutex_);
  std::optional<CommittedWeights> TakeNewer() override LEEWAY_EXCLUDES(mutex_);
  bool WaitForNewer(absl::Duration timeout) override LEEWAY_EXCLUDES(mutex_);
  void NoteCommitted(const v1::WeightsVersion& weights, const std::string& digest) override LEEWAY_EXCLUDES(mutex_);
  void ReportSwapped(const v1::WeightsVersion& weights, absl::Duration took) override LEEWAY_EXCLUDES(mutex_);
  bool is_fenced() const override LEEWAY_EXCLUDES(mutex_);
  bool has_abandoned_load() const override LEEWAY_EXCLUDES(mutex_);
  void Shutdown() override LEEWAY_EXCLUDES(mutex_);

  // ---- script -------------------------------------------------------------------------------------------------------
  // Committed weights arrive: the next TakeNewer gives them (an older, untaken delivery is replaced). Copies the bytes.
  void Deliver(const v1::WeightsVersion& weights, absl::Span<const std::byte> bytes) LEEWAY_EXCLUDES(mutex_);
  // Floats, as models hold them.
  void Deliver(const v1::WeightsVersion& weights, absl::Span<const float> values) LEEWAY_EXCLUDES(mutex_);
  // The same bytes under a new label.
  void Relabel(const v1::WeightsVersion& weights) LEEWAY_EXCLUDES(mutex_);
  // Verified but not committed: handed out only after NoteCommitted names this version and digest.
  void DeliverUncommitted(const v1::WeightsVersion& weights, absl::Span<const std::byte> bytes) LEEWAY_EXCLUDES(mutex_);
  // is_fenced() is true until the next SetIdentity.
  void Fence() LEEWAY_EXCLUDES(mutex_);
  // What has_abandoned_load() says from now on.
  void SetAbandonedLoad(bool has_abandoned_load) LEEWAY_EXCLUDES(mutex_);

  // ---- record -------------------------------------------------------------------------------------------------------
  std::vector<v1::WorkerIdentity> identities() const LEEWAY_EXCLUDES(mutex_);
  std::vector<v1::WeightsVersion> swaps() const LEEWAY_EXCLUDES(mutex_);
  std::vector<std::pair<v1::WeightsVersion, std::string>> noted() const LEEWAY_EXCLUDES(mutex_);
  bool is_shut_down() const LEEWAY_EXCLUDES(mutex_);

 private:
  static CommittedWeights Copy(const v1::WeightsVersion& weights, absl::Span<const std::byte> bytes);

  mutable Mutex mutex_;
  CondVar changed_;
  std::optional<CommittedWeights> newer_ LEEWAY_GUARDED_BY(mutex_);
  std::optional<CommittedWeights> uncommitted_ LEEWAY_GUARDED_BY(mutex_);
  std::optional<CommittedWeights> last_ LEEWAY_GUARDED_BY(mutex_);
  std::vector<v1::WorkerIdentity> identities_ LEEWAY_GUARDED_BY(mutex_);
  std::vector<v1::WeightsVersion> swaps_ LEEWAY_GUARDED_BY(mutex_);
  std::vector<std::pair<v1::WeightsVersion, std::string>> noted_ LEEWAY_GUARDED_BY(mutex_);
  bool is_fenced_ LEEWAY_GUARDED_BY(mutex_) = false;
  bool has_abandoned_load_ LEEWAY_GUARDED_BY(mutex_) = false;
  bool is_shut_down_ LEEWAY_GUARDED_BY(mutex_) = false;
};

}  // namespace leeway

#endif  // LEEWAY_WEIGHTSYNC_FAKE_WEIGHT_SUBSCRIBER_H_
