#ifndef LEEWAY_ENVS_STREAM_SPLIT_H_
#define LEEWAY_ENVS_STREAM_SPLIT_H_

// The two streams of a procedural task, kept apart by the hash of the instance itself: an instance belongs to the
// held-out stream or to the training stream in every run, whatever seed makes it. So no evaluation ever asks what some
// training asked.

#include <cstdint>
#include <functional>
#include <string>

#include "absl/strings/string_view.h"

namespace leeway {

// Whether an instance, named by any text that tells instances apart, is one of the eighth that is held out.
bool IsHeldOut(absl::string_view instance);

// The text that tells the instance of a seed from others; equal instances give equal texts.
using InstanceOfSeed = std::function<std::string(uint64_t seed)>;

// Seeds of the streams: the first of a fixed sequence of candidates, drawn from (run seed, index), whose instance lies
// on the right side. Pure functions; about 1.1 and 8 candidates are looked at.
uint64_t TrainStreamSeed(uint64_t run_seed, uint64_t index, const InstanceOfSeed& instance_of_seed);
uint64_t HeldOutStreamSeed(uint64_t run_seed, uint64_t index, const InstanceOfSeed& instance_of_seed);

}  // namespace leeway

#endif  // LEEWAY_ENVS_STREAM_SPLIT_H_
