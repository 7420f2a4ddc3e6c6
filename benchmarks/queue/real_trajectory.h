#ifndef LEEWAY_BENCHMARKS_QUEUE_REAL_TRAJECTORY_H_
#define LEEWAY_BENCHMARKS_QUEUE_REAL_TRAJECTORY_H_

#include <cstdint>

#include "leeway/v1/types.pb.h"

namespace leeway {

// Token ids of the benchmarks' trajectories are below this (that of SmolLM2).
inline constexpr int32_t kBenchmarkVocabulary = 49152;

// A well-formed one-turn trajectory of about `bytes` when serialised: a prompt, then sampled ids with
// log-probabilities, all drawn at random. Its key is the caller's to set, and the version of its only run.
v1::Trajectory RealTrajectory(uint64_t bytes, uint64_t seed);

// Makes it one of `member` of `ticket`.
void SetKey(const v1::Ticket& ticket, uint32_t member, v1::Trajectory* trajectory);

}  // namespace leeway

#endif  // LEEWAY_BENCHMARKS_QUEUE_REAL_TRAJECTORY_H_
