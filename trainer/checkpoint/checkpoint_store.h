#ifndef LEEWAY_TRAINER_CHECKPOINT_CHECKPOINT_STORE_H_
#define LEEWAY_TRAINER_CHECKPOINT_CHECKPOINT_STORE_H_

// Checkpoints on disk: checkpoints/step-N/ (complete or not there at all) and checkpoints/latest (the name of the
// newest).
//
//   weights….safetensors, optimizer….safetensors   the training state, in its ranks' files (piece.h)
//
//   state.json, ledger.bin, run_state.json         what the run has done so far (checkpoint.h)
//
//   manifest.json                                  length and digest of each of these files
//
// Weights, optimizer and state.json are equal byte for byte whenever the same data were trained on the same layout of
// ranks (DESIGN 3.6). Ranks write into .tmp-step-N-lineage-L, which is renamed when all of them have read back what
// they wrote.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/file_system.h"
#include "model/shape.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/checkpoint_manifest.h"

namespace leeway {

// One caller at a time. Calls block on the disk.
class CheckpointStore {
 public:
  // `directory` is made when needed. Keeps the newest `kept` (>= 2) checkpoints.
  CheckpointStore(FileSystem* files, std::string directory, const std::vector<ParameterInfo>& layout, int64_t kept)
      : files_(files), directory_(std::move(directory)), layout_(layout), kept_(kept) {}

  // The newest checkpoint that is whole; its training state is in PathOf its step (PieceReader). Damaged and incomplete
  // ones are logged and passed over; left-over temporary folders are removed. Absent: none. DATA_LOSS: there are some,
  // and none is whole; starting anew would overwrite what is left of the run. INVALID_ARGUMENT: a whole one holds
  // another model than the layout.
  absl::StatusOr<std::optional<Checkpoint>> LoadNewest();

  // Makes an empty folder for the ranks to write into. Whatever goes wrong in this and the next call, older checkpoints
  // stay. Errors are the file system's.
  // `lineage` keeps it apart from one that a rank of an earlier life still writes into.
  absl::StatusOr<std::string> Begin(uint64_t step, uint64_t lineage);
  // That folder holds `written`, read back: it becomes the newest checkpoint. DATA_LOSS: something is missing; others:
  // errors of the file system.
  absl::Status Complete(uint64_t step, const std::string& folder, const WrittenFiles& written);
  // Removes the folder; failures are logged only.
  void Abandon(const std::string& folder);

  // Steps of the checkpoints that this object has loaded or completed and kept, ascending.
  const std::vector<uint64_t>& verified_steps() const { return verified_steps_; }
  std::string PathOf(uint64_t step) const;

 private:
  absl::StatusOr<Checkpoint> Load(const std::string& path) const;
  std::string TemporaryOf(uint64_t step, uint64_t lineage) const;
  // Removes what is beyond `kept_`; failures are logged only.
  void RemoveOld();

  FileSystem* const files_;
  const std::string directory_;
  const std::vector<ParameterInfo> layout_;
  const int64_t kept_;
  std::vector<uint64_t> verified_steps_;
};

}  // namespace leeway

#endif  // LEEWAY_TRAINER_CHECKPOINT_CHECKPOINT_STORE_H_
