#include "queue/store/disk/segment_table.h"

#include "base/status_macros.h"

namespace leeway {
namespace {

// Segments of garbage that are not worth the writing.
constexpr uint64_t kSlackSegments = 4;

}  // namespace

void SegmentTable::OnCreated(uint64_t segment, uint64_t file_bytes) {
  const bool is_new = segments_.try_emplace(segment).second;
  LEEWAY_CHECK(is_new) << "segment " << segment << " exists already";
  segments_[segment].file_bytes = file_bytes;
  file_bytes_ += file_bytes;
}

void SegmentTable::OnReferred(uint64_t segment, const PayloadKey& key, uint64_t size_bytes) {
  Segment& entry = segments_.at(segment);
  entry.live_bytes += size_bytes;
  ++entry.live_payloads;
  entry.keys.push_back(key);
  live_bytes_ += size_bytes;
}

void SegmentTable::OnReleased(uint64_t segment, uint64_t size_bytes) {
  Segment& entry = segments_.at(segment);
  LEEWAY_CHECK(entry.live_payloads > 0 && entry.live_bytes >= size_bytes) << "segment " << segment;
  entry.live_bytes -= size_bytes;
  --entry.live_payloads;
  live_bytes_ -= size_bytes;
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

std::optional<uint64_t> SegmentTable::WantsRewriting() const {
  if (file_bytes_ <= 2 * live_bytes_ + kSlackSegments * segment_bytes_) return std::nullopt;
  const std::pair<const uint64_t, Segment>* emptiest = nullptr;
  for (const auto& entry : segments_) {
    const Segment& segment = entry.second;
    if (!segment.is_sealed || segment.is_damaged || segment.live_payloads == 0) continue;
    // live / size of the two, without dividing.
    if (emptiest == nullptr || static_cast<double>(segment.live_bytes) * emptiest->second.file_bytes <
                                   static_cast<double>(emptiest->second.live_bytes) * segment.file_bytes) {
      emptiest = &entry;
    }
  }
  if (emptiest == nullptr || 2 * emptiest->second.live_bytes > emptiest->second.file_bytes) return std::nullopt;
  return emptiest->first;
}

const std::vector<PayloadKey>& SegmentTable::KeysOf(uint64_t segment) const { return segments_.at(segment).keys; }

}  // namespace leeway
