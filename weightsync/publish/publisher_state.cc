#include "weightsync/publish/publisher_state.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "weightsync/manifest.h"
#include "weightsync/transport/receiver_transport.h"
#include "weightsync/transport/shared_memory.h"

namespace leeway {
namespace {

uint64_t MillisecondsUntil(MonotonicTime now, MonotonicTime deadline) {
  const int64_t left = absl::ToInt64Milliseconds(deadline - now);
  return left > 1 ? static_cast<uint64_t>(left) : 1;
}

bool IsSameIdentity(const v1::WorkerIdentity& a, const v1::WorkerIdentity& b) {
  return a.producer_id() == b.producer_id() && a.epoch() == b.epoch();
}

}  // namespace

// ---- connections ----------------------------------------------------------------------------------------------------

void PublisherState::OnOpened(MonotonicTime now, ConnectionId connection) {
  strangers_[connection] = now + options_.announce_timeout;
}

void PublisherState::OnMessage(MonotonicTime now, ConnectionId connection, const v1::ReceiverMessage& message) {
  const auto receiver = receivers_.find(connection);
  if (receiver == receivers_.end()) {
    if (strangers_.count(connection) == 0) return;  // closed meanwhile
    if (message.has_hello()) {
      OnHello(now, connection, message.hello());
    } else {
      Refuse(connection, "", "the first message must be hello");
    }
    SettleIfDone(now);
    return;
  }
  receiver->second.last_heard = now;
  switch (message.message_case()) {
    case v1::ReceiverMessage::kHello:
      Fence(now, receiver, "said hello twice on one connection");
      break;
    case v1::ReceiverMessage::kReady:
      if (IsAnswer(receiver->second, message, message.ready().weights())) OnReady(now, receiver);
      break;
    case v1::ReceiverMessage::kRefused:
      if (IsAnswer(receiver->second, message, message.refused().weights()))
        Fence(now, receiver, absl::StrCat("refused: ", message.refused().reason()));
      break;
    case v1::ReceiverMessage::kVerified:
      if (IsAnswer(receiver->second, message, message.verified().weights()))
        OnVerified(now, receiver, message.verified().digest());
      break;
    case v1::ReceiverMessage::kFailed:
      if (IsAnswer(receiver->second, message, message.failed().weights()))
        Fence(now, receiver, absl::StrCat("failed: ", message.failed().reason()));
      break;
    case v1::ReceiverMessage::kSwapped:
      OnSwapped(&receiver->second, message.swapped().weights());
      break;
    case v1::ReceiverMessage::kAlive:
    case v1::ReceiverMessage::MESSAGE_NOT_SET:
      break;
  }
  SettleIfDone(now);
}

void PublisherState::OnClosed(MonotonicTime now, ConnectionId connection, const std::string& reason) {
  strangers_.erase(connection);
  const auto receiver = receivers_.find(connection);
  if (receiver == receivers_.end()) return;
  if (receiver->second.is_member && phase_ == Phase::kPreparing) {
    Fence(now, receiver, absl::StrCat("connection lost: ", reason));
  } else {
    receivers_.erase(receiver);
    ++membership_epoch_;
  }
  SettleIfDone(now);
}

void PublisherState::OnHello(MonotonicTime now, ConnectionId connection, const v1::ReceiverMessage::Hello& hello) {
  const v1::WorkerIdentity& identity = hello.identity();
  const auto older = std::find_if(receivers_.begin(), receivers_.end(), [&](const auto& entry) {
    return entry.second.identity.producer_id() == identity.producer_id();
  });
  if (older != receivers_.end()) {
    const ConnectionId older_connection = older->first;
    const uint64_t epoch = older->second.identity.epoch();
    if (epoch < identity.epoch()) {
      Fence(now, older, absl::StrCat("superseded by epoch ", identity.epoch(), " of the same worker"));
    } else if (epoch == identity.epoch()) {
      // The same life of the worker dialled again: its older connection is dead, whether or not we have noticed.
      OnClosed(now, older_connection, "replaced by a newer connection of the same identity");
      outgoing_.push_back({older_connection, std::nullopt, /*closes=*/true, hello.name()});
    } else {
      Refuse(connection, hello.name(), absl::StrCat("superseded by epoch ", epoch, " of the same worker"));
      return;
    }
  }
  const std::string reason = ReasonToRefuse(hello);
  if (!reason.empty()) {
    Refuse(connection, hello.name(), reason);
    return;
  }
  strangers_.erase(connection);
  ++membership_epoch_;
  Receiver& receiver = receivers_[connection];
  receiver.identity = identity;
  receiver.name = hello.name();
  receiver.transport = hello.transport();
  if (hello.has_expected()) receiver.expected = hello.expected();
  receiver.last_heard = now;
  v1::PublisherMessage welcome;
  welcome.mutable_welcome()->set_heartbeat_interval_ms(absl::ToInt64Milliseconds(options_.heartbeat_interval));
  Send(connection, membership_epoch_, std::move(welcome));
  ServeJoiners(now);
}

std::string PublisherState::ReasonToRefuse(const v1::ReceiverMessage::Hello& hello) const {
  const v1::WorkerIdentity& identity = hello.identity();
  if (identity.producer_id() == 0 || identity.epoch() == 0)
    return "hello without an identity: register with the queue first";
  const auto fenced = fenced_epochs_.find(identity.producer_id());
  if (fenced != fenced_epochs_.end() && identity.epoch() <= fenced->second.first)
    return absl::StrCat("this identity was fenced (", fenced->second.second, "): register again");
  if (hello.transport() != kSharedMemoryTransport && hello.transport() != kGrpcTransport)
    return absl::StrCat("unknown transport \"", hello.transport(), "\": expected ", kSharedMemoryTransport, " or ",
                        kGrpcTransport);
  const std::optional<v1::Manifest>& newest = publishing_.has_value() ? publishing_ : committed_;
  if (hello.has_expected() && newest.has_value()) {
    const std::vector<std::string> differences = LayoutDifferences(hello.expected(), *newest);
    if (!differences.empty())
      return absl::StrCat("the expected layout is not the published one: ", absl::StrJoin(differences, "; "));
  }
  return "";
}

// ---- one receiver's load --------------------------------------------------------------------------------------------

const v1::Manifest& PublisherState::LoadOf(const Receiver& receiver) const {
  return receiver.is_member ? *publishing_ : *committed_;
}

bool PublisherState::IsAnswer(const Receiver& receiver, const v1::ReceiverMessage& message,
                              const v1::WeightsVersion& weights) const {
  return (receiver.stage == Stage::kAnnounced || receiver.stage == Stage::kTransferring) &&
         message.membership_epoch() == receiver.load_epoch && IsSameVersion(weights, LoadOf(receiver).weights());
}

void PublisherState::Announce(MonotonicTime now, ConnectionId connection, Receiver* receiver, MonotonicTime limit) {
  const v1::Manifest& manifest = LoadOf(*receiver);
  // A relabel is safe only against the newest bytes: older ones may have been overwritten already.
  receiver->is_relabel = receiver->newest.has_value() && receiver->newest->digest == manifest.digest();
  receiver->stage = Stage::kAnnounced;
  receiver->load_epoch = membership_epoch_;
  receiver->deadline = std::min(now + options_.announce_timeout, limit);
  v1::PublisherMessage message;
  *message.mutable_announce()->mutable_manifest() = manifest;
  message.mutable_announce()->set_deadline_ms(MillisecondsUntil(now, receiver->deadline));
  Send(connection, receiver->load_epoch, std::move(message));
}

void PublisherState::OnReady(MonotonicTime now, Receivers::iterator entry) {
  Receiver& receiver = entry->second;
  if (receiver.stage != Stage::kAnnounced) return;
  receiver.stage = Stage::kTransferring;
  receiver.deadline = receiver.is_member ? publish_deadline_ : now + options_.join_timeout;
  // Its shadow is overwritten now; it keeps only what it has swapped in, and we may not know yet which that is.
  if (!receiver.is_relabel && receiver.offered.has_value()) receiver.newest.reset();
  v1::PublisherMessage message;
  v1::PublisherMessage::Transfer* transfer = message.mutable_transfer();
  *transfer->mutable_weights() = LoadOf(receiver).weights();
  transfer->set_bucket_bytes(options_.bucket_bytes);
  transfer->set_deadline_ms(MillisecondsUntil(now, receiver.deadline));
  transfer->set_relabel(receiver.is_relabel);
  const bool can_map = offer_.is_linked || HasMapped(receiver, offer_.name);
  receiver.loads_through.clear();
  if (receiver.is_member && receiver.transport == kSharedMemoryTransport && !receiver.is_relabel && can_map)
    receiver.loads_through = offer_.name;
  transfer->set_shared_memory_name(receiver.loads_through);
  Send(entry->first, receiver.load_epoch, std::move(message));
}

void PublisherState::OnVerified(MonotonicTime now, Receivers::iterator entry, const std::string& digest) {
  Receiver& receiver = entry->second;
  if (receiver.stage != Stage::kTransferring) {
    Fence(now, entry, "claimed to hold the bytes before they were sent");
    return;
  }
  const v1::Manifest& manifest = LoadOf(receiver);
  if (digest != manifest.digest()) {
    Fence(now, entry, absl::StrCat("holds digest ", digest, " instead of ", manifest.digest()));
    return;
  }
  receiver.stage = Stage::kVerified;
  receiver.deadline = MonotonicTime::InfiniteFuture();
  if (receiver.is_member) {
    if (!receiver.is_relabel) {
      prepared_.bytes_sent += manifest.total_bytes();
      if (!receiver.loads_through.empty()) RememberSegment(receiver.loads_through, &receiver.mapped);
    }
    return;
  }
  SendCommitted(entry->first, &receiver, {receiver.identity});
}

void PublisherState::OnSwapped(Receiver* receiver, const v1::WeightsVersion& weights) {
  if (!receiver->offered.has_value() || !IsSameVersion(receiver->offered->weights, weights)) return;
  receiver->newest = std::exchange(receiver->offered, std::nullopt);
  if (receiver->stage == Stage::kCommitted) receiver->stage = Stage::kSwapped;
}

void PublisherState::SendCommitted(ConnectionId connection, Receiver* receiver,
                                   const std::vector<v1::WorkerIdentity>& members) {
  const v1::Manifest& manifest = LoadOf(*receiver);
  receiver->stage = Stage::kCommitted;
  receiver->offered = Held{manifest.weights(), manifest.digest()};
  receiver->newest = receiver->offered;
  v1::PublisherMessage message;
  *message.mutable_committed()->mutable_weights() = manifest.weights();
  for (const v1::WorkerIdentity& member : members) *message.mutable_committed()->add_members() = member;
  Send(connection, receiver->load_epoch, std::move(message));
}

void PublisherState::ServeJoiners(MonotonicTime now) {
  if (phase_ != Phase::kIdle || !committed_.has_value()) return;
  for (auto& [connection, receiver] : receivers_) {
    if (receiver.stage != Stage::kWaiting) continue;
    Announce(now, connection, &receiver, MonotonicTime::InfiniteFuture());
  }
}

void PublisherState::Fence(MonotonicTime now, Receivers::iterator entry, const std::string& reason) {
  const Receiver& receiver = entry->second;
  PreparedPublish::Fenced fenced{receiver.identity, receiver.name, reason};
  auto& [epoch, why] = fenced_epochs_[receiver.identity.producer_id()];
  if (epoch <= receiver.identity.epoch()) {
    epoch = receiver.identity.epoch();
    why = reason;
  }
  (phase_ == Phase::kPreparing ? prepared_.fenced : fenced_between_).push_back(std::move(fenced));
  const ConnectionId connection = entry->first;
  const std::string name = receiver.name;
  receivers_.erase(entry);
  ++membership_epoch_;
  Refuse(connection, name, reason);
}

void PublisherState::Refuse(ConnectionId connection, const std::string& name, const std::string& reason) {
  strangers_.erase(connection);
  v1::PublisherMessage message;
  message.mutable_fenced()->set_reason(reason);
  message.set_membership_epoch(membership_epoch_);
  outgoing_.push_back({connection, std::move(message), /*closes=*/true, name});
}

void PublisherState::Send(ConnectionId connection, uint64_t epoch, v1::PublisherMessage message) {
  message.set_membership_epoch(epoch);
  outgoing_.push_back({connection, std::move(message), /*closes=*/false, ""});
}

// ---- publishing -----------------------------------------------------------------------------------------------------

absl::Status PublisherState::CheckVersion(const v1::WeightsVersion& weights) const {
  if (weights.lineage() == 0 || weights.version() == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("a publish needs lineage >= 1 and version >= 1, got ", VersionName(weights)));
  }
  if (committed_.has_value() && IsNewerVersion(committed_->weights(), weights)) {
    return absl::InvalidArgumentError(absl::StrCat("cannot publish ", VersionName(weights), " after ",
                                                   VersionName(committed_->weights()),
                                                   ": a lower version needs a higher lineage"));
  }
  if (phase_ != Phase::kIdle && !IsSameVersion(weights, publishing_->weights())) {
    return absl::FailedPreconditionError(
        absl::StrCat(VersionName(publishing_->weights()), " is ",
                     phase_ == Phase::kPreparing ? "being published" : "prepared: commit or abandon it first"));
  }
  if (phase_ == Phase::kPreparing)
    return absl::FailedPreconditionError(absl::StrCat(VersionName(weights), " is being published already"));
  return absl::OkStatus();
}

