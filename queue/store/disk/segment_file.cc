#include "queue/store/disk/segment_file.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "base/hash.h"
#include "base/status_macros.h"
#include "queue/store/disk/io_status.h"

namespace leeway {
namespace {

constexpr absl::string_view kSuffix = ".payloads";
constexpr size_t kDigits = 12;

rocksdb::FileOptions PlainFile() {
  rocksdb::FileOptions options;
  options.use_mmap_reads = false;
  options.use_mmap_writes = false;
  options.allow_fallocate = true;
  options.fallocate_with_keep_size = true;
  return options;
}

absl::Status SyncDirectory(rocksdb::FileSystem* file_system, const std::string& directory) {
  std::unique_ptr<rocksdb::FSDirectory> opened;
  LEEWAY_RETURN_IF_ERROR(FromRocksDb(file_system->NewDirectory(directory, rocksdb::IOOptions(), &opened, nullptr),
                                     absl::StrCat("open ", directory)));
  return FromRocksDb(opened->Fsync(rocksdb::IOOptions(), nullptr), absl::StrCat("sync ", directory));
}

// Some file systems cannot reserve space; there a full disk is met by appending.
bool CannotReserve(const rocksdb::IOStatus& status) {
  return status.IsNotSupported() || absl::StrContains(status.ToString(), std::strerror(EOPNOTSUPP));
}

}  // namespace

std::string SegmentPath(const std::string& directory, uint64_t number) {
  return absl::StrFormat("%s/%0*d%s", directory, static_cast<int>(kDigits), number, kSuffix);
}

uint64_t SegmentNumberOfName(absl::string_view name) {
  uint64_t number = 0;
  if (!absl::ConsumeSuffix(&name, kSuffix) || name.size() != kDigits || !absl::SimpleAtoi(name, &number)) return 0;
  return number;
}

SegmentWriter::SegmentWriter(uint64_t number, uint64_t capacity_bytes, std::string path,
                             std::unique_ptr<rocksdb::FSWritableFile> file)
    : number_(number), capacity_bytes_(capacity_bytes), path_(std::move(path)), file_(std::move(file)) {}

SegmentWriter::~SegmentWriter() { Seal(); }

absl::StatusOr<std::unique_ptr<SegmentWriter>> SegmentWriter::Create(rocksdb::FileSystem* file_system,
                                                                     const std::string& directory, uint64_t number,
                                                                     uint64_t capacity_bytes) {
  const std::string path = SegmentPath(directory, number);
  const rocksdb::IOOptions io;
  std::unique_ptr<rocksdb::FSWritableFile> file;
  LEEWAY_RETURN_IF_ERROR(
      FromRocksDb(file_system->NewWritableFile(path, PlainFile(), &file, nullptr), absl::StrCat("create ", path)));
  const rocksdb::IOStatus reserved = file->Allocate(0, capacity_bytes, io, nullptr);
  absl::Status status = CannotReserve(reserved)
                            ? absl::OkStatus()
                            : FromRocksDb(reserved, absl::StrCat("reserve ", capacity_bytes, " bytes for ", path));
  if (status.ok()) status = SyncDirectory(file_system, directory);
  if (!status.ok()) {
    file.reset();
    file_system->DeleteFile(path, io, nullptr).PermitUncheckedError();
    return status;
  }
  return std::unique_ptr<SegmentWriter>(new SegmentWriter(number, capacity_bytes, path, std::move(file)));
}

absl::Status SegmentWriter::Append(absl::string_view bytes) {
  LEEWAY_RETURN_IF_ERROR(
      FromRocksDb(file_->Append(rocksdb::Slice(bytes.data(), bytes.size()), rocksdb::IOOptions(), nullptr),
                  absl::StrCat("append to ", path_)));
  size_bytes_ += bytes.size();
  return absl::OkStatus();
}

absl::Status SegmentWriter::Sync() {
  LEEWAY_RETURN_IF_ERROR(FromRocksDb(file_->Sync(rocksdb::IOOptions(), nullptr), absl::StrCat("sync ", path_)));
  synced_bytes_ = size_bytes_;
  return absl::OkStatus();
}

void SegmentWriter::Seal() {
  if (file_ == nullptr) return;
  file_->Truncate(synced_bytes_, rocksdb::IOOptions(), nullptr).PermitUncheckedError();
  file_->Close(rocksdb::IOOptions(), nullptr).PermitUncheckedError();
  file_.reset();
}

absl::StatusOr<Payload> SegmentReader::Read(const PayloadKey& key, const PayloadPlace& place) const {
  auto bytes = std::make_shared<std::string>(place.size_bytes, '\0');
  rocksdb::Slice read;
  LEEWAY_RETURN_IF_ERROR(
      FromRocksDb(file_->Read(place.offset, place.size_bytes, rocksdb::IOOptions(), &read, bytes->data(), nullptr),
                  absl::StrCat("read ", DescribePayload(key), " from ", path_)));
  if (read.size() != place.size_bytes || Hash64(read.data(), read.size()) != place.hash) {
    return absl::DataLossError(absl::StrCat(DescribePayload(key), ": its ", place.size_bytes, " bytes at offset ",
                                            place.offset, " of ", path_,
                                            read.size() != place.size_bytes ? " are cut off" : " are damaged"));
  }
  if (read.data() != bytes->data()) bytes->assign(read.data(), read.size());
  return bytes;
}

absl::StatusOr<std::shared_ptr<const SegmentReader>> SegmentReaders::Open(uint64_t number) {
  MutexLock lock(&mutex_);
  std::weak_ptr<const SegmentReader>& slot = open_[number];
  if (std::shared_ptr<const SegmentReader> reader = slot.lock()) return reader;
  const std::string path = SegmentPath(directory_, number);
  std::unique_ptr<rocksdb::FSRandomAccessFile> file;
  LEEWAY_RETURN_IF_ERROR(
      FromRocksDb(file_system_->NewRandomAccessFile(path, PlainFile(), &file, nullptr), absl::StrCat("open ", path)));
  auto reader = std::make_shared<const SegmentReader>(path, std::move(file));
  slot = reader;
  return reader;
}

void SegmentReaders::Forget(uint64_t number) {
  MutexLock lock(&mutex_);
  open_.erase(number);
}

}  // namespace leeway
