#include "trainer/records/step_meter.h"

#include "base/fake_clock.h"
#include "gtest/gtest.h"

namespace leeway {
namespace {

v1::StatusResponse Status(uint64_t trajectories, uint64_t tokens, double generate_seconds) {
  v1::StatusResponse status;
  status.set_groups(5);
  status.set_bytes(640);
  status.set_generated_tokens(tokens);
  if (trajectories > 0) {
    status.set_generated_length_mean(static_cast<double>(tokens) / static_cast<double>(trajectories));
  }
  v1::WorkerStatus* worker = status.add_workers();
  worker->set_name("rollout-0");
  (*worker->mutable_report()->mutable_state_seconds())["busy:generate"] = generate_seconds;
  worker->mutable_report()->set_wall_seconds(generate_seconds);
  return status;
}

TEST(StepMeterTest, EveryLineHasWhatCameSinceTheLast) {
  FakeClock clock;
  StateClock states(&clock, "busy:train");
  StepMeter meter("trainer-0", &states);
  meter.Skip(Status(7, 70, 100));
  clock.Advance(absl::Seconds(2));
  StepFacts first;
  meter.AddQueue(Status(10, 100, 101), &first);
  meter.AddTimes(&first);
  EXPECT_EQ(first.queue_groups, 5u);
  EXPECT_EQ(first.queue_bytes, 640u);
  EXPECT_EQ(first.generated_tokens, 30u);
  EXPECT_EQ(first.generated_trajectories, 3u);
  EXPECT_EQ(first.times["busy/rollout/generate_s"], 1);
  EXPECT_EQ(first.times["busy/trainer/train_s"], 2);
  clock.Advance(absl::Seconds(1));
  StepFacts second;
  meter.AddQueue(Status(300'000'010, 3'000'000'117, 101.5), &second);
  meter.AddTimes(&second);
  EXPECT_EQ(second.generated_trajectories, 300'000'000u);
  EXPECT_EQ(second.times["busy/rollout/generate_s"], 0.5);
  EXPECT_EQ(second.times["busy/trainer/train_s"], 1);
}

}  // namespace
}  // namespace leeway
