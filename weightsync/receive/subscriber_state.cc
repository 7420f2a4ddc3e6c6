#include "weightsync/receive/subscriber_state.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "weightsync/manifest.h"

namespace leeway {

SubscriberState::SubscriberState(const v1::Manifest& expected, DoubleBuffer* buffers)
    : expected_(expected), buffers_(buffers) {
  LEEWAY_CHECK(buffers->size_bytes() == expected.total_bytes());
}

// ---- connection -----------------------------------------------------------------------------------------------------

void SubscriberState::SetIdentity(const v1::WorkerIdentity& identity) {
  const bool is_another = identity.producer_id() != identity_.producer_id() || identity.epoch() != identity_.epoch();
  if (!is_another) return;
  identity_ = identity;
  is_fenced_ = false;
  is_connected_ = false;
  load_.reset();
  verified_.reset();
  outgoing_.clear();
}

void SubscriberState::OnConnected() {
  is_connected_ = true;
  load_.reset();
  outgoing_.clear();
}

void SubscriberState::OnDisconnected() {
  is_connected_ = false;
  load_.reset();
  outgoing_.clear();
}

void SubscriberState::OnMessage(MonotonicTime now, const v1::PublisherMessage& message) {
  if (!is_connected_ || is_fenced_) return;
  const uint64_t epoch = message.membership_epoch();
  last_epoch_ = epoch;
  switch (message.message_case()) {
    case v1::PublisherMessage::kWelcome:
      heartbeat_interval_ = absl::Milliseconds(message.welcome().heartbeat_interval_ms());
      break;
    case v1::PublisherMessage::kAnnounce:
      OnAnnounce(now, epoch, message.announce());
      break;
    case v1::PublisherMessage::kTransfer:
      OnTransfer(now, epoch, message.transfer());
      break;
    case v1::PublisherMessage::kCommitted:
      OnCommitted(epoch, message.committed());
      break;
    case v1::PublisherMessage::kAbandoned:
      OnAbandoned(epoch, message.abandoned().weights());
      break;
    case v1::PublisherMessage::kFenced:
      OnFenced(message.fenced().reason());
      break;
    case v1::PublisherMessage::MESSAGE_NOT_SET:
      break;
  }
}

void SubscriberState::OnAnnounce(MonotonicTime now, uint64_t epoch, const v1::PublisherMessage::Announce& announce) {
  load_.reset();
  verified_.reset();
  const v1::Manifest& manifest = announce.manifest();
  const std::string reason = ReasonToRefuse(manifest);
  v1::ReceiverMessage answer;
  if (!reason.empty()) {
    *answer.mutable_refused()->mutable_weights() = manifest.weights();
    answer.mutable_refused()->set_reason(reason);
    Send(epoch, std::move(answer));
    return;
  }
  CurrentLoad load;
  load.load.id = next_load_id_++;
  load.load.manifest = manifest;
  load.load.deadline = now + absl::Milliseconds(announce.deadline_ms());
  load.epoch = epoch;
  load_ = std::move(load);
  *answer.mutable_ready()->mutable_weights() = manifest.weights();
  Send(epoch, std::move(answer));
}

std::string SubscriberState::ReasonToRefuse(const v1::Manifest& manifest) const {
  const absl::Status consistent = CheckManifest(manifest);
  if (!consistent.ok()) return std::string(consistent.message());
  const std::vector<std::string> differences = LayoutDifferences(expected_, manifest);
  if (!differences.empty()) {
    return absl::StrCat(VersionName(manifest.weights()),
                        " does not have the expected layout: ", absl::StrJoin(differences, "; "));
  }
  const std::optional<CommittedWeights>& newest = newer_.has_value() ? newer_ : active_;
  if (!newest.has_value()) return "";
  if (IsNewerVersion(newest->weights, manifest.weights())) {
    return absl::StrCat(VersionName(manifest.weights()), " after ", VersionName(newest->weights),
                        ": a lower version needs a higher lineage");
  }
  if (IsSameVersion(newest->weights, manifest.weights()) && newest->digest != manifest.digest()) {
    return absl::StrCat(VersionName(manifest.weights()), " was committed with digest ", newest->digest,
                        " and is now announced with ", manifest.digest());
  }
  return "";
}

void SubscriberState::OnTransfer(MonotonicTime now, uint64_t epoch, const v1::PublisherMessage::Transfer& transfer) {
  if (!load_.has_value() || load_->stage != Stage::kAnnounced || load_->epoch != epoch ||
      !IsSameVersion(load_->load.manifest.weights(), transfer.weights())) {
    return;
  }
  if (transfer.relabel()) {
    const std::optional<CommittedWeights>& newest = newer_.has_value() ? newer_ : active_;
    if (newest.has_value() && newest->digest == load_->load.manifest.digest()) {
      KeepVerified(*load_, newest->bytes);
    } else {
      FailLoad(absl::StrCat("told to relabel, but the newest bytes held do not have digest ",
                            load_->load.manifest.digest()));
    }
    return;
  }
  if (transfer.bucket_bytes() == 0) {
    FailLoad("told to transfer in buckets of 0 bytes");
    return;
  }
  load_->load.transfer = transfer;
  load_->load.deadline = now + absl::Milliseconds(transfer.deadline_ms());
  load_->stage = Stage::kWaitingForBuffer;
  TryStartLoad();
}

void SubscriberState::OnCommitted(uint64_t epoch, const v1::PublisherMessage::Committed& committed) {
  if (!verified_.has_value() || verified_->epoch != epoch ||
      !IsSameVersion(verified_->weights.weights, committed.weights())) {
    return;
  }
  const bool is_member =
      std::any_of(committed.members().begin(), committed.members().end(), [&](const v1::WorkerIdentity& member) {
        return member.producer_id() == identity_.producer_id() && member.epoch() == identity_.epoch();
      });
  is_member ? Promote() : verified_.reset();
}

void SubscriberState::OnAbandoned(uint64_t epoch, const v1::WeightsVersion& weights) {
  if (load_.has_value() && load_->epoch == epoch && IsSameVersion(load_->load.manifest.weights(), weights))
    load_.reset();
  if (verified_.has_value() && verified_->epoch == epoch && IsSameVersion(verified_->weights.weights, weights))
    verified_.reset();
}

void SubscriberState::OnFenced(const std::string& reason) {
  is_fenced_ = true;
  fence_reason_ = reason;
  load_.reset();
  verified_.reset();
  newer_.reset();
  outgoing_.clear();
}

// ---- loading --------------------------------------------------------------------------------------------------------

void SubscriberState::TryStartLoad() {
  if (!load_.has_value() || load_->stage != Stage::kWaitingForBuffer) return;
  std::shared_ptr<std::byte> buffer = buffers_->TryAcquire();
  if (buffer == nullptr && newer_.has_value()) {
    newer_.reset();
    buffer = buffers_->TryAcquire();
  }
  if (buffer == nullptr) return;
  load_->load.buffer = std::move(buffer);
  load_->stage = Stage::kLoading;
}

bool SubscriberState::has_load() const {
  return load_.has_value() && load_->stage == Stage::kLoading && !load_->is_taken;
}

std::optional<SubscriberState::Load> SubscriberState::TakeLoad() {
  if (!has_load()) return std::nullopt;
  load_->is_taken = true;
  return load_->load;
}

bool SubscriberState::IsWanted(uint64_t load_id) const { return load_.has_value() && load_->load.id == load_id; }

void SubscriberState::OnLoadFinished(uint64_t load_id, const absl::Status& status) {
  if (!IsWanted(load_id) || load_->stage != Stage::kLoading) return;
  if (status.ok()) {
    KeepVerified(*load_, load_->load.buffer);
  } else {
    FailLoad(status.ToString());
  }
}

void SubscriberState::OnBufferReleased() { TryStartLoad(); }

void SubscriberState::OnTime(MonotonicTime now) {
  if (!load_.has_value() || now < load_->load.deadline) return;
  switch (load_->stage) {
    case Stage::kAnnounced:
      FailLoad("deadline: announced, but no transfer followed");
      break;
    case Stage::kWaitingForBuffer:
      FailLoad("deadline: the engine did not release the weights before the ones in use");
      break;
    case Stage::kLoading:
      FailLoad("deadline: the bytes were not there and verified in time");
      break;
  }
}

MonotonicTime SubscriberState::next_deadline() const {
  return load_.has_value() ? load_->load.deadline : MonotonicTime::InfiniteFuture();
}

void SubscriberState::KeepVerified(const CurrentLoad& load, std::shared_ptr<const std::byte> bytes) {
  const v1::Manifest& manifest = load.load.manifest;
  Verified verified;
  verified.weights = {manifest.weights(), manifest.digest(), std::move(bytes), manifest.total_bytes()};
  verified.epoch = load.epoch;
  v1::ReceiverMessage answer;
  *answer.mutable_verified()->mutable_weights() = manifest.weights();
  answer.mutable_verified()->set_digest(manifest.digest());
  Send(load.epoch, std::move(answer));
  verified_ = std::move(verified);
  load_.reset();
}

void SubscriberState::FailLoad(const std::string& reason) {
  v1::ReceiverMessage answer;
  *answer.mutable_failed()->mutable_weights() = load_->load.manifest.weights();
  answer.mutable_failed()->set_reason(reason);
  Send(load_->epoch, std::move(answer));
  load_.reset();
}

// ---- the engine's side ----------------------------------------------------------------------------------------------

void SubscriberState::Promote() {
  CommittedWeights committed = std::exchange(verified_, std::nullopt)->weights;
  if (active_.has_value() && IsSameVersion(active_->weights, committed.weights)) {
    // Loaded again after a new attach, and already in use: nothing newer for the engine, but the publisher does not
    // know.
    ReportSwapped(committed.weights, absl::ZeroDuration());
    return;
  }
  newer_ = std::move(committed);
}

std::optional<CommittedWeights> SubscriberState::TakeNewer() {
  if (!newer_.has_value()) return std::nullopt;
  active_ = std::exchange(newer_, std::nullopt);
  return active_;
}

void SubscriberState::NoteCommitted(const v1::WeightsVersion& weights, const std::string& digest) {
  if (!verified_.has_value() || !IsSameVersion(verified_->weights.weights, weights)) return;
  // The same version with other bytes is void.
  verified_->weights.digest == digest ? Promote() : verified_.reset();
}

void SubscriberState::ReportSwapped(const v1::WeightsVersion& weights, absl::Duration took) {
  v1::ReceiverMessage message;
  *message.mutable_swapped()->mutable_weights() = weights;
  message.mutable_swapped()->set_seconds(absl::ToDoubleSeconds(took));
  Send(last_epoch_, std::move(message));
}

std::vector<v1::ReceiverMessage> SubscriberState::TakeOutgoing() { return std::exchange(outgoing_, {}); }

void SubscriberState::Send(uint64_t epoch, v1::ReceiverMessage message) {
  if (!is_connected_ || is_fenced_) return;
  message.set_membership_epoch(epoch);
  outgoing_.push_back(std::move(message));
}

}  // namespace leeway
