#include "rpc/security/secret_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace leeway {
namespace {

absl::Status SystemError(const std::string& path, int error) {
  const std::string message = absl::StrCat(path, ": ", std::strerror(error));
  if (error == ENOENT) return absl::NotFoundError(message);
  if (error == EACCES || error == EPERM) return absl::PermissionDeniedError(message);
  return absl::UnavailableError(message);
}

absl::Status CheckOwnership(const std::string& path, const struct stat& info) {
  if (!S_ISREG(info.st_mode)) return absl::InvalidArgumentError(absl::StrCat(path, " is no regular file"));
  if (info.st_uid != geteuid() && info.st_uid != 0) {
    return absl::PermissionDeniedError(
        absl::StrCat(path, " belongs to user ", info.st_uid, ", not to this one (", geteuid(), ")"));
  }
  if ((info.st_mode & 077) != 0) {
    return absl::PermissionDeniedError(absl::StrFormat(
        "%s holds a secret and others may open it (mode %04o); run: chmod 600 %s", path, info.st_mode & 07777, path));
  }
  if (info.st_size > static_cast<off_t>(kMaxSecretFileBytes)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " has ", info.st_size, " bytes, the limit is ", kMaxSecretFileBytes));
  }
  return absl::OkStatus();
}

// All of it, or the errno.
int WriteAll(int fd, absl::string_view content) {
  while (!content.empty()) {
    const ssize_t written = write(fd, content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    content.remove_prefix(static_cast<size_t>(written));
  }
  return fsync(fd) == 0 ? 0 : errno;
}

}  // namespace

absl::StatusOr<std::string> ReadSecretFile(const std::string& path) {
  // Not blocking: a pipe of that name would otherwise be waited for.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return SystemError(path, errno);
  const absl::Cleanup closer = [fd] { close(fd); };
  struct stat info = {};
  if (fstat(fd, &info) != 0) return SystemError(path, errno);
  if (absl::Status status = CheckOwnership(path, info); !status.ok()) return status;
  std::string content(static_cast<size_t>(info.st_size), '\0');
  size_t size = 0;
  while (size < content.size()) {
    const ssize_t got = read(fd, content.data() + size, content.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return SystemError(path, errno);
    if (got == 0) break;
    size += static_cast<size_t>(got);
  }
  content.resize(size);
  return content;
}

absl::Status CreateSecretFile(const std::string& path, absl::string_view content) {
  // mkostemp makes it with mode 0600; a link never replaces what is there.
  std::string temporary = absl::StrCat(path, ".XXXXXX");
  const int fd = mkostemp(temporary.data(), O_CLOEXEC);
  if (fd < 0) return SystemError(path, errno);
  const int error = WriteAll(fd, content);
  close(fd);
  const absl::Cleanup remover = [&temporary] { unlink(temporary.c_str()); };
  if (error != 0) return SystemError(path, error);
  if (link(temporary.c_str(), path.c_str()) == 0) return absl::OkStatus();
  if (errno == EEXIST) return absl::AlreadyExistsError(absl::StrCat(path, " exists; it is not overwritten"));
  return SystemError(path, errno);
}

}  // namespace leeway
