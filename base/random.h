#ifndef LEEWAY_BASE_RANDOM_H_
#define LEEWAY_BASE_RANDOM_H_

// Counter-based random numbers: every number is a pure function of (run seed, purpose, ticket, member, interaction,
// position). No state, no threads, no order of calls: the same key gives the same number on every machine, whatever ran
// before. Attempt and issue numbers are left out on purpose, so that a repeated episode draws the same numbers.
//
// Generator: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).

#include <array>
#include <cstdint>

namespace leeway {

// What a number is drawn for. Values are part of the file format of runs (they decide every bit): never renumber.
enum class RandomPurpose : uint32_t {
  kTask = 1,            // which task instance a ticket gets
  kTransition = 2,      // stochastic environment transitions
  kSampling = 3,        // tokens
  kWeights = 4,         // random initialisation
  kWarmStart = 5,       // supervised examples
  kLatency = 6,         // injected environment latency
  kFault = 7,           // injected environment faults
  kEvaluationTask = 8,  // held-out instances
  kEvaluationSampling = 9,
  kShuffle = 10,
  kBackoff = 11,  // jitter of retries: decides when, never what
};

struct RandomKey {
  uint64_t seed = 0;
  RandomPurpose purpose = RandomPurpose::kTask;
  uint64_t ticket = 0;
  uint32_t member = 0;
  uint32_t interaction = 0;
  uint64_t position = 0;
};

// 128 random bits of one key.
std::array<uint32_t, 4> RandomBits(const RandomKey& key);

// 64 random bits.
uint64_t RandomU64(const RandomKey& key);

// Uniform in [0, 1) with 53 random bits.
double RandomUniform(const RandomKey& key);

// Standard normal (Box-Muller over one key's 128 bits).
double RandomNormal(const RandomKey& key);

// Uniform in [0, bound), bound >= 1, without modulo bias beyond 2^-64 (multiply-high of 64 bits).
uint64_t RandomBelow(const RandomKey& key, uint64_t bound);

// A stream for code that wants several numbers in sequence from one key (an environment's reset): position counts up.
class RandomStream {
 public:
  explicit RandomStream(const RandomKey& key) : key_(key) {}
  uint64_t NextU64() { return RandomU64(Next()); }
  double NextUniform() { return RandomUniform(Next()); }
  double NextNormal() { return RandomNormal(Next()); }
  uint64_t NextBelow(uint64_t bound) { return RandomBelow(Next(), bound); }

 private:
  RandomKey Next() {
    RandomKey key = key_;
    ++key_.position;
    return key;
  }
  RandomKey key_;
};

namespace internal {

// Philox4x32 with 10 rounds.
std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, uint32_t key0, uint32_t key1);

}  // namespace internal
}  // namespace leeway

#endif  // LEEWAY_BASE_RANDOM_H_
