#ifndef LEEWAY_TRAINER_CHECKPOINT_TICKET_RANGES_H_
#define LEEWAY_TRAINER_CHECKPOINT_TICKET_RANGES_H_

// Which tickets a run has trained, for the exactly-once audit and for the checkpoint.

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace leeway {

// A set of ticket ids as sorted, disjoint, non-adjacent ranges: what a run has consumed so far in a few numbers. The
// same set always has the same ranges, in whatever order it was filled. Not thread-safe.
class TicketRanges {
 public:
  // False if it was there already.
  bool Add(uint64_t id);
  bool Contains(uint64_t id) const;
  uint64_t size() const { return size_; }
  // Inclusive at both ends, ascending.
  std::vector<std::pair<uint64_t, uint64_t>> ranges() const { return {ranges_.begin(), ranges_.end()}; }
  // False if `ranges` are not as ranges() gives them; then the set is empty.
  bool Assign(const std::vector<std::pair<uint64_t, uint64_t>>& ranges);

 private:
  std::map<uint64_t, uint64_t> ranges_;  // first -> last
  uint64_t size_ = 0;
};

}  // namespace leeway

#endif  // LEEWAY_TRAINER_CHECKPOINT_TICKET_RANGES_H_
