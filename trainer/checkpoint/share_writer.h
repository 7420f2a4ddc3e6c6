#ifndef LEEWAY_TRAINER_CHECKPOINT_SHARE_WRITER_H_
#define LEEWAY_TRAINER_CHECKPOINT_SHARE_WRITER_H_

// How a rank writes its share of a checkpoint while training goes on.

#include <atomic>
#include <map>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/file_system.h"
#include "base/mutex.h"
#include "trainer/checkpoint/checkpoint_manifest.h"
#include "trainer/pieces/state_pieces.h"

namespace leeway {

// What one rank writes.
struct CheckpointShare {
  StatePieces pieces;
  std::map<std::string, std::string> texts;  // other files, by name
};

// What has become of a share.
struct ShareOutcome {
  bool is_pending = false;
  absl::Status status;
  WrittenFiles files;  // if OK
  double seconds = 0;  // that writing took
};

// Writes the files, synced, and reads them back. Blocks on the disk. Gives up once `is_cancelled`, after
// the few megabytes that are on their way (CANCELLED).
// DATA_LOSS: what was read back is not what was to be written; others: errors of the file system, path inside.
absl::StatusOr<WrittenFiles> WriteShare(FileSystem* disk, const std::string& folder, CheckpointShare share,
                                        const std::atomic<bool>& is_cancelled);

// One thread, and only while a share is being written. One caller at a time.
class ShareWriter {
 public:
  explicit ShareWriter(FileSystem* files) : files_(files) {}
  // Gives up what is not written yet.
  ~ShareWriter();
  ShareWriter(const ShareWriter&) = delete;
  ShareWriter& operator=(const ShareWriter&) = delete;

  // Returns at once. REQUIRES: no share is pending.
  void Begin(const std::string& folder, CheckpointShare share) LEEWAY_EXCLUDES(mutex_);
  // Of the share begun last. Waits for its end up to `wait`.
  ShareOutcome Outcome(absl::Duration wait) LEEWAY_EXCLUDES(mutex_);

 private:
  FileSystem* const files_;
  std::atomic<bool> is_cancelled_{false};
  std::thread thread_;
  Mutex mutex_;
  CondVar changed_;
  ShareOutcome outcome_ LEEWAY_GUARDED_BY(mutex_);
};

}  // namespace leeway

#endif  // LEEWAY_TRAINER_CHECKPOINT_SHARE_WRITER_H_
