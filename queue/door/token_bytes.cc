#include "queue/door/token_bytes.h"

#include <bit>
#include <cstring>

namespace leeway {
namespace {

// Lanes of 0 and -1 are what comparisons of these give.
using Bytes = int8_t __attribute__((vector_size(16)));
using Words = int32_t __attribute__((vector_size(16)));

template <class Vector>
Vector Load(const char* from) {
  Vector vector;
  std::memcpy(&vector, from, sizeof(vector));
  return vector;
}

// The largest number that three bytes of a varint hold, and one.
constexpr int32_t kThreeBytes = 1 << 21;
// Counters of one byte are added up before they overflow.
constexpr int kRounds = 127;

bool AnySet(Bytes bytes) {
  uint64_t halves[2];
  std::memcpy(halves, &bytes, sizeof(halves));
  return (halves[0] | halves[1]) != 0;
}

// A limit as the seven-bit groups of a varint, each in every lane.
struct Limit {
  explicit Limit(int32_t value)
      : high(Bytes{} + static_cast<int8_t>(value >> 14)),
        middle(Bytes{} + static_cast<int8_t>((value >> 7) & 0x7f)),
        low(Bytes{} + static_cast<int8_t>(value & 0x7f)) {}
  Bytes high, middle, low;
};

// What is wrong (-1) in each of the sixteen bytes at `at`; `ends` says where numbers end.
Bytes FaultsOf(const char* at, const Limit* limit, Bytes* ends) {
  const Bytes b0 = Load<Bytes>(at);
  const Bytes b1 = Load<Bytes>(at - 1);
  const Bytes b2 = Load<Bytes>(at - 2);
  const Bytes b3 = Load<Bytes>(at - 3);
  *ends = b0 >= 0;
  const Bytes has_two = b1 < 0;
  const Bytes has_three = has_two & (b2 < 0);
  const Bytes too_long = has_three & (b3 < 0);
  if (limit == nullptr) return *ends & too_long;
  const Bytes g0 = b0 & 0x7f, g1 = b1 & 0x7f, g2 = b2 & 0x7f;
  const Bytes high = has_three & g0;
  const Bytes middle = (has_three & g1) | (~has_three & has_two & g0);
  const Bytes low = (has_three & g2) | (~has_three & has_two & g1) | (~has_two & g0);
  const Bytes is_below =
      (high < limit->high) |
      ((high == limit->high) & ((middle < limit->middle) | ((middle == limit->middle) & (low < limit->low))));
  return *ends & (too_long | ~is_below);
}

}  // namespace

std::optional<uint64_t> CountIds(absl::string_view bytes, int32_t vocabulary_size) {
  if (bytes.empty()) return 0;
  if (static_cast<int8_t>(bytes.back()) < 0 || vocabulary_size <= 0) return std::nullopt;
  const bool is_limited = vocabulary_size < kThreeBytes;
  const Limit limit(is_limited ? vocabulary_size : 0);
  const Limit* const applied = is_limited ? &limit : nullptr;
  const char* at = bytes.data();
  const char* const end = at + bytes.size();
  uint64_t count = 0;
  Bytes faults{};
  while (end - at >= 16) {
    Bytes counters{};
    for (int round = 0; round < kRounds && end - at >= 16; ++round, at += 16) {
      Bytes ends;
      faults |= FaultsOf(at, applied, &ends);
      counters -= ends;
    }
    for (int lane = 0; lane < 16; ++lane) count += static_cast<uint64_t>(counters[lane]);
  }
  if (at < end) {
    // The rest behind its three predecessors; what follows it continues for ever, and so counts for nothing.
    char rest[3 + 16 + 16];
    std::memset(rest, 0x80, sizeof(rest));
    std::memcpy(rest, at - 3, static_cast<size_t>(end - at) + 3);
    Bytes ends;
    faults |= FaultsOf(rest + 3, applied, &ends);
    for (int lane = 0; lane < 16; ++lane) count -= static_cast<uint64_t>(static_cast<int64_t>(ends[lane]));
  }
  if (AnySet(faults)) return std::nullopt;
  return count;
}

bool AreLogprobs(absl::string_view bytes) {
  if (bytes.size() % 4 != 0) return false;
  const char* at = bytes.data();
  const char* const end = at + bytes.size();
  // As integers, negative finite floats are all below that of minus infinity; NaNs and it are not.
  constexpr int32_t kMinusInfinity = static_cast<int32_t>(0xff800000);
  Words good = Words{} - 1;
  for (; end - at >= 16; at += 16) {
    const Words words = Load<Words>(at);
    good &= (words == 0) | (words < kMinusInfinity);
  }
  bool all = !AnySet(std::bit_cast<Bytes>(~good));
  for (; at < end; at += 4) {
    int32_t word;
    std::memcpy(&word, at, sizeof(word));
    all &= word == 0 || word < kMinusInfinity;
  }
  return all;
}

}  // namespace leeway
