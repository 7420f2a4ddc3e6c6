#include "base/file_system.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace leeway {
namespace {

absl::Status ErrnoStatus(int error, absl::string_view what, absl::string_view path) {
  const std::string message = absl::StrCat(what, " ", path, ": ", strerror(error));
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return absl::NotFoundError(message);
    case EACCES:
    case EPERM:
    case EROFS:
      return absl::PermissionDeniedError(message);
    case ENOSPC:
    case EDQUOT:
      return absl::ResourceExhaustedError(message);
    default:
      return absl::InternalError(message);
  }
}

absl::Status FromErrorCode(const std::error_code& error, absl::string_view what, absl::string_view path) {
  return error ? ErrnoStatus(error.value(), what, path) : absl::OkStatus();
}

// Closes at the end of the scope.
struct FileDescriptor {
  explicit FileDescriptor(int fd) : fd(fd) {}
  ~FileDescriptor() {
    if (fd >= 0) close(fd);
  }
  int fd;
};

absl::Status WriteAll(int fd, absl::string_view content, absl::string_view path) {
  while (!content.empty()) {
    const ssize_t written = write(fd, content.data(), content.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      return ErrnoStatus(errno, "write", path);
    }
    content.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

absl::Status SyncPath(const std::string& path, int flags) {
  FileDescriptor file(open(path.c_str(), flags | O_CLOEXEC));
  if (file.fd < 0) return ErrnoStatus(errno, "open", path);
  if (fsync(file.fd) != 0) return ErrnoStatus(errno, "sync", path);
  return absl::OkStatus();
}

std::string ParentOf(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

class PosixFileSystem : public FileSystem {
 public:
  absl::StatusOr<std::string> ReadFile(const std::string& path) override {
    FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (file.fd < 0) return ErrnoStatus(errno, "open", path);
    std::string content;
    char buffer[64 * 1024];
    while (true) {
      const ssize_t count = read(file.fd, buffer, sizeof(buffer));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return ErrnoStatus(errno, "read", path);
      if (count == 0) return content;
      content.append(buffer, static_cast<size_t>(count));
    }
  }

  absl::StatusOr<std::string> ReadFileRange(const std::string& path, uint64_t offset, size_t max_bytes) override {
    FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (file.fd < 0) return ErrnoStatus(errno, "open", path);
    std::string content(max_bytes, '\0');
    size_t filled = 0;
    while (filled < max_bytes) {
      const ssize_t count =
          pread(file.fd, content.data() + filled, max_bytes - filled, static_cast<off_t>(offset + filled));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return ErrnoStatus(errno, "read", path);
      if (count == 0) break;
      filled += static_cast<size_t>(count);
    }
    content.resize(filled);
    return content;
  }

  absl::Status WriteFileAtomically(const std::string& path, absl::string_view content) override {
    const std::string temporary = absl::StrCat(path, ".tmp.", getpid());
    const absl::Status written = WriteAndSync(temporary, content);
    if (!written.ok()) {
      unlink(temporary.c_str());
      return written;
    }
    LEEWAY_RETURN_IF_ERROR(Rename(temporary, path));
    return SyncPath(ParentOf(path), O_RDONLY | O_DIRECTORY);
  }

  absl::Status AppendToFile(const std::string& path, absl::string_view content) override {
    FileDescriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
    if (file.fd < 0) return ErrnoStatus(errno, "open", path);
    return WriteAll(file.fd, content, path);
  }

  absl::Status SyncFile(const std::string& path) override { return SyncPath(path, O_RDONLY); }

  absl::Status CreateDirectory(const std::string& path) override {
    std::error_code error;
    std::filesystem::create_directories(path, error);
    return FromErrorCode(error, "create directory", path);
  }

  absl::StatusOr<std::vector<std::string>> ListDirectory(const std::string& path) override {
    std::error_code error;
    std::vector<std::string> names;
    for (std::filesystem::directory_iterator entry(path, error), end; !error && entry != end; entry.increment(error)) {
      names.push_back(entry->path().filename().string());
    }
    LEEWAY_RETURN_IF_ERROR(FromErrorCode(error, "list", path));
    std::sort(names.begin(), names.end());
    return names;
  }

  absl::Status Rename(const std::string& from, const std::string& to) override {
    if (rename(from.c_str(), to.c_str()) != 0) return ErrnoStatus(errno, absl::StrCat("rename ", from, " to"), to);
    return absl::OkStatus();
  }

  absl::Status RemoveAll(const std::string& path) override {
    std::error_code error;
    std::filesystem::remove_all(path, error);
    return FromErrorCode(error, "remove", path);
  }

  bool Exists(const std::string& path) override {
    std::error_code error;
    return std::filesystem::exists(path, error);
  }

  absl::StatusOr<uint64_t> FileSize(const std::string& path) override {
    std::error_code error;
    const uint64_t size = std::filesystem::file_size(path, error);
    LEEWAY_RETURN_IF_ERROR(FromErrorCode(error, "size of", path));
    return size;
  }

 private:
  static absl::Status WriteAndSync(const std::string& path, absl::string_view content) {
    FileDescriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    if (file.fd < 0) return ErrnoStatus(errno, "create", path);
    LEEWAY_RETURN_IF_ERROR(WriteAll(file.fd, content, path));
    if (fsync(file.fd) != 0) return ErrnoStatus(errno, "sync", path);
    return absl::OkStatus();
  }
};

}  // namespace

FileSystem* RealFileSystem() {
  static PosixFileSystem* file_system = new PosixFileSystem;
  return file_system;
}

std::string JoinPath(absl::string_view first, absl::string_view second) {
  if (first.empty() || (!second.empty() && second[0] == '/')) return std::string(second);
  if (second.empty()) return std::string(first);
  return absl::StrCat(first, first.back() == '/' ? "" : "/", second);
}

}  // namespace leeway
