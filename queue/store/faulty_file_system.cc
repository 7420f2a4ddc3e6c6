#include "queue/store/faulty_file_system.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"

namespace leeway {

using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;

// A file that is being written. `unsynced` and the sizes are guarded by the file system's lock.
class FaultyWritableFile : public rocksdb::FSWritableFile {
 public:
  FaultyWritableFile(FaultyStoreFileSystem* disk, std::string path, std::unique_ptr<rocksdb::FSWritableFile> target,
                     uint64_t size_bytes)
      : disk_(disk), path_(std::move(path)), target_(std::move(target)), size_bytes_(size_bytes) {
    MutexLock lock(&disk_->mutex_);
    disk_->open_.insert(this);
  }
  ~FaultyWritableFile() override {
    MutexLock lock(&disk_->mutex_);
    disk_->open_.erase(this);
  }

  using rocksdb::FSWritableFile::Append;
  IOStatus Append(const rocksdb::Slice& data, const IOOptions& options, IODebugContext* debug) override {
    IOStatus status = disk_->Begin(FaultyStoreFileSystem::Operation::kAppend, path_);
    // A disk that fails in the middle has written the beginning.
    uint64_t allowed = status.ok() ? data.size() : data.size() / 2;
    {
      MutexLock lock(&disk_->mutex_);
      if (disk_->crashed_) return status;
    }
    const uint64_t fits = disk_->TakeSpace(FaultyStoreFileSystem::Operation::kAppend, path_, allowed);
    if (fits < allowed) status = IOStatus::NoSpace("no space left on the test's disk", path_);
    const rocksdb::Slice part(data.data(), fits);
    {
      MutexLock lock(&disk_->mutex_);
      disk_->appended_bytes_ += fits;
      size_bytes_ += fits;
      if (disk_->lose_unsynced_) {
        unsynced_.append(part.data(), part.size());
        return status;
      }
    }
    const IOStatus appended = target_->Append(part, options, debug);
    return status.ok() ? appended : status;
  }

  IOStatus Sync(const IOOptions& options, IODebugContext* debug) override {
    absl::Duration delay;
    std::function<void(absl::Duration)> sleep;
    {
      MutexLock lock(&disk_->mutex_);
      delay = disk_->sync_delay_;
      sleep = disk_->sleep_;
    }
    if (sleep != nullptr) sleep(delay);
    IOStatus status = disk_->Begin(FaultyStoreFileSystem::Operation::kSync, path_);
    if (!status.ok()) return status;
    std::string unsynced;
    {
      MutexLock lock(&disk_->mutex_);
      unsynced = std::exchange(unsynced_, std::string());
    }
    if (!unsynced.empty()) status = target_->Append(unsynced, options, debug);
    if (status.ok()) status = target_->Sync(options, debug);
    if (status.ok()) {
      MutexLock lock(&disk_->mutex_);
      ++disk_->syncs_;
    }
    return status;
  }

  IOStatus Truncate(uint64_t size, const IOOptions& options, IODebugContext* debug) override {
    const IOStatus status = disk_->Begin(FaultyStoreFileSystem::Operation::kOther, path_);
    if (!status.ok()) return status;
    {
      MutexLock lock(&disk_->mutex_);
      const uint64_t drop = size_bytes_ > size ? size_bytes_ - size : 0;
      const uint64_t dropped = std::min<uint64_t>(drop, unsynced_.size());
      unsynced_.resize(unsynced_.size() - dropped);
      size_bytes_ = size;
      FaultyStoreFileSystem::Space& space = disk_->space_[path_];
      disk_->taken_bytes_ += size - space.taken();
      space = {size, 0};
      if (!unsynced_.empty()) return IOStatus::OK();  // the file itself is shorter still
    }
    return target_->Truncate(size, options, debug);
  }

  IOStatus Allocate(uint64_t offset, uint64_t length, const IOOptions& options, IODebugContext* debug) override {
    const IOStatus status = disk_->Begin(FaultyStoreFileSystem::Operation::kReserve, path_);
    if (!status.ok()) return status;
    if (disk_->TakeSpace(FaultyStoreFileSystem::Operation::kReserve, path_, offset + length) < offset + length) {
      return IOStatus::NoSpace("no space left on the test's disk", path_);
    }
    return target_->Allocate(offset, length, options, debug);
  }
  // RocksDB's own reservations: only a matter of speed.
  void PrepareWrite(size_t, size_t, const IOOptions&, IODebugContext*) override {}

