#include "formats/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "formats/safetensors_header.h"

namespace leeway {
namespace {

// Bytes of the header's length field.
constexpr uint64_t kLengthBytes = 8;

absl::Status ErrnoStatus(absl::string_view what, const std::string& path) {
  const std::string message = absl::StrCat(path, ": can not ", what, ": ", strerror(errno));
  if (errno == ENOENT || errno == ENOTDIR) return absl::NotFoundError(message);
  if (errno == EACCES || errno == EPERM) return absl::PermissionDeniedError(message);
  return absl::InternalError(message);
}

struct FileDescriptor {
  int fd = -1;
  ~FileDescriptor() {
    if (fd >= 0) close(fd);
  }
};

// Up to `size` bytes from `offset`; fewer only at the end of the file.
absl::StatusOr<std::string> ReadAt(int fd, uint64_t offset, uint64_t size, const std::string& path) {
  std::string bytes(size, '\0');
  size_t filled = 0;
  while (filled < size) {
    const ssize_t count = pread(fd, bytes.data() + filled, size - filled, static_cast<off_t>(offset + filled));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return ErrnoStatus("read", path);
    if (count == 0) break;
    filled += static_cast<size_t>(count);
  }
  bytes.resize(filled);
  return bytes;
}

// What a file that is no safetensors file is, judged by its first bytes; empty = unknown. These are the files that
// people really have.
std::string KnownImpostor(absl::string_view beginning) {
  if (absl::StartsWith(beginning, "version https://git-lfs")) {
    return "this is a git-LFS pointer, not the weights: fetch them with `git lfs pull`";
  }
  const absl::string_view text = absl::StripLeadingAsciiWhitespace(beginning);
  if (absl::StartsWithIgnoreCase(text, "<!doctype") || absl::StartsWithIgnoreCase(text, "<html")) {
    return "this is an HTML page, not the weights: the download answered with a web page (a login or an error); "
           "download again";
  }
  if (absl::StartsWith(beginning, "GGUF")) return "this is a GGUF file, not a safetensors file";
  if (absl::StartsWith(beginning, "PK\x03\x04"))
    return "this is a zip archive (perhaps a PyTorch checkpoint), not a safetensors file";
  return "";
}

// Where the header lies, from the length field; the tests of impostors come first, since their text makes absurd
// lengths.
absl::StatusOr<uint64_t> HeaderLength(absl::string_view beginning, uint64_t file_bytes) {
  const std::string impostor = KnownImpostor(beginning);
  if (!impostor.empty()) return absl::InvalidArgumentError(impostor);
  if (file_bytes < kLengthBytes) {
    return absl::InvalidArgumentError(absl::StrCat("the file has ", file_bytes, " bytes, too few for a header length"));
  }
  uint64_t length = 0;
  std::memcpy(&length, beginning.data(), sizeof(length));
  if (length > internal::kMaxSafetensorsHeaderBytes) {
    return absl::InvalidArgumentError(absl::StrCat("the header length field says ", length, " bytes, more than ",
                                                   internal::kMaxSafetensorsHeaderBytes,
                                                   ": not a safetensors file, or a damaged one"));
  }
  if (length > file_bytes - kLengthBytes) {
    return absl::InvalidArgumentError(absl::StrCat("the header length field says ", length, " bytes, but only ",
                                                   file_bytes - kLengthBytes, " follow it: the file was cut off"));
  }
  return length;
}

absl::Status WithPath(const std::string& path, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(path, ": ", std::string(status.message())));
}

}  // namespace

