#ifndef LEEWAY_TRAINER_CHECKPOINT_WRITTEN_STATE_TEST_H_
#define LEEWAY_TRAINER_CHECKPOINT_WRITTEN_STATE_TEST_H_

// For tests: the states of learners as bytes to compare, and as checkpoints on disk.

#include <atomic>
#include <map>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "base/file_system.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "gtest/gtest.h"
#include "trainer/checkpoint/checkpoint_store.h"
#include "trainer/checkpoint/share_writer.h"

namespace leeway::internal {

// A rank's part of a state: bytes by array, and where they lie in the whole.
inline std::map<std::string, std::string> BytesOf(const StatePieces& pieces) {
  std::map<std::string, std::string> bytes;
  for (const PieceSet* set : {&pieces.weights, &pieces.optimizer}) {
    for (const NamedTensor& tensor : set->tensors) {
      const auto place = set->places.find(tensor.name);
      bytes[tensor.name + (place == set->places.end() ? "" : " " + place->second)].assign(
          reinterpret_cast<const char*>(tensor.array.data()), tensor.array.size_bytes());
    }
  }
  return bytes;
}

// A checkpoint that ranks write at the same time, each on its thread.
class RanksCheckpoint {
 public:
  RanksCheckpoint(const std::string& directory, const std::vector<ParameterInfo>& layout, uint64_t step)
      : store_(RealFileSystem(), directory, layout, /*kept=*/1000) {
    checkpoint_.step = step;
    folder_ = *store_.Begin(step, /*lineage=*/1);
  }

  // Every rank, once.
  absl::Status Write(int rank, StatePieces pieces) LEEWAY_EXCLUDES(mutex_) {
    CheckpointShare share{std::move(pieces), {}};
    if (rank == 0) share.texts = CheckpointTexts(checkpoint_);
    const std::atomic<bool> never = false;
    LEEWAY_ASSIGN_OR_RETURN(const WrittenFiles written, WriteShare(RealFileSystem(), folder_, std::move(share), never));
    MutexLock lock(&mutex_);
    files_.insert(written.begin(), written.end());
    return absl::OkStatus();
  }
  // Afterwards. The checkpoint's folder.
  std::string Complete() LEEWAY_EXCLUDES(mutex_) {
    MutexLock lock(&mutex_);
    const absl::Status status = store_.Complete(checkpoint_.step, folder_, files_);
    EXPECT_TRUE(status.ok()) << status;
    return store_.PathOf(checkpoint_.step);
  }
  WrittenFiles files() LEEWAY_EXCLUDES(mutex_) {
    MutexLock lock(&mutex_);
    return files_;
  }

 private:
  CheckpointStore store_;
  Checkpoint checkpoint_;
  std::string folder_;
  Mutex mutex_;
  WrittenFiles files_ LEEWAY_GUARDED_BY(mutex_);
};

}  // namespace leeway::internal

#endif  // LEEWAY_TRAINER_CHECKPOINT_WRITTEN_STATE_TEST_H_
