#ifndef LEEWAY_TRAINER_CHECKPOINT_CHECKPOINT_STORE_H_
#define LEEWAY_TRAINER_CHECKPOINT_CHECKPOINT_STORE_H_

// Checkpoints on disk: checkpoints/step-N/ (complete or not there at all) and checkpoints/latest (the name of the
// newest).
//
//   weights.safetensors, optimizer.safetensors, state.json    equal byte for byte whenever the same data were trained
//   (DESIGN 3.6) ledger.bin                                                 the queue's ledger at the commit of version
//   N+1 run_state.json                                             lineage, time, configuration, metrics lines held
//   back manifest.json                                              length and digest of each of these files
//
// A checkpoint is written into .tmp-step-N, read back, compared with what was to be saved, and only then renamed.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/file_system.h"
#include "model/shape.h"
#include "trainer/checkpoint/ticket_ranges.h"
#include "trainer/checkpoint/training_state.h"

namespace leeway {

// A metrics line that waits for its evaluation, or stands behind one that does.
struct HeldLine {
  uint64_t step = 0;
  uint64_t version = 0;
  bool awaits_evaluation = false;
  std::string json;  // one line, without the evaluation
};

// The end of step `step`.
struct Checkpoint {
  uint64_t step = 0;
  uint64_t seed = 0;
  TrainingState training;
  TicketRanges consumed;
  uint64_t skipped_steps = 0;

  std::string ledger;  // opaque; empty at step 0

  // What differs between two runs with the same data.
  uint64_t lineage = 0;
  // Of the run so far, all lives of the trainer together.
  double wall_seconds = 0;
  uint64_t refused_groups = 0;
  std::string resolved_config;
  std::vector<HeldLine> held_lines;
};

// One caller at a time. Calls block on the disk.
class CheckpointStore {
 public:
  // `directory` is made when needed. Keeps the newest `kept` (>= 2) checkpoints.
  CheckpointStore(FileSystem* files, std::string directory, const std::vector<ParameterInfo>& layout, int64_t kept)
      : files_(files), directory_(std::move(directory)), layout_(layout), kept_(kept) {}

  // The newest checkpoint that is whole. Damaged and incomplete ones are logged and passed over; left-over temporary
  // folders are removed. Absent: none. DATA_LOSS: there are some, and none is whole; starting anew would overwrite what
  // is left of the run. INVALID_ARGUMENT: a whole one holds another model than the layout.
  absl::StatusOr<std::optional<Checkpoint>> LoadNewest();

  // Returns after the checkpoint was read back and is in place. Whatever goes wrong, older checkpoints stay. DATA_LOSS:
  // what was read back is not what was written; others: errors of the file system.
  absl::Status Save(const Checkpoint& checkpoint);

  // Steps of the checkpoints that this object has loaded or saved and kept, ascending.
  const std::vector<uint64_t>& verified_steps() const { return verified_steps_; }
  std::string PathOf(uint64_t step) const;

 private:
  absl::StatusOr<Checkpoint> Load(const std::string& path) const;
  absl::Status Write(const Checkpoint& checkpoint, const std::string& path) const;
  // Removes what is beyond `kept_`; failures are logged only.
  void RemoveOld();

  FileSystem* const files_;
  const std::string directory_;
  const std::vector<ParameterInfo> layout_;
  const int64_t kept_;
  std::vector<uint64_t> verified_steps_;
};

// Whether the folder `path` holds exactly the files that were written. NOT_FOUND, DATA_LOSS: what is missing or
// damaged.
absl::Status VerifyCheckpoint(FileSystem* files, const std::string& path);

}  // namespace leeway

#endif  // LEEWAY_TRAINER_CHECKPOINT_CHECKPOINT_STORE_H_
