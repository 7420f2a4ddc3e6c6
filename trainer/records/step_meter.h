#ifndef LEEWAY_TRAINER_RECORDS_STEP_METER_H_
#define LEEWAY_TRAINER_RECORDS_STEP_METER_H_

#include <cstdint>
#include <string>
#include <utility>

#include "base/state_clock.h"
#include "leeway/v1/queue.pb.h"
#include "trainer/records/metrics_line.h"
#include "trainer/records/process_times.h"

namespace leeway {

// What happened since the last line of metrics.jsonl, from counts that only grow: those of the queue's answers and of
// this process. Not thread-safe.
class StepMeter {
 public:
  // `name`: of this trainer process, whose states `states` holds.
  StepMeter(std::string name, const StateClock* states) : name_(std::move(name)), states_(states) {}

  // At the start of a later life: what an answer counts was counted by lines that exist.
  void Skip(const v1::StatusResponse& status);
  // An answer of the queue after the step: sets what the facts take from the queue.
  void AddQueue(const v1::StatusResponse& status, StepFacts* facts);
  // Sets the facts' times, of all processes, up to now.
  void AddTimes(StepFacts* facts);

 private:
  // What the queue has accepted in its life.
  struct Generated {
    uint64_t tokens = 0;
    uint64_t trajectories = 0;
  };
  static Generated GeneratedOf(const v1::StatusResponse& status);

  const std::string name_;
  const StateClock* const states_;
  ProcessTimes times_;
  // Up to the last line.
  Generated generated_;
};

}  // namespace leeway

#endif  // LEEWAY_TRAINER_RECORDS_STEP_METER_H_
