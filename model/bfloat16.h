#ifndef LEEWAY_MODEL_BFLOAT16_H_
#define LEEWAY_MODEL_BFLOAT16_H_

#include <bit>
#include <cstdint>

namespace leeway {

// A bf16 is the upper half of a float.
inline float FromBf16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

// Rounded to nearest, ties to even.
inline uint16_t ToBf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  // Rounding a NaN's mantissa up could carry it into infinity.
  if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<uint16_t>((bits >> 16) | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

}  // namespace leeway

#endif  // LEEWAY_MODEL_BFLOAT16_H_
