#ifndef LEEWAY_TRAINER_CHECKPOINT_CHECKPOINT_H_
#define LEEWAY_TRAINER_CHECKPOINT_CHECKPOINT_H_

// What a checkpoint holds beside the training state (piece.h): what the run has done so far, in three files.
//
//   state.json       equal byte for byte whenever the same data were trained (DESIGN 3.6), like the training state
//   ledger.bin       the queue's ledger at the commit of version N+1
//   run_state.json   lineage, time, configuration, metrics lines held back

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/file_system.h"
#include "trainer/checkpoint/ticket_ranges.h"

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
  int64_t optimizer_updates = 0;  // made so far
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

// The names of the three files, and their contents by name.
std::vector<std::string> CheckpointTextNames();
std::map<std::string, std::string> CheckpointTexts(const Checkpoint& checkpoint);
// Out of the folder. NOT_FOUND, DATA_LOSS: a file is missing or cannot be read.
absl::StatusOr<Checkpoint> ReadCheckpoint(FileSystem* files, const std::string& folder);

}  // namespace leeway

#endif  // LEEWAY_TRAINER_CHECKPOINT_CHECKPOINT_H_
