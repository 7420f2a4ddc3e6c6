#include "queue/store/disk/pending_writes.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace leeway {
namespace {

uint64_t SizeOf(const StoreRecord& record) {
  return record.key.size() + (record.value.has_value() ? record.value->size() : 0);
}

// The last of every key, ascending: as the database likes it, each beside the one before.
std::vector<StoreRecord> LastOfEach(std::vector<StoreRecord> records) {
  std::vector<StoreRecord*> order;
  order.reserve(records.size());
  for (StoreRecord& record : records) order.push_back(&record);
  // Of equal keys the later one (it has the higher address) comes first.
  std::sort(order.begin(), order.end(), [](const StoreRecord* a, const StoreRecord* b) {
    const int compared = a->key.compare(b->key);
    return compared != 0 ? compared < 0 : a > b;
  });
  std::vector<StoreRecord> last;
  last.reserve(order.size());
  for (StoreRecord* record : order) {
    if (last.empty() || last.back().key != record->key) last.push_back(std::move(*record));
  }
  return last;
}

}  // namespace

void SortByPlace(std::vector<WriteGroup::Erased>* erased) {
  std::sort(erased->begin(), erased->end(), [](const WriteGroup::Erased& a, const WriteGroup::Erased& b) {
    return std::make_pair(a.place.list, a.place.index) < std::make_pair(b.place.list, b.place.index);
  });
}

absl::Status PendingWrites::OnRecovered(const PlacedPayload& payload) {
  IndexedPayload& indexed = index_[payload.key];
  if (indexed.exists) {
    return absl::DataLossError(absl::StrCat(DescribePayload(payload.key), " is listed twice, in the lists ",
                                            indexed.place.list, " and ", payload.place.list, " of payloads"));
  }
  indexed.key = payload.key;
  indexed.place = payload.place;
  indexed.exists = true;
  ++payloads_;
  bytes_ += payload.place.size_bytes;
  return absl::OkStatus();
}

// ---- the store's user -----------------------------------------------------------------------------------------------

absl::Status PendingWrites::Put(const PayloadKey& key, Payload payload) {
  const auto [found, is_new] = index_.try_emplace(key);
  IndexedPayload& indexed = found->second;
  if (indexed.exists) return absl::AlreadyExistsError(absl::StrCat(DescribePayload(key), " has a payload already"));
  // The writer reads it without the lock.
  if (is_new) indexed.key = key;
  indexed.exists = true;
  indexed.payload = payload;
  ++payloads_;
  bytes_ += payload->size();
  Hold(payload->size(), payload->size() <= options_.small_bytes);
  AddChange(&indexed, std::move(payload));
  return absl::OkStatus();
}

absl::StatusOr<PendingWrites::Found> PendingWrites::Get(const PayloadKey& key) const {
  const auto found = index_.find(key);
  if (found == index_.end() || !found->second.exists) {
    return absl::NotFoundError(absl::StrCat(DescribePayload(key), " has no payload"));
  }
  return Found{found->second.payload, found->second.place};
}

void PendingWrites::Erase(const PayloadKey& key) {
  const auto found = index_.find(key);
  if (found == index_.end() || !found->second.exists) return;
  IndexedPayload& indexed = found->second;
  --payloads_;
  bytes_ -= indexed.payload != nullptr ? indexed.payload->size() : indexed.place.size_bytes;
  Uncache(&indexed);
  indexed.exists = false;
  indexed.payload.reset();
  AddChange(&indexed, nullptr);
}

void PendingWrites::AddChange(IndexedPayload* indexed, Payload payload) {
  ++indexed->pending;
  open_.changes.push_back({indexed, std::move(payload)});
}

void PendingWrites::Hold(uint64_t bytes, bool is_small) {
  open_.held_bytes += bytes;
  held_bytes_ += bytes;
  if (!is_small) return;
  open_.held_small_bytes += bytes;
  held_small_bytes_ += bytes;
}

uint64_t PendingWrites::EndWrite(std::vector<StoreRecord> records) {
  for (const StoreRecord& record : records) Hold(SizeOf(record), true);
  open_.records = std::move(records);
  open_.last_write = ++last_write_;
  if (ended_.empty() || ended_.back().held_bytes + open_.held_bytes > options_.group_bytes) {
    ended_.push_back(std::exchange(open_, Gathered()));
    return last_write_;
  }
  Gathered& last = ended_.back();
  last.last_write = last_write_;
  last.held_bytes += open_.held_bytes;
  last.held_small_bytes += open_.held_small_bytes;
  std::move(open_.changes.begin(), open_.changes.end(), std::back_inserter(last.changes));
  std::move(open_.records.begin(), open_.records.end(), std::back_inserter(last.records));
  open_.changes.clear();
  open_.records.clear();
  open_.held_bytes = 0;
  open_.held_small_bytes = 0;
  DropReplacedRecords(&last);
  return last_write_;
}

