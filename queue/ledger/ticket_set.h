#ifndef LEEWAY_QUEUE_LEDGER_TICKET_SET_H_
#define LEEWAY_QUEUE_LEDGER_TICKET_SET_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace leeway {

// A set of dense ids from 1 that counts members up to an id: a bitmap with a Fenwick tree over its words. 1.5 bits per
// id up to the largest, whatever is in it; every operation O(log n). Thread-compatible value.
class TicketSet {
 public:
  // True if it changed.
  bool Add(uint64_t id);
  bool Remove(uint64_t id);
  bool Contains(uint64_t id) const;

  uint64_t size() const { return size_; }
  // Members <= id.
  uint64_t CountUpTo(uint64_t id) const;
  // Ascending. O(largest id).
  std::vector<uint64_t> ToVector() const;

  // For records: the members in [block * kBlockIds, (block + 1) * kBlockIds) as a bitmap of kBlockIds / 8 bytes,
  // lowest id first; empty when there are none.
  static constexpr uint64_t kBlockIds = 2048;
  std::string Block(uint64_t block) const;
  // Adds the members of a block. False: the bytes are not a block.
  bool AddBlock(uint64_t block, absl::string_view bitmap);

 private:
  void AddToTree(uint64_t word, int32_t by);
  void Grow(uint64_t words);

  std::vector<uint64_t> words_;

  // Fenwick tree of the words' population counts; index 0 unused.
  std::vector<uint32_t> tree_{0};

  uint64_t size_ = 0;
};

}  // namespace leeway

#endif  // LEEWAY_QUEUE_LEDGER_TICKET_SET_H_
