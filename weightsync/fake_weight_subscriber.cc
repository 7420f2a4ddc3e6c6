#include "weightsync/fake_weight_subscriber.h"

#include <cstring>

#include "base/clock.h"
#include "base/hash.h"
#include "base/status_macros.h"
#include "weightsync/manifest.h"

namespace leeway {

CommittedWeights FakeWeightSubscriber::Copy(const v1::WeightsVersion& weights, absl::Span<const std::byte> bytes) {
  CommittedWeights copy;
  copy.weights = weights;
  copy.digest = Digest128(bytes.data(), bytes.size());
  copy.total_bytes = bytes.size();
  // 64-byte aligned, like the real buffers, so that the bytes may be read as any dtype.
  auto* data = static_cast<std::byte*>(::operator new (bytes.size() + 1, std::align_val_t{64}));
  if (!bytes.empty()) std::memcpy(data, bytes.data(), bytes.size());
  copy.bytes = std::shared_ptr<const std::byte>(
      data, [](const std::byte* held) { ::operator delete (const_cast<std::byte*>(held), std::align_val_t{64}); });
  return copy;
}

void FakeWeightSubscriber::SetIdentity(const v1::WorkerIdentity& identity) {
  MutexLock lock(&mutex_);
  identities_.push_back(identity);
  is_fenced_ = false;
}

std::optional<CommittedWeights> FakeWeightSubscriber::TakeNewer() {
  MutexLock lock(&mutex_);
  std::optional<CommittedWeights> taken = std::move(newer_);
  newer_.reset();
  if (taken.has_value()) last_ = taken;
  return taken;
}

bool FakeWeightSubscriber::WaitForNewer(absl::Duration timeout) {
  const Deadline deadline = Deadline::After(timeout);
  MutexLock lock(&mutex_);
  while (!newer_.has_value() && !is_shut_down_ && !deadline.HasPassed()) changed_.WaitUntil(&mutex_, deadline);
  return newer_.has_value();
}

void FakeWeightSubscriber::NoteCommitted(const v1::WeightsVersion& weights, const std::string& digest) {
  MutexLock lock(&mutex_);
  noted_.emplace_back(weights, digest);
  if (uncommitted_.has_value() && IsSameVersion(uncommitted_->weights, weights) && uncommitted_->digest == digest) {
    newer_ = std::move(uncommitted_);
    uncommitted_.reset();
    changed_.NotifyAll();
  }
}

void FakeWeightSubscriber::ReportSwapped(const v1::WeightsVersion& weights, absl::Duration took) {
  MutexLock lock(&mutex_);
  swaps_.push_back(weights);
}

bool FakeWeightSubscriber::is_fenced() const {
  MutexLock lock(&mutex_);
  return is_fenced_;
}

bool FakeWeightSubscriber::has_abandoned_load() const {
  MutexLock lock(&mutex_);
  return has_abandoned_load_;
}

void FakeWeightSubscriber::SetAbandonedLoad(bool has_abandoned_load) {
  MutexLock lock(&mutex_);
  has_abandoned_load_ = has_abandoned_load;
}

void FakeWeightSubscriber::Shutdown() {
  MutexLock lock(&mutex_);
  is_shut_down_ = true;
  changed_.NotifyAll();
}

void FakeWeightSubscriber::Deliver(const v1::WeightsVersion& weights, absl::Span<const std::byte> bytes) {
  MutexLock lock(&mutex_);
  newer_ = Copy(weights, bytes);
  changed_.NotifyAll();
}

void FakeWeightSubscriber::Deliver(const v1::WeightsVersion& weights, absl::Span<const float> values) {
  Deliver(weights, absl::MakeSpan(reinterpret_cast<const std::byte*>(values.data()), values.size() * sizeof(float)));
}

void FakeWeightSubscriber::Relabel(const v1::WeightsVersion& weights) {
  MutexLock lock(&mutex_);
  LEEWAY_CHECK(newer_.has_value() || last_.has_value()) << "nothing was delivered yet that could be relabelled";
  if (!newer_.has_value()) newer_ = last_;
  newer_->weights = weights;
  changed_.NotifyAll();
}

void FakeWeightSubscriber::DeliverUncommitted(const v1::WeightsVersion& weights, absl::Span<const std::byte> bytes) {
  MutexLock lock(&mutex_);
  uncommitted_ = Copy(weights, bytes);
}

void FakeWeightSubscriber::Fence() {
  MutexLock lock(&mutex_);
  is_fenced_ = true;
  uncommitted_.reset();
  newer_.reset();
}

std::vector<v1::WorkerIdentity> FakeWeightSubscriber::identities() const {
  MutexLock lock(&mutex_);
  return identities_;
}

std::vector<v1::WeightsVersion> FakeWeightSubscriber::swaps() const {
  MutexLock lock(&mutex_);
  return swaps_;
}

std::vector<std::pair<v1::WeightsVersion, std::string>> FakeWeightSubscriber::noted() const {
  MutexLock lock(&mutex_);
  return noted_;
}

bool FakeWeightSubscriber::is_shut_down() const {
  MutexLock lock(&mutex_);
  return is_shut_down_;
}

}  // namespace leeway