void PendingWrites::DropReplacedRecords(Gathered* gathered) {
  // Only where the disk stands still for long; twice what was distinct, so that looking costs little by the record.
  if (gathered->records.size() < std::max(kManyRecords, 2 * gathered->distinct_records)) return;
  uint64_t dropped_bytes = 0;
  for (const StoreRecord& record : gathered->records) dropped_bytes += SizeOf(record);
  gathered->records = LastOfEach(std::move(gathered->records));
  for (const StoreRecord& record : gathered->records) dropped_bytes -= SizeOf(record);
  gathered->distinct_records = gathered->records.size();
  gathered->held_bytes -= dropped_bytes;
  gathered->held_small_bytes -= dropped_bytes;
  held_bytes_ -= dropped_bytes;
  held_small_bytes_ -= dropped_bytes;
}

// ---- the store's writer ---------------------------------------------------------------------------------------------

PendingWrites::Gathered PendingWrites::TakeGathered() {
  if (ended_.empty()) return Gathered();
  Gathered gathered = std::move(ended_.front());
  ended_.pop_front();
  return gathered;
}

WriteGroup PendingWrites::MakeGroup(Gathered gathered) {
  WriteGroup group;
  group.last_write = gathered.last_write;
  group.held_bytes = gathered.held_bytes;
  group.held_small_bytes = gathered.held_small_bytes;
  group.records = LastOfEach(std::move(gathered.records));
  // Backwards: only the last change of a payload counts.
  for (auto change = gathered.changes.rbegin(); change != gathered.changes.rend(); ++change) {
    IndexedPayload* const indexed = change->indexed;
    if (indexed->group == group.last_write) {
      ++indexed->changes_in_group;
      continue;
    }
    indexed->group = group.last_write;
    indexed->changes_in_group = 1;
    group.touched.push_back(indexed);
    if (indexed->place.list != 0) group.erased.push_back({indexed, indexed->place});
    if (change->payload != nullptr) group.puts.push_back({indexed, std::move(change->payload), {}});
  }
  std::reverse(group.puts.begin(), group.puts.end());
  SortByPlace(&group.erased);
  return group;
}

void PendingWrites::OnDurable(const WriteGroup& group) {
  for (const WriteGroup::Erased& erased : group.erased) erased.indexed->place = PayloadPlace();
  for (const WriteGroup::Put& put : group.puts) put.indexed->place = put.place;
  for (IndexedPayload* const indexed : group.touched) {
    indexed->pending -= indexed->changes_in_group;
    // A later change has its own bytes.
    if (indexed->pending > 0) continue;
    if (!indexed->exists) {
      const PayloadKey key = indexed->key;
      index_.erase(key);
    } else if (indexed->place.is_bundled()) {
      Cache(indexed);
    } else {
      indexed->payload.reset();
    }
  }
  if (group.last_write == 0) OnGivenUp(group);
  LEEWAY_CHECK(held_bytes_ >= group.held_bytes && held_small_bytes_ >= group.held_small_bytes)
      << "bytes of pending writes";
  held_bytes_ -= group.held_bytes;
  held_small_bytes_ -= group.held_small_bytes;
}

IndexedPayload* PendingWrites::FindDurable(const PayloadKey& key) {
  const auto found = index_.find(key);
  return found == index_.end() || found->second.place.list == 0 ? nullptr : &found->second;
}

void PendingWrites::OnRewriting(const WriteGroup& group) {
  for (const WriteGroup::Put& put : group.puts) {
    // Else it is in memory, or going.
    if (put.indexed->pending == 0 && put.indexed->cached_as == 0) put.indexed->payload = put.payload;
  }
}

void PendingWrites::OnGivenUp(const WriteGroup& group) {
  for (const WriteGroup::Put& put : group.puts) {
    if (put.indexed->pending == 0 && put.indexed->cached_as == 0) put.indexed->payload.reset();
  }
}

void PendingWrites::Cache(IndexedPayload* indexed) {
  cached_bytes_ += indexed->payload->size();
  cached_.push_back(indexed);
  indexed->cached_as = first_cached_ + cached_.size() - 1;
  while (cached_bytes_ > options_.cached_bytes || cached_.size() > kMaxCached) {
    if (IndexedPayload* const oldest = cached_.front()) {
      Uncache(oldest);
      oldest->payload.reset();
    }
    cached_.pop_front();
    ++first_cached_;
  }
}

void PendingWrites::Uncache(IndexedPayload* indexed) {
  if (indexed->cached_as == 0) return;
  cached_bytes_ -= indexed->payload->size();
  cached_[indexed->cached_as - first_cached_] = nullptr;
  indexed->cached_as = 0;
}

}  // namespace leeway
