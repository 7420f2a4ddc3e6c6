#include "queue/store/disk/segment_table.h"

#include <algorithm>
#include <utility>

#include "base/status_macros.h"

namespace leeway {
namespace {

bool HasEnded(const std::string& ended, uint32_t index) {
  return (static_cast<uint8_t>(ended[index / 8]) >> (index % 8) & 1) != 0;
}
void SetEnded(uint32_t index, std::string* ended) { (*ended)[index / 8] |= static_cast<char>(1 << (index % 8)); }

}  // namespace

void SegmentTable::OnCreated(uint64_t segment, uint64_t file_bytes) {
  const bool is_new = segments_.try_emplace(segment).second;
  LEEWAY_CHECK(is_new) << "segment " << segment << " exists already";
  segments_[segment].file_bytes = file_bytes;
  file_bytes_ += file_bytes;
}

void SegmentTable::OnListed(uint64_t segment, uint64_t list, std::vector<PayloadKey> keys, uint64_t live_bytes) {
  const auto [entry, is_new] = lists_.try_emplace(list);
  LEEWAY_CHECK(is_new) << "list " << list << " exists already";
  entry->second.segment = segment;
  entry->second.ended.resize((keys.size() + 7) / 8);
  entry->second.live_payloads = keys.size();
  Segment& where = segments_.at(segment);
  where.live_payloads += keys.size();
  where.live_bytes += live_bytes;
  where.lists.push_back(list);
  live_bytes_ += live_bytes;
  entry->second.keys = std::move(keys);
}

void SegmentTable::OnEnded(uint64_t list, uint32_t index, uint64_t size_bytes) {
  const auto found = lists_.find(list);
  LEEWAY_CHECK(found != lists_.end() && !HasEnded(found->second.ended, index)) << "payload " << index << " of " << list;
  SetEnded(index, &found->second.ended);
  Segment& segment = segments_.at(found->second.segment);
  LEEWAY_CHECK(segment.live_payloads > 0 && segment.live_bytes >= size_bytes) << "segment " << found->second.segment;
  segment.live_bytes -= size_bytes;
  --segment.live_payloads;
  live_bytes_ -= size_bytes;
  if (--found->second.live_payloads == 0) lists_.erase(found);
}

void SegmentTable::OnSealed(uint64_t segment, uint64_t file_bytes) {
  Segment& entry = segments_.at(segment);
  file_bytes_ += file_bytes - entry.file_bytes;
  entry.file_bytes = file_bytes;
  entry.is_sealed = true;
}

void SegmentTable::OnDamaged(uint64_t segment) { segments_.at(segment).is_damaged = true; }

void SegmentTable::OnRemoved(uint64_t segment) {
  const auto found = segments_.find(segment);
  LEEWAY_CHECK(found != segments_.end() && found->second.live_payloads == 0) << "segment " << segment;
  file_bytes_ -= found->second.file_bytes;
  segments_.erase(found);
}

std::vector<uint64_t> SegmentTable::Removable() const {
  std::vector<uint64_t> removable;
  for (const auto& [number, segment] : segments_) {
    if (segment.is_sealed && segment.live_payloads == 0) removable.push_back(number);
  }
  return removable;
}

std::vector<uint64_t> SegmentTable::WantRewriting(uint64_t limit_bytes) const {
  if (file_bytes_ <= 2 * live_bytes_ + slack_bytes_) return {};
  // By the live part.
  std::vector<std::pair<double, uint64_t>> half_empty;
  for (const auto& [number, segment] : segments_) {
    if (!segment.is_sealed || segment.is_damaged || segment.live_payloads == 0) continue;
    if (2 * segment.live_bytes > segment.file_bytes || segment.file_bytes == 0) continue;
    half_empty.emplace_back(static_cast<double>(segment.live_bytes) / static_cast<double>(segment.file_bytes), number);
  }
  std::sort(half_empty.begin(), half_empty.end());
  std::vector<uint64_t> wanted;
  uint64_t bytes = 0;
  for (const auto& [part, number] : half_empty) {
    bytes += segments_.at(number).live_bytes;
    if (!wanted.empty() && bytes > limit_bytes) break;
    wanted.push_back(number);
  }
  return wanted;
}

std::vector<PayloadKey> SegmentTable::KeysOf(uint64_t segment) const {
  std::vector<PayloadKey> living;
  for (const uint64_t number : segments_.at(segment).lists) {
    const auto list = lists_.find(number);
    if (list == lists_.end()) continue;
    for (uint32_t i = 0; i < list->second.keys.size(); ++i) {
      if (!HasEnded(list->second.ended, i)) living.push_back(list->second.keys[i]);
    }
  }
  return living;
}

std::string SegmentTable::EndedWith(uint64_t list, absl::Span<const uint32_t> indices) const {
  const List& entry = lists_.at(list);
  if (indices.size() == entry.live_payloads) return "";
  std::string ended = entry.ended;
  for (const uint32_t index : indices) SetEnded(index, &ended);
  return ended;
}

}  // namespace leeway
