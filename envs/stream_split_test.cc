#include "envs/stream_split.h"

#include <set>

#include "gtest/gtest.h"

namespace leeway {
namespace {

std::string InstanceOf(uint64_t seed) { return "instance " + std::to_string(seed % 1000); }

TEST(StreamSplitTest, HoldsOutAnEighth) {
  int held_out = 0;
  for (int i = 0; i < 8000; ++i) held_out += IsHeldOut("instance " + std::to_string(i)) ? 1 : 0;
  // 1,000, six standard deviations (30) allowed.
  EXPECT_NEAR(held_out, 1000, 180);
}

// Part of the format of runs: a change of the hash would let old checkpoints be evaluated on what they were trained on.
TEST(StreamSplitTest, SidesNeverChange) {
  std::string sides;
  for (int i = 0; i < 32; ++i) sides += IsHeldOut("instance " + std::to_string(i)) ? 'h' : 't';
  EXPECT_EQ(sides, "tttttttttttttttttttttttttththttt");
}

TEST(StreamSplitTest, SeedsGiveInstancesOfTheirSide) {
  for (uint64_t index = 0; index < 2000; ++index) {
    EXPECT_FALSE(IsHeldOut(InstanceOf(TrainStreamSeed(1, index, InstanceOf))));
    EXPECT_TRUE(IsHeldOut(InstanceOf(HeldOutStreamSeed(1, index, InstanceOf))));
  }
}

TEST(StreamSplitTest, SeedsArePureFunctionsOfRunAndIndex) {
  std::set<uint64_t> seeds;
  for (uint64_t run_seed = 0; run_seed < 3; ++run_seed) {
    for (uint64_t index = 0; index < 500; ++index) {
      const uint64_t seed = TrainStreamSeed(run_seed, index, InstanceOf);
      EXPECT_EQ(TrainStreamSeed(run_seed, index, InstanceOf), seed);
      seeds.insert(seed);
      seeds.insert(HeldOutStreamSeed(run_seed, index, InstanceOf));
    }
  }
  EXPECT_EQ(seeds.size(), 3000u);
}

TEST(StreamSplitDeathTest, ATaskWithoutHeldOutInstancesIsABug) {
  std::string training_only = "instance 0";
  for (int i = 0; IsHeldOut(training_only); ++i) training_only = "instance " + std::to_string(i);
  EXPECT_DEATH(HeldOutStreamSeed(1, 0, [&](uint64_t) { return training_only; }), "too few instances");
}

}  // namespace
}  // namespace leeway
