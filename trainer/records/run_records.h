#ifndef LEEWAY_TRAINER_RECORDS_RUN_RECORDS_H_
#define LEEWAY_TRAINER_RECORDS_RUN_RECORDS_H_

// What a run leaves behind beside its checkpoints: one line or one file a step. Errors are those of the file system.

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/file_system.h"
#include "queue/queue_client.h"
#include "tokenizer/tokenizer.h"
#include "trainer/records/metrics_journal.h"
#include "trainer/trainer_options.h"

namespace leeway {

// The files of the run directory that the trainer adds to at every step: metrics.jsonl (MetricsJournal),
// schedule.jsonl, trajectories/step-N.jsonl, failed_steps/step-N.jsonl. After Open they hold the steps up to the
// checkpoint and nothing else, so that no step ever stands twice. Not thread-safe; blocks on the disk.
class RunRecords {
 public:
  RunRecords(const TrainerOptions& options, FileSystem* files, const Clock* clock, const Tokenizer* tokenizer);

  absl::Status Open(uint64_t step, const std::vector<HeldLine>& held, bool has_checkpoint);

  // The batch of a finished step: its schedule line and, where asked for, its trajectories.
  absl::Status AddBatch(uint64_t step, const LeasedBatch& batch);
  // A batch that could not be applied.
  absl::Status AddFailedStep(uint64_t step, const std::string& lines);

  MetricsJournal& metrics() { return metrics_; }

 private:
  // Removes step-N.jsonl with N > `step`.
  absl::Status RemoveStepFiles(const std::string& directory, uint64_t step);

  const TrajectorySampleOptions sample_;
  FileSystem* const files_;
  const Tokenizer* const tokenizer_;
  const std::string schedule_path_;
  const std::string trajectories_path_;
  const std::string failed_steps_path_;
  MetricsJournal metrics_;
};

}  // namespace leeway

#endif  // LEEWAY_TRAINER_RECORDS_RUN_RECORDS_H_
