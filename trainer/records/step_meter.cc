#include "trainer/records/step_meter.h"

#include <cmath>

#include "base/cpu_time.h"

namespace leeway {

StepMeter::Generated StepMeter::GeneratedOf(const v1::StatusResponse& status) {
  Generated generated;
  generated.tokens = status.generated_tokens();
  if (status.generated_length_mean() > 0) {
    const double trajectories = static_cast<double>(status.generated_tokens()) / status.generated_length_mean();
    generated.trajectories = static_cast<uint64_t>(std::llround(trajectories));
  }
  return generated;
}

void StepMeter::Skip(const v1::StatusResponse& status) {
  times_.SkipAll(status);
  generated_ = GeneratedOf(status);
}

void StepMeter::AddQueue(const v1::StatusResponse& status, StepFacts* facts) {
  times_.AddAll(status);
  facts->queue_groups = status.groups();
  facts->queue_bytes = status.bytes();
  const Generated generated = GeneratedOf(status);
  facts->generated_tokens = generated.tokens - generated_.tokens;
  facts->generated_trajectories = generated.trajectories - generated_.trajectories;
  generated_ = generated;
}

void StepMeter::AddTimes(StepFacts* facts) {
  v1::ProcessReport own;
  for (const auto& [state, duration] : states_->Totals()) {
    (*own.mutable_state_seconds())[state] = absl::ToDoubleSeconds(duration);
  }
  for (const auto& [thread_class, seconds] : CpuSecondsByThreadClass()) {
    (*own.mutable_cpu_seconds())[thread_class] = seconds;
  }
  times_.Add("trainer", name_, own);
  facts->times = times_.Take();
}

}  // namespace leeway
