#include "trainer/checkpoint/share_writer.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/cpu_time.h"
#include "base/failpoint.h"
#include "base/hash.h"
#include "base/status_macros.h"

namespace leeway {
namespace {

// Refuses to go on once it is told so.
class CancellableFiles final : public FileSystem {
 public:
  CancellableFiles(FileSystem* files, const std::atomic<bool>& is_cancelled)
      : files_(files), is_cancelled_(is_cancelled) {}

  absl::StatusOr<std::string> ReadFile(const std::string& path) override {
    LEEWAY_RETURN_IF_ERROR(Check());
    return files_->ReadFile(path);
  }
  absl::StatusOr<std::string> ReadFileRange(const std::string& path, uint64_t offset, size_t max_bytes) override {
    LEEWAY_RETURN_IF_ERROR(Check());
    return files_->ReadFileRange(path, offset, max_bytes);
  }
  absl::Status WriteFileAtomically(const std::string& path, absl::string_view content) override {
    LEEWAY_RETURN_IF_ERROR(Check());
    return files_->WriteFileAtomically(path, content);
  }
  absl::Status AppendToFile(const std::string& path, absl::string_view content) override {
    LEEWAY_RETURN_IF_ERROR(Check());
    return files_->AppendToFile(path, content);
  }
  absl::Status SyncFile(const std::string& path) override {
    LEEWAY_RETURN_IF_ERROR(Check());
    return files_->SyncFile(path);
  }
  absl::Status CreateDirectory(const std::string& path) override { return files_->CreateDirectory(path); }
  absl::StatusOr<std::vector<std::string>> ListDirectory(const std::string& path) override {
    return files_->ListDirectory(path);
  }
  absl::Status Rename(const std::string& from, const std::string& to) override { return files_->Rename(from, to); }
  absl::Status RemoveAll(const std::string& path) override { return files_->RemoveAll(path); }
  bool Exists(const std::string& path) override { return files_->Exists(path); }
  absl::StatusOr<uint64_t> FileSize(const std::string& path) override { return files_->FileSize(path); }

 private:
  absl::Status Check() const { return is_cancelled_ ? absl::CancelledError("the process ends") : absl::OkStatus(); }

  FileSystem* const files_;
  const std::atomic<bool>& is_cancelled_;
};

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

absl::StatusOr<WrittenFiles> WriteShare(FileSystem* disk, const std::string& folder, CheckpointShare share,
                                        const std::atomic<bool>& is_cancelled) {
  CancellableFiles cancellable(disk, is_cancelled);
  FileSystem* const files = &cancellable;
  WrittenFiles written;
  if (share.pieces.is_writer()) {
    for (const ShardKind kind : kShardKinds) {
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
