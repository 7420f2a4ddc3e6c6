#ifndef LEEWAY_BASE_FAKE_FILE_SYSTEM_H_
#define LEEWAY_BASE_FAKE_FILE_SYSTEM_H_

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/file_system.h"
#include "base/mutex.h"

namespace leeway {

// The machine's file system with faults: each write asks `fault(operation, path)` first and fails with its status if it
// is not OK. Operations: "write_atomically", "append", "sync", "create_directory", "rename", "remove". Threads ask one
// at a time.
class FaultyFileSystem : public FileSystem {
 public:
  using Fault = std::function<absl::Status(absl::string_view operation, const std::string& path)>;

  explicit FaultyFileSystem(Fault fault, FileSystem* base = RealFileSystem()) : fault_(std::move(fault)), base_(base) {}

  absl::StatusOr<std::string> ReadFile(const std::string& path) override { return base_->ReadFile(path); }
  absl::StatusOr<std::string> ReadFileRange(const std::string& path, uint64_t offset, size_t max_bytes) override {
    return base_->ReadFileRange(path, offset, max_bytes);
  }
  absl::Status WriteFileAtomically(const std::string& path, absl::string_view content) override {
    const absl::Status status = Ask("write_atomically", path);
    return status.ok() ? base_->WriteFileAtomically(path, content) : status;
  }
  absl::Status AppendToFile(const std::string& path, absl::string_view content) override {
    const absl::Status status = Ask("append", path);
    return status.ok() ? base_->AppendToFile(path, content) : status;
  }
  absl::Status SyncFile(const std::string& path) override {
    const absl::Status status = Ask("sync", path);
    return status.ok() ? base_->SyncFile(path) : status;
  }
  absl::Status CreateDirectory(const std::string& path) override {
    const absl::Status status = Ask("create_directory", path);
    return status.ok() ? base_->CreateDirectory(path) : status;
  }
  absl::StatusOr<std::vector<std::string>> ListDirectory(const std::string& path) override {
    return base_->ListDirectory(path);
  }
  absl::Status Rename(const std::string& from, const std::string& to) override {
    const absl::Status status = Ask("rename", to);
    return status.ok() ? base_->Rename(from, to) : status;
  }
  absl::Status RemoveAll(const std::string& path) override {
    const absl::Status status = Ask("remove", path);
    return status.ok() ? base_->RemoveAll(path) : status;
  }
  bool Exists(const std::string& path) override { return base_->Exists(path); }
  absl::StatusOr<uint64_t> FileSize(const std::string& path) override { return base_->FileSize(path); }

 private:
  absl::Status Ask(absl::string_view operation, const std::string& path) LEEWAY_EXCLUDES(mutex_) {
    MutexLock lock(&mutex_);
    return fault_(operation, path);
  }

  Mutex mutex_;
  Fault fault_ LEEWAY_GUARDED_BY(mutex_);
  FileSystem* base_;
};

}  // namespace leeway

#endif  // LEEWAY_BASE_FAKE_FILE_SYSTEM_H_