bool PublisherState::IsRepeat(const v1::WeightsVersion& weights) const {
  return (phase_ == Phase::kPrepared && IsSameVersion(publishing_->weights(), weights)) ||
         (committed_.has_value() && IsSameVersion(committed_->weights(), weights));
}

absl::StatusOr<bool> PublisherState::StartPublish(MonotonicTime now, v1::Manifest manifest,
                                                  const SharedMemoryOffer& offer, MonotonicTime deadline) {
  LEEWAY_RETURN_IF_ERROR(CheckVersion(manifest.weights()));
  for (const std::optional<v1::Manifest>* earlier : {&publishing_, &committed_}) {
    if (!earlier->has_value() || !IsSameVersion((*earlier)->weights(), manifest.weights())) continue;
    if ((*earlier)->digest() != manifest.digest()) {
      return absl::InvalidArgumentError(
          absl::StrCat(VersionName(manifest.weights()), " was published with digest ", (*earlier)->digest(),
                       "; publishing it again needs the same bytes, not digest ", manifest.digest()));
    }
    // Prepared or committed: the same answer. Abandoned: a new try.
    if (phase_ == Phase::kPrepared) return false;
    if (earlier == &committed_) {
      prepared_ = committed_answer_;
      return false;
    }
  }

  publishing_ = std::move(manifest);
  offer_ = offer;
  started_ = now;
  publish_deadline_ = deadline;
  phase_ = Phase::kPreparing;
  ++membership_epoch_;
  prepared_ = PreparedPublish{};
  prepared_.manifest = *publishing_;
  prepared_.fenced = std::exchange(fenced_between_, {});
  for (auto& [connection, receiver] : receivers_) {
    receiver.is_member = true;
    Announce(now, connection, &receiver, deadline);
  }
  SettleIfDone(now);
  return true;
}

