#include "weightsync/fake_weight_publisher.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "weightsync/manifest.h"

namespace leeway {
namespace {

std::string ShortName(const v1::WeightsVersion& weights) {
  return absl::StrCat(weights.lineage(), ".", weights.version());
}

}  // namespace

absl::StatusOr<PreparedPublish> FakeWeightPublisher::Prepare(const v1::WeightsVersion& weights,
                                                             absl::Span<const TensorView> tensors,
                                                             absl::Duration timeout) {
  calls_.push_back(absl::StrCat("prepare ", ShortName(weights)));
  if (!errors_.empty()) {
    absl::Status error = errors_.front();
    errors_.pop_front();
    return error;
  }
  LEEWAY_ASSIGN_OR_RETURN(const uint64_t total, TotalBytes(tensors));
  std::string bytes(total, '\0');
  LEEWAY_ASSIGN_OR_RETURN(
      v1::Manifest manifest,
      MakeManifest(weights, tensors, absl::MakeSpan(reinterpret_cast<std::byte*>(bytes.data()), bytes.size())));
  if (IsNewerVersion(committed_, weights)) {
    return absl::InvalidArgumentError(
        absl::StrCat(VersionName(weights), " is older than the committed ", VersionName(committed_)));
  }
  if (IsSameVersion(manifest_.weights(), weights) && manifest_.digest() != manifest.digest()) {
    return absl::InvalidArgumentError(absl::StrCat(VersionName(weights), " was published before with other bytes"));
  }
  manifest_ = std::move(manifest);
  bytes_ = std::move(bytes);

  PreparedPublish prepared;
  prepared.manifest = manifest_;
  prepared.fenced = std::exchange(fence_next_, {});
  for (const PreparedPublish::Fenced& fenced : prepared.fenced) {
    members_.erase(std::remove_if(members_.begin(), members_.end(),
                                  [&](const v1::WorkerIdentity& member) {
                                    return member.producer_id() == fenced.identity.producer_id();
                                  }),
                   members_.end());
  }
  prepared.members = members_;
  prepared.bytes_sent = total * members_.size();
  return prepared;
}

void FakeWeightPublisher::Commit(const v1::WeightsVersion& weights) {
  calls_.push_back(absl::StrCat("commit ", ShortName(weights)));
  committed_ = weights;
  if (on_commit_) on_commit_(manifest_, bytes_);
}

void FakeWeightPublisher::Abandon(const v1::WeightsVersion& weights, const std::string& reason) {
  calls_.push_back(absl::StrCat("abandon ", ShortName(weights), " ", reason));
}

void FakeWeightPublisher::FenceInNextPrepare(const v1::WorkerIdentity& identity, std::string reason) {
  PreparedPublish::Fenced fenced;
  fenced.identity = identity;
  fenced.name = absl::StrCat("receiver-", identity.producer_id());
  fenced.reason = std::move(reason);
  fence_next_.push_back(std::move(fenced));
}

}  // namespace leeway
