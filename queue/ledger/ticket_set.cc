#include "queue/ledger/ticket_set.h"

#include <algorithm>
#include <bit>

namespace leeway {
namespace {

constexpr uint64_t kBits = 64;

}  // namespace

void TicketSet::Grow(uint64_t words) {
  if (words <= words_.size()) return;
  // Doubled, so that the tree, which has to be rebuilt, costs O(1) per id.
  words_.resize(std::max<uint64_t>(words, words_.size() * 2));
  tree_.assign(words_.size() + 1, 0);
  for (uint64_t i = 1; i < tree_.size(); ++i) {
    tree_[i] += std::popcount(words_[i - 1]);
    const uint64_t parent = i + (i & -i);
    if (parent < tree_.size()) tree_[parent] += tree_[i];
  }
}

void TicketSet::AddToTree(uint64_t word, int32_t by) {
  for (uint64_t i = word + 1; i < tree_.size(); i += i & -i) tree_[i] += by;
}

bool TicketSet::Add(uint64_t id) {
  const uint64_t word = id / kBits;
  const uint64_t bit = uint64_t{1} << (id % kBits);
  Grow(word + 1);
  if ((words_[word] & bit) != 0) return false;
  words_[word] |= bit;
  AddToTree(word, 1);
  ++size_;
  return true;
}

bool TicketSet::Remove(uint64_t id) {
  if (!Contains(id)) return false;
  words_[id / kBits] &= ~(uint64_t{1} << (id % kBits));
  AddToTree(id / kBits, -1);
  --size_;
  return true;
}

bool TicketSet::Contains(uint64_t id) const {
  const uint64_t word = id / kBits;
  return word < words_.size() && (words_[word] >> (id % kBits) & 1) != 0;
}

uint64_t TicketSet::CountUpTo(uint64_t id) const {
  const uint64_t word = id / kBits;
  if (word >= words_.size()) return size_;
  // Bits 0 .. id % 64 of the word itself, then the words before it.
  const uint64_t mask = ~uint64_t{0} >> (kBits - 1 - id % kBits);
  uint64_t count = std::popcount(words_[word] & mask);
  for (uint64_t i = word; i > 0; i -= i & -i) count += tree_[i];
  return count;
}

std::vector<uint64_t> TicketSet::ToVector() const {
  std::vector<uint64_t> ids;
  ids.reserve(size_);
  for (uint64_t word = 0; word < words_.size(); ++word) {
    for (uint64_t bits = words_[word]; bits != 0; bits &= bits - 1)
      ids.push_back(word * kBits + std::countr_zero(bits));
  }
  return ids;
}

std::string TicketSet::Block(uint64_t block) const {
  constexpr uint64_t kWords = kBlockIds / kBits;
  std::string bitmap(kBlockIds / 8, '\0');
  bool is_empty = true;
  for (uint64_t i = 0; i < kWords && block * kWords + i < words_.size(); ++i) {
    const uint64_t word = words_[block * kWords + i];
    is_empty &= word == 0;
    for (uint64_t byte = 0; byte < 8; ++byte) bitmap[i * 8 + byte] = static_cast<char>(word >> (8 * byte) & 0xff);
  }
  return is_empty ? "" : bitmap;
}

bool TicketSet::AddBlock(uint64_t block, absl::string_view bitmap) {
  if (bitmap.size() != kBlockIds / 8) return false;
  for (uint64_t i = 0; i < kBlockIds; ++i) {
    if ((static_cast<uint8_t>(bitmap[i / 8]) >> (i % 8) & 1) != 0) Add(block * kBlockIds + i);
  }
  return true;
}

}  // namespace leeway
