#ifndef LEEWAY_WEIGHTSYNC_FAKE_WEIGHT_PUBLISHER_H_
#define LEEWAY_WEIGHTSYNC_FAKE_WEIGHT_PUBLISHER_H_

#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "weightsync/weight_publisher.h"

namespace leeway {

// A publisher without receivers' processes, for tests of the trainer: members and failures are scripted, calls are
// recorded, manifests and digests are real. Not thread-safe. Never blocks.
class FakeWeightPublisher : public WeightPublisher {
 public:
  absl::StatusOr<PreparedPublish> Prepare(const v1::WeightsVersion& weights, absl::Span<const TensorView> tensors,
                                          absl::Duration timeout) override;
  void Commit(const v1::WeightsVersion& weights) override;
  void Abandon(const v1::WeightsVersion& weights, const std::string& reason) override;
  int member_count() const override { return static_cast<int>(members_.size()); }

  // ---- script -------------------------------------------------------------------------------------------------------
  void SetMembers(std::vector<v1::WorkerIdentity> members) { members_ = std::move(members); }
  // The next Prepare fences this member.
  void FenceInNextPrepare(const v1::WorkerIdentity& identity, std::string reason);
  // The next Prepare returns this error (queued: one error a call).
  void FailNextPrepare(absl::Status status) { errors_.push_back(std::move(status)); }
  // Called at each Commit with the committed manifest and bytes: connect a FakeWeightSubscriber here.
  void SetOnCommit(std::function<void(const v1::Manifest&, const std::string& bytes)> on_commit) {
    on_commit_ = std::move(on_commit);
  }

  // ---- record -------------------------------------------------------------------------------------------------------
  // "prepare 1.2", "commit 1.2", "abandon 1.2 reason" (lineage.version), in order.
  const std::vector<std::string>& calls() const { return calls_; }
  // The last prepared publish, and its bytes in layout order.
  const v1::Manifest& manifest() const { return manifest_; }
  const std::string& bytes() const { return bytes_; }
  // The last committed version; zero before any.
  const v1::WeightsVersion& committed() const { return committed_; }

 private:
  std::vector<v1::WorkerIdentity> members_;
  std::vector<PreparedPublish::Fenced> fence_next_;
  std::deque<absl::Status> errors_;
  std::function<void(const v1::Manifest&, const std::string&)> on_commit_;
  std::vector<std::string> calls_;
  v1::Manifest manifest_;
  std::string bytes_;
  v1::WeightsVersion committed_;
};

}  // namespace leeway

#endif  // LEEWAY_WEIGHTSYNC_FAKE_WEIGHT_PUBLISHER_H_
