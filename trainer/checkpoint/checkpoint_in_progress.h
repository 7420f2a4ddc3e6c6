#ifndef LEEWAY_TRAINER_CHECKPOINT_CHECKPOINT_IN_PROGRESS_H_
#define LEEWAY_TRAINER_CHECKPOINT_CHECKPOINT_IN_PROGRESS_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "trainer/checkpoint/checkpoint_manifest.h"
#include "trainer/checkpoint/share_writer.h"

namespace leeway {

// The ranks, as far as writing a checkpoint needs them.
class CheckpointRanks {
 public:
  virtual ~CheckpointRanks() = default;

  // Every rank copies what it holds and begins to write it into `folder`; rank 0 writes `texts` too. Returns once all
  // may go on training. Errors are of the connection to the ranks.
  virtual absl::Status BeginSave(const std::string& folder, std::map<std::string, std::string> texts) = 0;

  // What has become of it, rank 0's first. Each rank whose share is pending waits for it up to `wait`, all at the same
  // time. Errors are of the connection to the ranks.
  virtual absl::StatusOr<std::vector<ShareOutcome>> SaveOutcomes(absl::Duration wait) = 0;
};

// A checkpoint that the ranks are writing: one plain value.
//
//   writing ─► all ranks have written ─► complete: files() are its manifest
//         └──► over, some have failed ─► status() names the first of them
class CheckpointInProgress {
 public:
  CheckpointInProgress(uint64_t step, std::string folder) : step_(step), folder_(std::move(folder)) {}

  uint64_t step() const { return step_; }
  const std::string& folder() const { return folder_; }

  // The ranks' newest word.
  void Take(const std::vector<ShareOutcome>& outcomes);

  // Nobody writes any more.
  bool is_over() const { return was_told_ && writing_.empty(); }
  const std::vector<int>& writing() const { return writing_; }
  // Of those that are done.
  const absl::Status& status() const { return status_; }
  const WrittenFiles& files() const { return files_; }
  // The longest that a rank wrote.
  double seconds() const { return seconds_; }

 private:
  const uint64_t step_;
  const std::string folder_;
  bool was_told_ = false;
  std::vector<int> writing_;
  absl::Status status_;
  WrittenFiles files_;
  double seconds_ = 0;
};

}  // namespace leeway

#endif  // LEEWAY_TRAINER_CHECKPOINT_CHECKPOINT_IN_PROGRESS_H_
