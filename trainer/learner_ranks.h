#ifndef LEEWAY_TRAINER_LEARNER_RANKS_H_
#define LEEWAY_TRAINER_LEARNER_RANKS_H_

// The learners of all ranks do the same: rank 0 decides what, the others follow.
//
//   leader    Restore | Reset | Train | GatherState | Idle | Stop       each is a command, then the same call
//   everywhere follower  waits for a command, makes the call, waits for the next
//
// Commands have a communicator of their own, whose timeout is longer than anything that the leader waits for between
// two commands. An error of the leader or of a rank ends all of them; the run goes on from a checkpoint.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "collective/communicator.h"
#include "trainer/learner.h"

namespace leeway {
namespace v1 {
class LearnerCommand;
}  // namespace v1

// On rank 0. One caller at a time; calls block as the learner's do. After an error only Stop is of use.
class LearnerLeader {
 public:
  // Both outlive the object. `commands` null: there is one rank.
  LearnerLeader(Learner* own, Communicator* commands) : own_(own), commands_(commands) {}

  absl::Status Restore(const TrainingState& state);
  absl::Status Reset(std::vector<float> parameters);
  absl::Status Train(uint64_t step, const LeasedBatch& leased, StepReport* report);
  absl::StatusOr<TrainingState> GatherState();
  // Nothing to do yet: keeps the others from taking the leader for hung, and finds out if one is gone.
  absl::Status Idle();
  // The others return: OK if `reason` is, else ABORTED with it.
  absl::Status Stop(const absl::Status& reason);

 private:
  bool is_alone() const { return commands_ == nullptr; }
  absl::Status Command(const v1::LearnerCommand& command);

  Learner* const own_;
  Communicator* const commands_;
};

// On the other ranks: follows until the leader stops. `on_step` is told every step that begins. OK: the leader's run
// has ended well. ABORTED: it has not. Others: the communicators' errors.
absl::Status FollowLeader(Learner* own, Communicator* commands, const std::function<void(uint64_t step)>& on_step);

}  // namespace leeway

#endif  // LEEWAY_TRAINER_LEARNER_RANKS_H_
