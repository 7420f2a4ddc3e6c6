#ifndef LEEWAY_LAUNCH_CONFIG_RANK_MEMORY_H_
#define LEEWAY_LAUNCH_CONFIG_RANK_MEMORY_H_

#include <cstdint>
#include <optional>

#include "launch/config/config.h"
#include "launch/config/resolve.h"
#include "trainer/parallel/sharding_options.h"

namespace leeway {

// Of one step.
double BatchEpisodes(const Config& config);

// What the first rank of the trainer holds, in bytes; no rank holds more but for roundings.
struct RankMemory {
  StateBytes states;
  int64_t packed_weights = 0;
  int64_t published = 0;    // of rank 0 alone: the whole weights, where the states do not hold them as such
  int64_t activations = 0;  // of the largest micro-batch, kept for the backward pass
  int64_t passing = 0;      // gradients of those rows, on their way
  int64_t checkpoint = 0;   // the copy that is written while training goes on

  double Total() const {
    return static_cast<double>(states.total() + packed_weights + activations + passing + checkpoint);
  }
};

// nullopt: the options are unusable (other errors say why).
std::optional<RankMemory> RankMemoryOf(const ResolvedConfig& resolved);

}  // namespace leeway

#endif  // LEEWAY_LAUNCH_CONFIG_RANK_MEMORY_H_