void PublisherState::SettleIfDone(MonotonicTime now) {
  if (phase_ != Phase::kPreparing) return;
  for (const auto& [connection, receiver] : receivers_) {
    if (receiver.is_member && receiver.stage != Stage::kVerified) return;
  }
  phase_ = Phase::kPrepared;
  prepared_.seconds = absl::ToDoubleSeconds(now - started_);
  for (const auto& [connection, receiver] : receivers_) {
    if (receiver.is_member) prepared_.members.push_back(receiver.identity);
  }
}

bool PublisherState::Commit(MonotonicTime now, const v1::WeightsVersion& weights) {
  if (phase_ != Phase::kPrepared || !IsSameVersion(weights, publishing_->weights())) return false;
  phase_ = Phase::kIdle;
  committed_ = publishing_;
  committed_answer_ = prepared_;
  for (auto& [connection, receiver] : receivers_) {
    if (!receiver.is_member) continue;
    SendCommitted(connection, &receiver, prepared_.members);
    receiver.is_member = false;
  }
  ServeJoiners(now);
  return true;
}

bool PublisherState::Abandon(MonotonicTime now, const v1::WeightsVersion& weights, const std::string& reason) {
  if (phase_ != Phase::kPrepared || !IsSameVersion(weights, publishing_->weights())) return false;
  phase_ = Phase::kIdle;
  for (auto& [connection, receiver] : receivers_) {
    if (!receiver.is_member) continue;
    v1::PublisherMessage message;
    *message.mutable_abandoned()->mutable_weights() = weights;
    message.mutable_abandoned()->set_reason(reason);
    Send(connection, receiver.load_epoch, std::move(message));
    receiver.is_member = false;
    const bool holds_committed = committed_.has_value() && receiver.newest.has_value() &&
                                 IsSameVersion(receiver.newest->weights, committed_->weights());
    if (!holds_committed) {
      receiver.stage = Stage::kWaiting;
    } else {
      receiver.stage = receiver.offered.has_value() ? Stage::kCommitted : Stage::kSwapped;
    }
  }
  ServeJoiners(now);
  return true;
}

