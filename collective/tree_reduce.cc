#include "collective/tree_reduce.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/status_macros.h"

namespace leeway {
namespace {

// Elements that are joined at once: small enough that the partial sums of all levels stay in the first-level cache.
constexpr int64_t kTile = 512;

struct Bf16 {
  uint16_t bits;
};

// Memory type -> type in which it is joined.
template <typename T>
struct Joined {
  using Type = T;
};
template <>
struct Joined<Bf16> {
  using Type = float;
};
// Signed overflow is undefined; unsigned wraps to the same bits.
template <typename T>
T Add(T a, T b) {
  if constexpr (std::is_same_v<T, int64_t>) {
    return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  } else {
    return a + b;
  }
}

template <typename T>
T Larger(T a, T b) {
  // A NaN differs from itself.
  return a > b || a != a ? a : b;
}

template <typename T>
void Load(const void* source, int64_t begin, int64_t count, typename Joined<T>::Type* tile) {
  const char* from = static_cast<const char*>(source) + begin * static_cast<int64_t>(sizeof(T));
  if constexpr (std::is_same_v<T, Bf16>) {
    Bf16 raw[kTile];
    std::memcpy(raw, from, static_cast<size_t>(count) * sizeof(T));
    for (int64_t i = 0; i < count; ++i) tile[i] = std::bit_cast<float>(static_cast<uint32_t>(raw[i].bits) << 16);
  } else {
    std::memcpy(tile, from, static_cast<size_t>(count) * sizeof(T));
  }
}

uint16_t RoundToBf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  // Rounding could carry a NaN's payload over into infinity: keep it a quiet NaN.
  if (value != value) return static_cast<uint16_t>((bits >> 16) | 0x0040);
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

template <typename T>
void Store(const typename Joined<T>::Type* tile, int64_t begin, int64_t count, void* output) {
  char* to = static_cast<char*>(output) + begin * static_cast<int64_t>(sizeof(T));
  if constexpr (std::is_same_v<T, Bf16>) {
    Bf16 raw[kTile];
    for (int64_t i = 0; i < count; ++i) raw[i].bits = RoundToBf16(tile[i]);
    std::memcpy(to, raw, static_cast<size_t>(count) * sizeof(T));
  } else {
    std::memcpy(to, tile, static_cast<size_t>(count) * sizeof(T));
  }
}

template <typename T>
void JoinTile(ReduceOp op, absl::Span<const void* const> sources, int64_t begin, int64_t count,
              typename Joined<T>::Type* tile) {
  if (sources.size() == 1) return Load<T>(sources[0], begin, count, tile);
  // Joining neighbours level by level is the same as cutting at the largest power of two below the number of sources.
  const size_t left = std::bit_floor(sources.size() - 1);
  typename Joined<T>::Type right[kTile];
  JoinTile<T>(op, sources.subspan(0, left), begin, count, tile);
  JoinTile<T>(op, sources.subspan(left), begin, count, right);
  if (op == ReduceOp::kSum) {
    for (int64_t i = 0; i < count; ++i) tile[i] = Add(tile[i], right[i]);
  } else {
    for (int64_t i = 0; i < count; ++i) tile[i] = Larger(tile[i], right[i]);
  }
}

template <typename T>
void Reduce(ReduceOp op, absl::Span<const void* const> sources, int64_t count, void* output) {
  typename Joined<T>::Type tile[kTile];
  for (int64_t begin = 0; begin < count; begin += kTile) {
    const int64_t size = std::min(kTile, count - begin);
    JoinTile<T>(op, sources, begin, size, tile);
    Store<T>(tile, begin, size, output);
  }
}

}  // namespace

bool IsReducible(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF64 || dtype == DType::kBF16 || dtype == DType::kI64;
}

void TreeReduce(ReduceOp op, DType dtype, absl::Span<const void* const> sources, int64_t count, void* output) {
  LEEWAY_CHECK(!sources.empty());
  switch (dtype) {
    case DType::kF32:
      return Reduce<float>(op, sources, count, output);
    case DType::kF64:
      return Reduce<double>(op, sources, count, output);
    case DType::kBF16:
      return Reduce<Bf16>(op, sources, count, output);
    case DType::kI64:
      return Reduce<int64_t>(op, sources, count, output);
    default:
      LEEWAY_CHECK(IsReducible(dtype)) << DTypeName(dtype);
  }
}

std::vector<int64_t> EvenParts(int64_t count, int size) {
  std::vector<int64_t> parts(static_cast<size_t>(size), count / size);
  for (int64_t i = 0; i < count % size; ++i) ++parts[static_cast<size_t>(i)];
  return parts;
}

}  // namespace leeway
