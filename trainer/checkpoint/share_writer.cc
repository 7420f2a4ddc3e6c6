#include "trainer/checkpoint/share_writer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/cpu_time.h"
#include "base/failpoint.h"
#include "base/hash.h"
#include "base/status_macros.h"

namespace leeway {
namespace {

// What is on the disk, if its digest is the one that is meant.
absl::StatusOr<WrittenFile> ReadBack(FileSystem* files, const std::string& path, const std::string& digest) {
  LEEWAY_ASSIGN_OR_RETURN(WrittenFile file, DescribeFile(files, path));
  if (file.digest == digest) return file;
  return absl::DataLossError(absl::StrCat(path, ": read back other bytes than were written"));
}

absl::StatusOr<WrittenFile> WritePieces(FileSystem* files, const std::string& path, const PieceSet& pieces) {
  Digest128Stream digest;
  LEEWAY_RETURN_IF_ERROR(WriteSafetensors(files, path, pieces.tensors, pieces.places, &digest));
  return ReadBack(files, path, digest.Finish());
}

}  // namespace

absl::StatusOr<WrittenFiles> WriteShare(FileSystem* files, const std::string& folder, CheckpointShare share,
                                        const std::atomic<bool>& is_cancelled) {
  WrittenFiles written;
  if (share.pieces.is_writer()) {
    for (const ShardKind kind : kShardKinds) {
      if (is_cancelled) return absl::CancelledError("the process ends");
      PieceSet& pieces = kind == ShardKind::kWeights ? share.pieces.weights : share.pieces.optimizer;
      const std::string name = ShardFileName(kind, share.pieces.writer, share.pieces.writers);
      LEEWAY_ASSIGN_OR_RETURN(written[name], WritePieces(files, JoinPath(folder, name), pieces));
      // Its memory is of use elsewhere.
      pieces = PieceSet();
      LEEWAY_FAILPOINT_STATUS("trainer_in_share");
    }
  }
  for (const auto& [name, text] : share.texts) {
    const std::string path = JoinPath(folder, name);
    LEEWAY_RETURN_IF_ERROR(files->WriteFileAtomically(path, text));
    LEEWAY_ASSIGN_OR_RETURN(written[name], ReadBack(files, path, Digest128(text.data(), text.size())));
  }
  LEEWAY_FAILPOINT_STATUS("trainer_after_share");
  return written;
}

ShareWriter::~ShareWriter() {
  is_cancelled_ = true;
  if (thread_.joinable()) thread_.join();
}

void ShareWriter::Begin(const std::string& folder, CheckpointShare share) {
  {
    MutexLock lock(&mutex_);
    LEEWAY_CHECK(!outcome_.is_pending) << "two checkpoints at a time";
    outcome_ = ShareOutcome{.is_pending = true};
  }
  if (thread_.joinable()) thread_.join();
  thread_ = std::thread([this, folder, share = std::move(share)]() mutable {
    SetThreadClass("disk");
    const MonotonicTime begin = RealClock()->Now();
    absl::StatusOr<WrittenFiles> written = WriteShare(files_, folder, std::move(share), is_cancelled_);
    MutexLock lock(&mutex_);
    outcome_.is_pending = false;
    outcome_.status = written.status();
    if (written.ok()) outcome_.files = *std::move(written);
    outcome_.seconds = absl::ToDoubleSeconds(RealClock()->Now() - begin);
    changed_.NotifyAll();
  });
}

ShareOutcome ShareWriter::Outcome(absl::Duration wait) {
  const Deadline deadline = Deadline::After(wait);
  MutexLock lock(&mutex_);
  while (outcome_.is_pending && !deadline.HasPassed()) changed_.WaitUntil(&mutex_, deadline);
  return outcome_;
}

}  // namespace leeway