  IOStatus Close(const IOOptions& options, IODebugContext* debug) override { return target_->Close(options, debug); }
  IOStatus Flush(const IOOptions& options, IODebugContext* debug) override { return target_->Flush(options, debug); }
  IOStatus RangeSync(uint64_t, uint64_t, const IOOptions&, IODebugContext*) override { return IOStatus::OK(); }
  bool IsSyncThreadSafe() const override { return target_->IsSyncThreadSafe(); }
  size_t GetRequiredBufferAlignment() const override { return target_->GetRequiredBufferAlignment(); }
  size_t GetUniqueId(char* id, size_t max_size) const override { return target_->GetUniqueId(id, max_size); }
  IOStatus InvalidateCache(size_t offset, size_t length) override { return target_->InvalidateCache(offset, length); }
  uint64_t GetFileSize(const IOOptions&, IODebugContext*) override {
    MutexLock lock(&disk_->mutex_);
    return size_bytes_;
  }

  // The disk's lock is held.
  void Crash(FaultyStoreFileSystem::Torn torn) {
    std::string lost = std::exchange(unsynced_, std::string());
    if (torn == FaultyStoreFileSystem::Torn::kNothing || lost.empty()) return;
    const size_t half = (lost.size() + 1) / 2;
    if (torn == FaultyStoreFileSystem::Torn::kHalfAndZeros && absl::EndsWith(path_, ".log")) {
      std::fill(lost.begin() + half, lost.end(), '\0');
    } else {
      lost.resize(half);
    }
    target_->Append(lost, IOOptions(), nullptr).PermitUncheckedError();
    target_->Sync(IOOptions(), nullptr).PermitUncheckedError();
  }

