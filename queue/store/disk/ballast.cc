#include "queue/store/disk/ballast.h"

#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "queue/store/disk/io_status.h"

namespace leeway {

absl::Status Ballast::Take() {
  if (is_held()) return absl::OkStatus();
  const rocksdb::IOOptions io;
  uint64_t existing_bytes = 0;
  if (file_system_->GetFileSize(path_, io, &existing_bytes, nullptr).ok() && existing_bytes == size_bytes_) {
    is_held_ = true;  // an earlier process made it
    return absl::OkStatus();
  }
  std::unique_ptr<rocksdb::FSWritableFile> file;
  rocksdb::FileOptions options;
  options.use_mmap_writes = false;
  LEEWAY_RETURN_IF_ERROR(
      FromRocksDb(file_system_->NewWritableFile(path_, options, &file, nullptr), absl::StrCat("create ", path_)));
  // Written, not only reserved: so it works on every file system, and its size tells everyone what it is.
  const std::string zeros(std::min<uint64_t>(size_bytes_, 1 << 20), '\0');
  rocksdb::IOStatus status;
  for (uint64_t done = 0; status.ok() && done < size_bytes_; done += zeros.size()) {
    status =
        file->Append(rocksdb::Slice(zeros.data(), std::min<uint64_t>(zeros.size(), size_bytes_ - done)), io, nullptr);
  }
  if (status.ok()) status = file->Sync(io, nullptr);
  if (status.ok()) status = file->Close(io, nullptr);
  file.reset();
  if (!status.ok()) {
    file_system_->DeleteFile(path_, io, nullptr).PermitUncheckedError();
    return FromRocksDb(status, absl::StrCat("reserve ", size_bytes_, " bytes in ", path_));
  }
  is_held_ = true;
  return absl::OkStatus();
}

bool Ballast::exists() const { return file_system_->FileExists(path_, rocksdb::IOOptions(), nullptr).ok(); }

bool Ballast::GiveUp() {
  is_held_ = false;
  return file_system_->DeleteFile(path_, rocksdb::IOOptions(), nullptr).ok();
}

}  // namespace leeway
