#include "launch/run/new_directory.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include <filesystem>
#include <utility>
#include <vector>

#include "base/file_system.h"
#include "base/status_macros.h"
#include "fmt/format.h"

namespace leeway {
namespace {

absl::Status CheckFree(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(std::filesystem::symlink_status(path, error))) return absl::OkStatus();
  if (!std::filesystem::is_directory(path, error)) {
    return absl::FailedPreconditionError(fmt::format("{} exists and is no folder; choose another one", path));
  }
  if (!std::filesystem::is_empty(path, error) || error) {
    return absl::FailedPreconditionError(fmt::format(
        "{} exists and is not empty; nothing is overwritten: choose another folder, or move it away", path));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<NewDirectory> NewDirectory::Begin(const std::string& path) {
  const std::filesystem::path whole = std::filesystem::absolute(path).lexically_normal();
  // "a/b/" has no last part.
  const std::filesystem::path name = whole.has_filename() ? whole : whole.parent_path();
  LEEWAY_RETURN_IF_ERROR(CheckFree(name.string()));
  const std::string unfinished =
      (name.parent_path() / fmt::format(".{}.unfinished", name.filename().string())).string();
  FileSystem* const files = RealFileSystem();
  LEEWAY_RETURN_IF_ERROR(files->CreateDirectory(unfinished));
  const int lock_fd = open(unfinished.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (lock_fd < 0) return absl::PermissionDeniedError(fmt::format("{}: {}", unfinished, strerror(errno)));
  if (flock(lock_fd, LOCK_EX | LOCK_NB) != 0) {
    close(lock_fd);
    return absl::UnavailableError(fmt::format("another process is writing {}; wait for its end", name.string()));
  }
  NewDirectory directory(name.string(), unfinished, lock_fd);
  LEEWAY_ASSIGN_OR_RETURN(const std::vector<std::string> leftovers, files->ListDirectory(unfinished));
  for (const std::string& leftover : leftovers) {
    LEEWAY_RETURN_IF_ERROR(files->RemoveAll(JoinPath(unfinished, leftover)));
  }
  return directory;
}

NewDirectory::NewDirectory(NewDirectory&& other) noexcept
    : path_(other.path_),
      unfinished_(other.unfinished_),
      lock_fd_(std::exchange(other.lock_fd_, -1)),
      is_finished_(other.is_finished_) {}

NewDirectory::~NewDirectory() {
  if (lock_fd_ < 0) return;
  if (!is_finished_) static_cast<void>(RealFileSystem()->RemoveAll(unfinished_));
  close(lock_fd_);
}

absl::Status NewDirectory::Finish() {
  FileSystem* const files = RealFileSystem();
  LEEWAY_RETURN_IF_ERROR(files->SyncFile(unfinished_));
  // Takes the place of an empty directory, of nothing else.
  LEEWAY_RETURN_IF_ERROR(files->Rename(unfinished_, path_));
  is_finished_ = true;
  return files->SyncFile(std::filesystem::path(path_).parent_path().string());
}

}  // namespace leeway
