#include "trainer/checkpoint/ticket_ranges.h"

#include <iterator>

namespace leeway {

bool TicketRanges::Add(uint64_t id) {
  if (Contains(id)) return false;
  ++size_;
  auto after = ranges_.upper_bound(id);
  uint64_t first = id;
  uint64_t last = id;
  if (after != ranges_.begin()) {
    const auto before = std::prev(after);
    if (before->second + 1 == id) {
      first = before->first;
      ranges_.erase(before);
    }
  }
  if (after != ranges_.end() && after->first == id + 1) {
    last = after->second;
    ranges_.erase(after);
  }
  ranges_[first] = last;
  return true;
}

bool TicketRanges::Contains(uint64_t id) const {
  const auto after = ranges_.upper_bound(id);
  return after != ranges_.begin() && std::prev(after)->second >= id;
}

bool TicketRanges::Assign(const std::vector<std::pair<uint64_t, uint64_t>>& ranges) {
  ranges_.clear();
  size_ = 0;
  for (size_t i = 0; i < ranges.size(); ++i) {
    const auto [first, last] = ranges[i];
    if (last < first || (i > 0 && first <= ranges[i - 1].second + 1)) {
      ranges_.clear();
      size_ = 0;
      return false;
    }
    ranges_[first] = last;
    size_ += last - first + 1;
  }
  return true;
}

}  // namespace leeway