// ---- time -----------------------------------------------------------------------------------------------------------

void PublisherState::OnTime(MonotonicTime now) {
  std::vector<ConnectionId> silent_strangers;
  for (const auto& [connection, deadline] : strangers_) {
    if (deadline <= now) silent_strangers.push_back(connection);
  }
  for (ConnectionId connection : silent_strangers) Refuse(connection, "", "no hello in time");

  for (auto entry = receivers_.begin(); entry != receivers_.end();) {
    const auto receiver = entry++;
    if (receiver->second.deadline <= now) {
      Fence(now, receiver,
            receiver->second.stage == Stage::kAnnounced ? "deadline: no answer to the announce"
                                                        : "deadline: bytes not verified in time");
    } else if (receiver->second.last_heard + options_.heartbeat_timeout <= now) {
      Fence(now, receiver,
            absl::StrCat("no sign of life for ", absl::FormatDuration(now - receiver->second.last_heard)));
    }
  }
  SettleIfDone(now);
}

void PublisherState::ForgiveSilence(MonotonicTime now, absl::Duration pause) {
  for (auto& [connection, deadline] : strangers_) deadline = deadline + pause;
  for (auto& [connection, receiver] : receivers_) receiver.last_heard = std::min(now, receiver.last_heard + pause);
}

