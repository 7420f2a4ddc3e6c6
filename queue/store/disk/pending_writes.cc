#include "queue/store/disk/pending_writes.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace leeway {
namespace {

std::pair<uint64_t, uint32_t> Order(const PayloadKey& key) { return {key.ticket, key.member}; }

}  // namespace

void PendingWrites::OnRecovered(const PayloadKey& key, const PayloadPlace& place) {
  durable_[key] = {place, nullptr};
  ++payloads_;
  bytes_ += place.size_bytes;
}

bool PendingWrites::Exists(const PayloadKey& key) const {
  const auto latest = latest_.find(key);
  return latest == latest_.end() ? durable_.contains(key) : latest->second.payload != nullptr;
}

void PendingWrites::AddChange(const PayloadKey& key, Payload payload) {
  const uint64_t held = payload == nullptr ? 0 : payload->size();
  open_.held_bytes += held;
  held_bytes_ += held;
  latest_[key] = Latest{payload, ++last_change_};
  open_.changes.push_back(Change{key, std::move(payload), last_change_});
}

absl::Status PendingWrites::Put(const PayloadKey& key, Payload payload) {
  if (Exists(key)) return absl::AlreadyExistsError(absl::StrCat(DescribePayload(key), " has a payload already"));
  ++payloads_;
  bytes_ += payload->size();
  AddChange(key, std::move(payload));
  return absl::OkStatus();
}

absl::StatusOr<PendingWrites::Found> PendingWrites::Get(const PayloadKey& key) const {
  const auto latest = latest_.find(key);
  if (latest != latest_.end() && latest->second.payload != nullptr) return Found{latest->second.payload, {}};
  const Durable* durable = latest == latest_.end() ? FindDurable(key) : nullptr;
  if (durable == nullptr) return absl::NotFoundError(absl::StrCat(DescribePayload(key), " has no payload"));
  return Found{durable->cached, durable->place};
}

void PendingWrites::Erase(const PayloadKey& key) {
  const absl::StatusOr<Found> found = Get(key);
  if (!found.ok()) return;
  --payloads_;
  bytes_ -= found->in_memory != nullptr ? found->in_memory->size() : found->place.size_bytes;
  AddChange(key, nullptr);
}

uint64_t PendingWrites::EndWrite(std::vector<StoreRecord> records) {
  uint64_t record_bytes = 0;
  for (const StoreRecord& record : records) {
    record_bytes += record.key.size() + (record.value.has_value() ? record.value->size() : 0);
  }
  open_.records = std::move(records);
  open_.held_bytes += record_bytes;
  held_bytes_ += record_bytes;
  ended_.push_back(std::exchange(open_, PendingWrite()));
  return ++last_write_;
}

WriteGroup PendingWrites::TakeGroup(uint64_t limit_bytes) {
  WriteGroup group;
  std::vector<PendingWrite> writes;
  while (!ended_.empty() && (writes.empty() || group.held_bytes + ended_.front().held_bytes <= limit_bytes)) {
    group.held_bytes += ended_.front().held_bytes;
    writes.push_back(std::move(ended_.front()));
    ended_.pop_front();
  }
  if (writes.empty()) return group;
  group.last_write = last_write_ - ended_.size();

  // Backwards: only the last change of a key counts.
  absl::flat_hash_set<PayloadKey> seen;
  absl::flat_hash_set<std::string> seen_records;
  const bool several = writes.size() > 1;
  for (auto write = writes.rbegin(); write != writes.rend(); ++write) {
    for (auto change = write->changes.rbegin(); change != write->changes.rend(); ++change) {
      if (group.last_change == 0) group.last_change = change->number;
      if (!seen.insert(change->key).second) continue;
      group.touched.push_back(change->key);
      if (const PayloadPlace* place = DurablePlace(change->key)) group.erased.push_back({change->key, *place});
      if (change->payload != nullptr) group.puts.push_back({change->key, std::move(change->payload), {}});
    }
    for (auto record = write->records.rbegin(); record != write->records.rend(); ++record) {
      // A single write may name a key twice, too: the later one holds.
      if ((several || write->records.size() > 1) && !seen_records.insert(record->key).second) continue;
      group.records.push_back(std::move(*record));
    }
  }
  // Ascending, as the database likes it: each key goes beside the one before.
  const auto by_key = [](const auto& a, const auto& b) { return Order(a.key) < Order(b.key); };
  std::sort(group.puts.begin(), group.puts.end(), by_key);
  std::sort(group.erased.begin(), group.erased.end(), by_key);
  std::sort(group.records.begin(), group.records.end(),
            [](const StoreRecord& a, const StoreRecord& b) { return a.key < b.key; });
  return group;
}

void PendingWrites::OnDurable(const WriteGroup& group) {
  for (const WriteGroup::Erased& erased : group.erased) EraseDurable(erased.key);
  for (const WriteGroup::Put& put : group.puts) {
    Durable& durable = durable_[put.key];
    durable.place = put.place;
    if (put.place.is_inline()) Cache(put.key, &durable, put.payload);
  }
  for (const PayloadKey& key : group.touched) {
    const auto latest = latest_.find(key);
    if (latest != latest_.end() && latest->second.number <= group.last_change) latest_.erase(latest);
  }
  LEEWAY_CHECK(held_bytes_ >= group.held_bytes) << "bytes of pending writes";
  held_bytes_ -= group.held_bytes;
}

const PendingWrites::Durable* PendingWrites::FindDurable(const PayloadKey& key) const {
  const auto found = durable_.find(key);
  return found == durable_.end() ? nullptr : &found->second;
}

const PayloadPlace* PendingWrites::DurablePlace(const PayloadKey& key) const {
  const Durable* durable = FindDurable(key);
  return durable == nullptr ? nullptr : &durable->place;
}

void PendingWrites::EraseDurable(const PayloadKey& key) {
  const auto found = durable_.find(key);
  if (found == durable_.end()) return;
  if (found->second.cached != nullptr) cached_bytes_ -= found->second.cached->size();
  durable_.erase(found);
}

void PendingWrites::Cache(const PayloadKey& key, Durable* durable, Payload payload) {
  cached_bytes_ += payload->size();
  durable->cached = std::move(payload);
  cached_.push_back(key);
  while (cached_bytes_ > cached_bytes_limit_ || cached_.size() > kMaxCached) {
    const auto oldest = durable_.find(cached_.front());
    cached_.pop_front();
    if (oldest == durable_.end() || oldest->second.cached == nullptr) continue;
    cached_bytes_ -= oldest->second.cached->size();
    oldest->second.cached.reset();
  }
}

}  // namespace leeway
