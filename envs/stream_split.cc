#include "envs/stream_split.h"

#include "base/hash.h"
#include "base/random.h"
#include "base/status_macros.h"

namespace leeway {
namespace {

constexpr uint64_t kHeldOutOneIn = 8;
// (7/8)^10000 is no chance at all: running out means a task whose instances all lie on one side.
constexpr uint64_t kMaxCandidates = 10'000;

uint64_t StreamSeed(uint64_t run_seed, uint64_t index, RandomPurpose purpose, bool wants_held_out,
                    const InstanceOfSeed& instance_of_seed) {
  for (uint64_t candidate = 0; candidate < kMaxCandidates; ++candidate) {
    const uint64_t seed = RandomU64({.seed = run_seed, .purpose = purpose, .ticket = index, .position = candidate});
    if (IsHeldOut(instance_of_seed(seed)) == wants_held_out) return seed;
  }
  LEEWAY_CHECK(false) << "no seed among " << kMaxCandidates << " gives a"
                      << (wants_held_out ? " held-out" : " training")
                      << " instance: the task has too few instances to be split";
  return 0;
}

}  // namespace

bool IsHeldOut(absl::string_view instance) { return Hash64(instance.data(), instance.size()) % kHeldOutOneIn == 0; }

uint64_t TrainStreamSeed(uint64_t run_seed, uint64_t index, const InstanceOfSeed& instance_of_seed) {
  return StreamSeed(run_seed, index, RandomPurpose::kTask, /*wants_held_out=*/false, instance_of_seed);
}

uint64_t HeldOutStreamSeed(uint64_t run_seed, uint64_t index, const InstanceOfSeed& instance_of_seed) {
  return StreamSeed(run_seed, index, RandomPurpose::kEvaluationTask, /*wants_held_out=*/true, instance_of_seed);
}

}  // namespace leeway