MonotonicTime PublisherState::next_deadline() const {
  MonotonicTime next = MonotonicTime::InfiniteFuture();
  for (const auto& [connection, deadline] : strangers_) next = std::min(next, deadline);
  for (const auto& [connection, receiver] : receivers_) {
    next = std::min({next, receiver.deadline, receiver.last_heard + options_.heartbeat_timeout});
  }
  return next;
}

// ---- output and questions -------------------------------------------------------------------------------------------

std::vector<PublisherState::Outgoing> PublisherState::TakeOutgoing() { return std::exchange(outgoing_, {}); }

absl::Status PublisherState::CheckFetch(const v1::WorkerIdentity& identity, const v1::WeightsVersion& weights) const {
  for (const auto& [connection, receiver] : receivers_) {
    if (!IsSameIdentity(receiver.identity, identity)) continue;
    if (receiver.stage == Stage::kTransferring && IsSameVersion(LoadOf(receiver).weights(), weights))
      return absl::OkStatus();
    return absl::NotFoundError(absl::StrCat(VersionName(weights), " is not being transferred to ", receiver.name));
  }
  return absl::NotFoundError(
      absl::StrCat("producer ", identity.producer_id(), " epoch ", identity.epoch(), " is not attached"));
}

bool PublisherState::HasMapped(const Receiver& receiver, const std::string& shared_memory_name) {
  return std::find(receiver.mapped.begin(), receiver.mapped.end(), shared_memory_name) != receiver.mapped.end();
}

bool PublisherState::has_shared_memory_receivers() const {
  return std::any_of(receivers_.begin(), receivers_.end(),
                     [](const auto& entry) { return entry.second.transport == kSharedMemoryTransport; });
}

bool PublisherState::AllHaveMapped(const std::string& shared_memory_name) const {
  return std::all_of(receivers_.begin(), receivers_.end(), [&](const auto& entry) {
    return entry.second.transport != kSharedMemoryTransport || HasMapped(entry.second, shared_memory_name);
  });
}

}  // namespace leeway