absl::StatusOr<SafetensorsFile> SafetensorsFile::Open(const std::string& path) {
  FileDescriptor file{open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (file.fd < 0) return ErrnoStatus("open", path);
  struct stat status;
  if (fstat(file.fd, &status) != 0) return ErrnoStatus("look at", path);
  if (!S_ISREG(status.st_mode)) return absl::InvalidArgumentError(absl::StrCat(path, ": is not a regular file"));
  const uint64_t file_bytes = static_cast<uint64_t>(status.st_size);

  LEEWAY_ASSIGN_OR_RETURN(const std::string beginning, ReadAt(file.fd, 0, 64, path));
  const absl::StatusOr<uint64_t> header_bytes = HeaderLength(beginning, file_bytes);
  if (!header_bytes.ok()) return WithPath(path, header_bytes.status());
  LEEWAY_ASSIGN_OR_RETURN(const std::string text, ReadAt(file.fd, kLengthBytes, *header_bytes, path));
  if (text.size() != *header_bytes) return absl::InvalidArgumentError(absl::StrCat(path, ": shrank while it was read"));
  absl::StatusOr<internal::SafetensorsHeader> header =
      internal::ParseSafetensorsHeader(text, file_bytes - kLengthBytes - *header_bytes);
  if (!header.ok()) return WithPath(path, header.status());

  // Private and writable, so that an array over it can be written to without touching the file.
  void* const mapped = mmap(nullptr, file_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, file.fd, 0);
  if (mapped == MAP_FAILED) return ErrnoStatus("map", path);
  SafetensorsFile opened;
  opened.path_ = path;
  opened.mapping_ = std::shared_ptr<void>(mapped, [file_bytes](void* address) { munmap(address, file_bytes); });
  opened.data_ = static_cast<std::byte*>(mapped) + kLengthBytes + *header_bytes;
  opened.entries_ = std::move(header->entries);
  opened.metadata_ = std::move(header->metadata);
  for (size_t i = 0; i < opened.entries_.size(); ++i) opened.index_.emplace(opened.entries_[i].name, i);
  return opened;
}

bool SafetensorsFile::Contains(absl::string_view name) const { return index_.count(std::string(name)) > 0; }

absl::StatusOr<NDArray> SafetensorsFile::Tensor(absl::string_view name) const {
  const auto found = index_.find(std::string(name));
  if (found == index_.end()) return absl::NotFoundError(absl::StrCat(path_, ": has no tensor '", name, "'"));
  const SafetensorsEntry& entry = entries_[found->second];
  const absl::StatusOr<DType> dtype = DTypeFromName(entry.dtype);
  if (!dtype.ok()) {
    return absl::UnimplementedError(
        absl::StrCat(path_, ": tensor '", name, "' is ", entry.dtype, ", which can not be used here"));
  }
  std::byte* const bytes = data_ + entry.begin;
  if (reinterpret_cast<uintptr_t>(bytes) % DTypeBytes(*dtype) == 0)
    return NDArray(*dtype, entry.shape, bytes, mapping_);
  // Other writers do not pad their headers: typed access needs an aligned copy.
  NDArray copy(*dtype, entry.shape);
  if (copy.size_bytes() > 0) std::memcpy(copy.data(), bytes, copy.size_bytes());
  return copy;
}

namespace {

// Writes through the file system in pieces of a few megabytes.
class BufferedAppender {
 public:
  BufferedAppender(FileSystem* file_system, std::string path, Digest128Stream* digest)
      : file_system_(file_system), path_(std::move(path)), digest_(digest) {}

  absl::Status Append(absl::string_view bytes) {
    if (digest_ != nullptr) digest_->Update(bytes.data(), bytes.size());
    if (buffer_.size() + bytes.size() > kBufferBytes) LEEWAY_RETURN_IF_ERROR(Flush());
    if (bytes.size() > kBufferBytes) return file_system_->AppendToFile(path_, bytes);
    absl::StrAppend(&buffer_, bytes);
    return absl::OkStatus();
  }
  absl::Status Flush() {
    if (buffer_.empty()) return absl::OkStatus();
    const absl::Status status = file_system_->AppendToFile(path_, buffer_);
    buffer_.clear();
    return status;
  }

 private:
  static constexpr size_t kBufferBytes = 4 << 20;

  FileSystem* const file_system_;
  const std::string path_;
  Digest128Stream* const digest_;
  std::string buffer_;
};

// Sorted into the order of the file.
std::vector<const NamedTensor*> InFileOrder(absl::Span<const NamedTensor> tensors) {
  std::vector<const NamedTensor*> ordered;
  for (const NamedTensor& tensor : tensors) ordered.push_back(&tensor);
  std::sort(ordered.begin(), ordered.end(), [](const NamedTensor* a, const NamedTensor* b) {
    const size_t a_bytes = DTypeBytes(a->array.dtype());
    const size_t b_bytes = DTypeBytes(b->array.dtype());
    return a_bytes != b_bytes ? a_bytes > b_bytes : a->name < b->name;
  });
  return ordered;
}

absl::Status WriteTo(FileSystem* file_system, const std::string& temporary, const std::string& header,
                     absl::Span<const NamedTensor* const> tensors, Digest128Stream* digest) {
  // A leftover of an earlier process of this id would be appended to.
  LEEWAY_RETURN_IF_ERROR(file_system->RemoveAll(temporary));
  BufferedAppender file(file_system, temporary, digest);
  const uint64_t length = header.size();
  LEEWAY_RETURN_IF_ERROR(file.Append(absl::string_view(reinterpret_cast<const char*>(&length), sizeof(length))));
  LEEWAY_RETURN_IF_ERROR(file.Append(header));
  for (const NamedTensor* tensor : tensors) {
    LEEWAY_RETURN_IF_ERROR(file.Append(
        absl::string_view(reinterpret_cast<const char*>(tensor->array.data()), tensor->array.size_bytes())));
  }
  LEEWAY_RETURN_IF_ERROR(file.Flush());
  return file_system->SyncFile(temporary);
}

}  // namespace

absl::Status WriteSafetensors(FileSystem* file_system, const std::string& path, absl::Span<const NamedTensor> tensors,
                              const SafetensorsMetadata& metadata, Digest128Stream* digest) {
  const std::vector<const NamedTensor*> ordered = InFileOrder(tensors);
  internal::SafetensorsHeader header;
  header.metadata = metadata;
  std::set<absl::string_view> names;
  uint64_t offset = 0;
  for (const NamedTensor* tensor : ordered) {
    if (tensor->name == "__metadata__") {
      return absl::InvalidArgumentError(absl::StrCat(path, ": no tensor can be named __metadata__"));
    }
    if (!names.insert(tensor->name).second) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": two tensors are named '", tensor->name, "'"));
    }
    const uint64_t end = offset + tensor->array.size_bytes();
    header.entries.push_back({.name = tensor->name,
                              .dtype = std::string(DTypeName(tensor->array.dtype())),
                              .shape = tensor->array.shape(),
                              .begin = offset,
                              .end = end});
    offset = end;
  }
  const absl::StatusOr<std::string> text = internal::FormatSafetensorsHeader(header);
  if (!text.ok()) return WithPath(path, text.status());

  const std::string temporary = absl::StrCat(path, ".tmp.", getpid());
  absl::Status status = WriteTo(file_system, temporary, *text, ordered, digest);
  if (status.ok()) status = file_system->Rename(temporary, path);
  if (!status.ok()) {
    // Best effort: the first error is the one to tell.
    file_system->RemoveAll(temporary).IgnoreError();
    return status;
  }
  // The folder, so that the new name survives a crash.
  const size_t slash = path.rfind('/');
  return file_system->SyncFile(slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash));
}

}  // namespace leeway
