#include "queue/door/token_bytes.h"

#include <cstdint>
#include <cstring>

namespace leeway {
namespace {

// Lanes of 0 and -1 are what comparisons of these give.
using Words = int32_t __attribute__((vector_size(16)));

// Whether `is_good`, which judges four words at once, finds all of them so.
template <class IsGood>
bool AllWords(absl::string_view bytes, const IsGood& is_good) {
  if (bytes.size() % sizeof(int32_t) != 0) return false;
  const char* at = bytes.data();
  const char* const end = at + bytes.size();
  Words good = Words{} - 1;
  for (; end - at >= static_cast<ptrdiff_t>(sizeof(Words)); at += sizeof(Words)) {
    Words words;
    std::memcpy(&words, at, sizeof(words));
    good &= is_good(words);
  }
  for (; at < end; at += sizeof(int32_t)) {
    int32_t word;
    std::memcpy(&word, at, sizeof(word));
    good &= is_good(Words{} + word);
  }
  uint64_t halves[2];
  std::memcpy(halves, &good, sizeof(halves));
  return (halves[0] & halves[1]) == ~uint64_t{0};
}

}  // namespace

bool AreIds(absl::string_view bytes, int32_t vocabulary_size) {
  return AllWords(bytes, [&](Words words) { return (words >= 0) & (words < vocabulary_size); });
}

bool AreLogprobs(absl::string_view bytes) {
  // As integers, negative finite floats are all below that of minus infinity; NaNs and it are not.
  constexpr int32_t kMinusInfinity = static_cast<int32_t>(0xff800000);
  return AllWords(bytes, [](Words words) { return (words == 0) | (words < kMinusInfinity); });
}

}  // namespace leeway