 private:
  FaultyStoreFileSystem* const disk_;
  const std::string path_;
  const std::unique_ptr<rocksdb::FSWritableFile> target_;
  std::string unsynced_;
  uint64_t size_bytes_;
};

FaultyStoreFileSystem::FaultyStoreFileSystem(std::shared_ptr<rocksdb::FileSystem> target)
    : rocksdb::FileSystemWrapper(std::move(target)) {}

// ---- what a test asks for -------------------------------------------------------------------------------------------

void FaultyStoreFileSystem::LoseUnsynced() {
  MutexLock lock(&mutex_);
  lose_unsynced_ = true;
}

void FaultyStoreFileSystem::AddRule(Rule rule) {
  MutexLock lock(&mutex_);
  rules_.push_back(std::move(rule));
}

void FaultyStoreFileSystem::Heal() {
  MutexLock lock(&mutex_);
  rules_.clear();
  capacity_bytes_.reset();
}

void FaultyStoreFileSystem::SetCapacity(uint64_t bytes) {
  MutexLock lock(&mutex_);
  capacity_bytes_ = bytes;
}

void FaultyStoreFileSystem::DelaySyncs(absl::Duration delay, std::function<void(absl::Duration)> sleep) {
  MutexLock lock(&mutex_);
  sync_delay_ = delay;
  sleep_ = std::move(sleep);
}

void FaultyStoreFileSystem::CrashAt(uint64_t n, Torn torn) {
  MutexLock lock(&mutex_);
  crash_at_change_ = changes_ + n;
  torn_ = torn;
}

void FaultyStoreFileSystem::Crash(Torn torn) {
  MutexLock lock(&mutex_);
  torn_ = torn;
  CrashNow();
}

void FaultyStoreFileSystem::CrashNow() {
  if (crashed_) return;
  crashed_ = true;
  for (FaultyWritableFile* file : open_) file->Crash(torn_);
}

bool FaultyStoreFileSystem::crashed() const {
  MutexLock lock(&mutex_);
  return crashed_;
}

uint64_t FaultyStoreFileSystem::changes() const {
  MutexLock lock(&mutex_);
  return changes_;
}

uint64_t FaultyStoreFileSystem::faults() const {
  MutexLock lock(&mutex_);
  return faults_;
}

uint64_t FaultyStoreFileSystem::taken_bytes() const {
  MutexLock lock(&mutex_);
  return taken_bytes_;
}

uint64_t FaultyStoreFileSystem::appended_bytes() const {
  MutexLock lock(&mutex_);
  return appended_bytes_;
}

uint64_t FaultyStoreFileSystem::syncs() const {
  MutexLock lock(&mutex_);
  return syncs_;
}

// ---- what the disk does ---------------------------------------------------------------------------------------------

IOStatus FaultyStoreFileSystem::Begin(Operation operation, const std::string& path) {
  MutexLock lock(&mutex_);
  ++changes_;
  if (crash_at_change_.has_value() && changes_ >= *crash_at_change_) CrashNow();
  if (crashed_) return IOStatus::IOError("the test's machine has crashed", path);
  for (Rule& rule : rules_) {
    const bool applies =
        rule.operation.has_value()
            ? *rule.operation == operation
            : operation == Operation::kReserve || operation == Operation::kAppend || operation == Operation::kSync;
    if (!applies || rule.times == 0 || !absl::StrContains(path, rule.path_contains)) continue;
    if (!rule.while_file_exists.empty() && access(rule.while_file_exists.c_str(), F_OK) != 0) continue;
    if (rule.times > 0) --rule.times;
    ++faults_;
    return rule.fault == Fault::kNoSpace ? IOStatus::NoSpace("no space left, a test says", path)
                                         : IOStatus::IOError("input/output error, a test says", path);
  }
  return IOStatus::OK();
}

uint64_t FaultyStoreFileSystem::TakeSpace(Operation operation, const std::string& path, uint64_t bytes) {
  MutexLock lock(&mutex_);
  Space& space = space_[path];
  Space wanted = space;
  if (operation == Operation::kReserve) {
    wanted.reserved_bytes = std::max(wanted.reserved_bytes, bytes);
  } else {
    wanted.size_bytes += bytes;
  }
  uint64_t missing = 0;
  if (capacity_bytes_.has_value()) {
    const uint64_t after = taken_bytes_ - space.taken() + wanted.taken();
    // What was taken before stays, also when it is more than a capacity set later.
    if (after > *capacity_bytes_) missing = std::min(after - *capacity_bytes_, wanted.taken() - space.taken());
  }
  if (operation == Operation::kReserve && missing > 0) return 0;
  if (operation == Operation::kAppend) wanted.size_bytes -= std::min(missing, bytes);
  taken_bytes_ += wanted.taken() - space.taken();
  space = wanted;
  return bytes - std::min(missing, bytes);
}

std::unique_ptr<rocksdb::FSWritableFile> FaultyStoreFileSystem::Wrap(const std::string& path,
                                                                     std::unique_ptr<rocksdb::FSWritableFile> file,
                                                                     uint64_t size_bytes) {
  return std::make_unique<FaultyWritableFile>(this, path, std::move(file), size_bytes);
}

IOStatus FaultyStoreFileSystem::NewWritableFile(const std::string& path, const rocksdb::FileOptions& options,
                                                std::unique_ptr<rocksdb::FSWritableFile>* file, IODebugContext* debug) {
  IOStatus status = Begin(Operation::kCreate, path);
  if (status.ok()) status = target_->NewWritableFile(path, options, file, debug);
  if (!status.ok()) return status;
  {
    MutexLock lock(&mutex_);
    taken_bytes_ -= space_[path].taken();  // an old file of that name
    space_[path] = Space();
  }
  *file = Wrap(path, std::move(*file), 0);
  return status;
}

IOStatus FaultyStoreFileSystem::ReopenWritableFile(const std::string& path, const rocksdb::FileOptions& options,
                                                   std::unique_ptr<rocksdb::FSWritableFile>* file,
                                                   IODebugContext* debug) {
  IOStatus status = Begin(Operation::kCreate, path);
  if (status.ok()) status = target_->ReopenWritableFile(path, options, file, debug);
  if (!status.ok()) return status;
  const uint64_t size_bytes = (*file)->GetFileSize(IOOptions(), debug);
  *file = Wrap(path, std::move(*file), size_bytes);
  return status;
}

IOStatus FaultyStoreFileSystem::ReuseWritableFile(const std::string& path, const std::string& old_path,
                                                  const rocksdb::FileOptions& options,
                                                  std::unique_ptr<rocksdb::FSWritableFile>* file,
                                                  IODebugContext* debug) {
  const IOStatus status = RenameFile(old_path, path, IOOptions(), debug);
  return status.ok() ? NewWritableFile(path, options, file, debug) : status;
}

IOStatus FaultyStoreFileSystem::DeleteFile(const std::string& path, const IOOptions& options, IODebugContext* debug) {
  IOStatus status = Begin(Operation::kOther, path);
  if (status.ok()) status = target_->DeleteFile(path, options, debug);
  if (!status.ok()) return status;
  MutexLock lock(&mutex_);
  const auto found = space_.find(path);
  if (found == space_.end()) return status;
  taken_bytes_ -= found->second.taken();
  space_.erase(found);
  return status;
}

IOStatus FaultyStoreFileSystem::RenameFile(const std::string& from, const std::string& to, const IOOptions& options,
                                           IODebugContext* debug) {
  IOStatus status = Begin(Operation::kOther, to);
  if (status.ok()) status = target_->RenameFile(from, to, options, debug);
  if (!status.ok()) return status;
  MutexLock lock(&mutex_);
  if (const auto replaced = space_.find(to); replaced != space_.end()) taken_bytes_ -= replaced->second.taken();
  space_[to] = space_[from];
  space_.erase(from);
  return status;
}

IOStatus FaultyStoreFileSystem::Truncate(const std::string& path, size_t size, const IOOptions& options,
                                         IODebugContext* debug) {
  const IOStatus status = Begin(Operation::kOther, path);
  return status.ok() ? target_->Truncate(path, size, options, debug) : status;
}

// ---- by the environment ---------------------------------------------------------------------------------------------

absl::StatusOr<std::shared_ptr<FaultyStoreFileSystem>> ParseStoreFaults(absl::string_view text) {
  auto disk = std::make_shared<FaultyStoreFileSystem>();
  for (const absl::string_view part : absl::StrSplit(text, ',', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> name_and_value =
        absl::StrSplit(part, absl::MaxSplits('=', 1));
    const auto [name, value] = name_and_value;
    uint64_t number = 0;
    if (part == "lose_unsynced") {
      disk->LoseUnsynced();
    } else if ((name == "enospc_file" || name == "eio_file") && !value.empty()) {
      FaultyStoreFileSystem::Rule rule;
      rule.fault =
          name == "eio_file" ? FaultyStoreFileSystem::Fault::kInputOutput : FaultyStoreFileSystem::Fault::kNoSpace;
      rule.while_file_exists = std::string(value);
      disk->AddRule(std::move(rule));
    } else if (name == "sync_delay_ms" && absl::SimpleAtoi(value, &number)) {
      disk->DelaySyncs(absl::Milliseconds(number), [](absl::Duration delay) { absl::SleepFor(delay); });
    } else if (name == "capacity_mb" && absl::SimpleAtoi(value, &number)) {
      disk->SetCapacity(number << 20);
    } else {
      return absl::InvalidArgumentError(absl::StrCat("store fault \"", part,
                                                     "\": expected lose_unsynced, enospc_file=PATH, eio_file=PATH, ",
                                                     "sync_delay_ms=N or capacity_mb=N"));
    }
  }
  return disk;
}

absl::StatusOr<std::shared_ptr<rocksdb::FileSystem>> StoreFileSystemOfEnvironment() {
#ifdef LEEWAY_FAILPOINTS
  if (const char* text = std::getenv("LEEWAY_STORE_FAULTS")) {
    absl::StatusOr<std::shared_ptr<FaultyStoreFileSystem>> disk = ParseStoreFaults(text);
    if (!disk.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("LEEWAY_STORE_FAULTS: ", disk.status().message()));
    }
    return std::shared_ptr<rocksdb::FileSystem>(*std::move(disk));
  }
#endif
  return rocksdb::FileSystem::Default();
}

}  // namespace leeway
