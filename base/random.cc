#include "base/random.h"

#include <cmath>

namespace leeway {
namespace {

// splitmix64's finaliser: a bijection whose every output bit depends on every input bit.
uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

}  // namespace

namespace internal {

// Philox4x32 with 10 rounds, constants of the paper.
std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, uint32_t key0, uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53u} * counter[0];
    const uint64_t product1 = uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key0, static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key1, static_cast<uint32_t>(product0)};
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return counter;
}

}  // namespace internal

std::array<uint32_t, 4> RandomBits(const RandomKey& key) {
  // 64 bits of key from (seed, purpose, ticket); the 128-bit counter holds member, interaction and position in full, so
  // two draws of one ticket never meet.
  const uint64_t philox_key = Mix(Mix(Mix(key.seed) ^ static_cast<uint64_t>(key.purpose)) ^ key.ticket);
  return internal::Philox4x32(
      {static_cast<uint32_t>(key.position), static_cast<uint32_t>(key.position >> 32), key.interaction, key.member},
      static_cast<uint32_t>(philox_key), static_cast<uint32_t>(philox_key >> 32));
}

uint64_t RandomU64(const RandomKey& key) {
  const auto bits = RandomBits(key);
  return (uint64_t{bits[1]} << 32) | bits[0];
}

double RandomUniform(const RandomKey& key) { return static_cast<double>(RandomU64(key) >> 11) * 0x1.0p-53; }

double RandomNormal(const RandomKey& key) {
  const auto bits = RandomBits(key);
  const uint64_t first = (uint64_t{bits[1]} << 32) | bits[0];
  const uint64_t second = (uint64_t{bits[3]} << 32) | bits[2];
  // (0, 1]: the logarithm stays finite.
  const double radius_uniform = static_cast<double>((first >> 11) + 1) * 0x1.0p-53;
  const double angle = 6.283185307179586476925 * (static_cast<double>(second >> 11) * 0x1.0p-53);
  return std::sqrt(-2.0 * std::log(radius_uniform)) * std::cos(angle);
}

uint64_t RandomBelow(const RandomKey& key, uint64_t bound) {
  return static_cast<uint64_t>((static_cast<unsigned __int128>(RandomU64(key)) * bound) >> 64);
}

}  // namespace leeway
