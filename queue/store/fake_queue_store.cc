#include "queue/store/fake_queue_store.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace leeway {

absl::Status FakeQueueStore::Put(const PayloadKey& key, Payload payload) {
  MutexLock lock(&mutex_);
  if (!refusal_.empty()) return absl::ResourceExhaustedError(refusal_);
  if (payloads_.contains(key)) {
    return absl::AlreadyExistsError(
        absl::StrCat("ticket ", key.ticket, " member ", key.member, " has a payload already"));
  }
  bytes_ += payload->size();
  auto stored = std::make_shared<const PayloadInMemory>(std::move(payload));
  payloads_[key] = stored;
  open_.payloads.emplace_back(key, std::move(stored));
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const StoredPayload>> FakeQueueStore::Get(const PayloadKey& key) const {
  MutexLock lock(&mutex_);
  const auto found = payloads_.find(key);
  if (found == payloads_.end()) {
    return absl::NotFoundError(absl::StrCat("ticket ", key.ticket, " member ", key.member, " has no payload"));
  }
  return found->second;
}

void FakeQueueStore::Erase(const PayloadKey& key) {
  MutexLock lock(&mutex_);
  const auto found = payloads_.find(key);
  if (found == payloads_.end()) return;
  bytes_ -= found->second->size_bytes();
  payloads_.erase(found);
  open_.payloads.emplace_back(key, nullptr);
}

uint64_t FakeQueueStore::payloads() const {
  MutexLock lock(&mutex_);
  return payloads_.size();
}

uint64_t FakeQueueStore::bytes() const {
  MutexLock lock(&mutex_);
  return bytes_;
}

uint64_t FakeQueueStore::Write(std::vector<StoreRecord> records) {
  uint64_t number = 0;
  bool at_once = false;
  {
    MutexLock lock(&mutex_);
    open_.records = std::move(records);
    pending_.push_back(std::exchange(open_, PendingWrite()));
    number = durable_ + pending_.size();
    at_once = at_once_;
  }
  if (at_once) MakeDurable(number);
  return number;
}

void FakeQueueStore::WhenDurable(uint64_t number, std::function<void()> done) {
  {
    MutexLock lock(&mutex_);
    if (number > durable_) {
      LEEWAY_CHECK(number <= durable_ + pending_.size()) << "write " << number << " was never made";
      waiting_.emplace_back(number, std::move(done));
      return;
    }
  }
  done();
}

std::string FakeQueueStore::refusal() const {
  MutexLock lock(&mutex_);
  return refusal_;
}

absl::Status FakeQueueStore::Recover(const RecordVisitor& visit) const {
  std::map<std::string, std::string> records;
  {
    MutexLock lock(&mutex_);
    records = durable_records_;
  }
  for (const auto& [key, value] : records) LEEWAY_RETURN_IF_ERROR(visit(key, value));
  return absl::OkStatus();
}

void FakeQueueStore::MakeDurable(uint64_t number) {
  std::vector<std::function<void()>> ready;
  {
    MutexLock lock(&mutex_);
    while (durable_ < number && !pending_.empty()) {
      PendingWrite write = std::move(pending_.front());
      pending_.pop_front();
      ++durable_;
      for (auto& [key, stored] : write.payloads) {
        if (stored == nullptr) {
          durable_payloads_.erase(key);
        } else {
          durable_payloads_[key] = std::move(stored);
        }
      }
      for (StoreRecord& record : write.records) {
        if (record.value.has_value()) {
          durable_records_[record.key] = *std::move(record.value);
        } else {
          durable_records_.erase(record.key);
        }
      }
    }
    std::deque<std::pair<uint64_t, std::function<void()>>> still_waiting;
    for (auto& [waits_for, done] : waiting_) {
      if (waits_for <= durable_) {
        ready.push_back(std::move(done));
      } else {
        still_waiting.emplace_back(waits_for, std::move(done));
      }
    }
    waiting_ = std::move(still_waiting);
  }
  for (const auto& done : ready) done();
}

void FakeQueueStore::MakeAllDurable() { MakeDurable(std::numeric_limits<uint64_t>::max()); }

void FakeQueueStore::MakeDurableAtOnce(bool at_once) {
  {
    MutexLock lock(&mutex_);
    at_once_ = at_once;
  }
  if (at_once) MakeAllDurable();
}

void FakeQueueStore::RefusePuts(std::string reason) {
  MutexLock lock(&mutex_);
  refusal_ = std::move(reason);
}

uint64_t FakeQueueStore::written() const {
  MutexLock lock(&mutex_);
  return durable_ + pending_.size();
}

uint64_t FakeQueueStore::durable() const {
  MutexLock lock(&mutex_);
  return durable_;
}

std::optional<std::string> FakeQueueStore::DurableRecord(const std::string& key) const {
  MutexLock lock(&mutex_);
  const auto found = durable_records_.find(key);
  if (found == durable_records_.end()) return std::nullopt;
  return found->second;
}

std::unique_ptr<FakeQueueStore> FakeQueueStore::Crash() {
  auto restarted = std::make_unique<FakeQueueStore>();
  MutexLock lock(&mutex_);
  waiting_.clear();
  MutexLock restarted_lock(&restarted->mutex_);
  restarted->payloads_ = durable_payloads_;
  for (const auto& [key, stored] : durable_payloads_) restarted->bytes_ += stored->size_bytes();
  restarted->durable_payloads_ = durable_payloads_;
  restarted->durable_records_ = durable_records_;
  return restarted;
}

}  // namespace leeway
