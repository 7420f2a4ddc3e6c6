#include "trainer/optimizer/learning_rate.h"

#include <cmath>

#include "gtest/gtest.h"

namespace leeway {
namespace {

TEST(LearningRateTest, ConstantIsThePeakAtEveryStep) {
  LearningRateSchedule schedule;
  schedule.peak = 1e-3;
  EXPECT_EQ(schedule.At(1), 1e-3);
  EXPECT_EQ(schedule.At(100'000), 1e-3);
}

TEST(LearningRateTest, WarmUpRisesInEqualParts) {
  LearningRateSchedule schedule;
  schedule.peak = 0.8;
  schedule.warmup_steps = 4;
  EXPECT_DOUBLE_EQ(schedule.At(1), 0.2);
  EXPECT_DOUBLE_EQ(schedule.At(3), 0.6);
  EXPECT_DOUBLE_EQ(schedule.At(4), 0.8);
  EXPECT_DOUBLE_EQ(schedule.At(5), 0.8);
}

// 10 steps, 2 of them warm-up: the 8 that follow go down from 1 in eighths, and the step after the last one would have
// 0.
TEST(LearningRateTest, LinearGoldenSequence) {
  LearningRateSchedule schedule;
  schedule.kind = ScheduleKind::kLinear;
  schedule.peak = 1.0;
  schedule.warmup_steps = 2;
  schedule.total_steps = 10;
  const double expected[] = {0.5, 1.0, 1.0, 0.875, 0.75, 0.625, 0.5, 0.375, 0.25, 0.125, 0.0, 0.0};
  for (int step = 1; step <= 12; ++step) EXPECT_DOUBLE_EQ(schedule.At(step), expected[step - 1]) << step;
}

TEST(LearningRateTest, CosineGoesThroughTheMiddleAndEndsAtTheFinalFraction) {
  LearningRateSchedule schedule;
  schedule.kind = ScheduleKind::kCosine;
  schedule.peak = 2.0;
  schedule.total_steps = 8;
  schedule.final_fraction = 0.1;
  EXPECT_DOUBLE_EQ(schedule.At(1), 2.0);
  EXPECT_DOUBLE_EQ(schedule.At(5), 2.0 * 0.55);
  EXPECT_NEAR(schedule.At(3), 2.0 * (0.1 + 0.9 * 0.5 * (1 + std::sqrt(0.5))), 1e-15);
  EXPECT_DOUBLE_EQ(schedule.At(9), 0.2);
  EXPECT_DOUBLE_EQ(schedule.At(100), 0.2);
}

TEST(LearningRateTest, Names) {
  for (const std::string& name : ScheduleKindNames()) EXPECT_TRUE(ParseScheduleKind(name).ok()) << name;
  EXPECT_EQ(ParseScheduleKind("sine").status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace leeway
