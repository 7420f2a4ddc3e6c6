#ifndef LEEWAY_TRAINER_LEARNER_RANKS_H_
#define LEEWAY_TRAINER_LEARNER_RANKS_H_

// The learners of all ranks do the same: rank 0 decides what, the others follow.
//
//   leader    Restore | Reset | Train | BeginSave | SaveOutcomes | Idle | Stop    each is a command, then the same call
//   followers wait for a command, make the call, wait for the next
//
// Commands have a communicator of their own. Between two of them the leader publishes, writes files and waits for the
// queue, for as long as it takes; meanwhile a thread of its own tells the others that it lives, so that a rank that
// hangs is found out within the timeout of one operation, whatever the others do at that time. An error of the leader
// or of a rank ends all of them; the run goes on from a checkpoint. A checkpoint that a rank cannot write is no error:
// SaveOutcomes says so. Each rank has a thread that writes its share while the next steps train.

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/file_system.h"
#include "base/mutex.h"
#include "collective/communicator.h"
#include "trainer/checkpoint/checkpoint_in_progress.h"
#include "trainer/checkpoint/share_writer.h"
#include "trainer/learner.h"

namespace leeway {
namespace v1 {
class LearnerCommand;
}  // namespace v1

// On rank 0. One caller at a time; calls block as the learner's do. After an error only Stop is of use.
class LearnerLeader : public CheckpointRanks {
 public:
  // All outlive the object. `commands` null: there is one rank.
  LearnerLeader(Learner* own, Communicator* commands, FileSystem* files = RealFileSystem());
  ~LearnerLeader() override;
  LearnerLeader(const LearnerLeader&) = delete;
  LearnerLeader& operator=(const LearnerLeader&) = delete;

  // From the checkpoint in `folder`, which is whole.
  absl::Status Restore(const std::string& folder, int64_t updates) LEEWAY_EXCLUDES(mutex_);
  absl::Status Reset(std::vector<float> parameters) LEEWAY_EXCLUDES(mutex_);
  absl::Status Train(uint64_t step, const LeasedBatch& leased, StepReport* report) LEEWAY_EXCLUDES(mutex_);
  absl::Status BeginSave(const std::string& folder, std::map<std::string, std::string> texts) override
      LEEWAY_EXCLUDES(mutex_);
  absl::StatusOr<std::vector<ShareOutcome>> SaveOutcomes(absl::Duration wait) override LEEWAY_EXCLUDES(mutex_);
  // Nothing to do yet: finds out if a rank is gone.
  absl::Status Idle() LEEWAY_EXCLUDES(mutex_);
  // The others return: OK if `reason` is, else ABORTED with it.
  absl::Status Stop(const absl::Status& reason) LEEWAY_EXCLUDES(mutex_);

 private:
  bool is_alone() const { return commands_ == nullptr; }
  absl::Status Command(const v1::LearnerCommand& command) LEEWAY_REQUIRES(mutex_);
  // Of an own call: if it has failed, all ranks fail with it, at once.
  absl::Status Remember(const absl::Status& status) LEEWAY_REQUIRES(mutex_);
  void BeatLoop() LEEWAY_EXCLUDES(mutex_);

  Learner* const own_;
  Communicator* const commands_;
  FileSystem* const files_;
  // The longest pause between two commands.
  const absl::Duration beat_;

  // Held for a whole call: no beat comes between a command and what all ranks do upon it.
  Mutex mutex_;
  CondVar changed_;
  Deadline next_beat_ LEEWAY_GUARDED_BY(mutex_);
  bool is_over_ LEEWAY_GUARDED_BY(mutex_) = false;
  bool has_failed_ LEEWAY_GUARDED_BY(mutex_) = false;
  ShareWriter writer_ LEEWAY_GUARDED_BY(mutex_);
  std::thread beats_;
};

// On the other ranks: follows until the leader stops. `on_step` is told every step that begins. OK: the leader's run
// has ended well. ABORTED: it has not. Others: the communicators' errors.
absl::Status FollowLeader(Learner* own, Communicator* commands, const std::function<void(uint64_t step)>& on_step,
                          FileSystem* files = RealFileSystem());

}  // namespace leeway

#endif  // LEEWAY_TRAINER_LEARNER_RANKS_H_
