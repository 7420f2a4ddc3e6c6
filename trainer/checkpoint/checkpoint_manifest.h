#ifndef LEEWAY_TRAINER_CHECKPOINT_CHECKPOINT_MANIFEST_H_
#define LEEWAY_TRAINER_CHECKPOINT_CHECKPOINT_MANIFEST_H_

// manifest.json of a checkpoint: what each of its other files is, by length and digest. Calls block on the disk.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/file_system.h"
#include "model/shape.h"
#include "trainer/pieces/piece_reader.h"

namespace leeway {

struct WrittenFile {
  uint64_t bytes = 0;
  std::string digest;  // base/hash.h
  friend bool operator==(const WrittenFile&, const WrittenFile&) = default;
};

// By name in the folder.
using WrittenFiles = std::map<std::string, WrittenFile>;

// As it is on the disk, read piece by piece.
absl::StatusOr<WrittenFile> DescribeFile(FileSystem* files, const std::string& path);

absl::Status WriteManifest(FileSystem* files, const std::string& folder, uint64_t step, const WrittenFiles& written);
// NOT_FOUND, DATA_LOSS: it is missing, cannot be read, or does not name all that a checkpoint has.
absl::StatusOr<WrittenFiles> ReadManifest(FileSystem* files, const std::string& folder);

// Whether the folder holds exactly the bytes that were written. NOT_FOUND, DATA_LOSS: what is missing or damaged.
absl::Status VerifyCheckpoint(FileSystem* files, const std::string& folder);

// The training state in the files that the manifest names; only their headers are looked at. Errors are PieceReader's.
absl::StatusOr<PieceReader> OpenCheckpoint(FileSystem* files, const std::string& folder,
                                           const std::vector<ParameterInfo>& layout);

}  // namespace leeway

#endif  // LEEWAY_TRAINER_CHECKPOINT_CHECKPOINT_MANIFEST_H_
