#include "launch/run/run_directory.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/strings/numbers.h"
#include "base/file_system.h"
#include "base/hash.h"
#include "base/status_macros.h"
#include "fmt/format.h"
#include "launch/config/config_loader.h"

namespace leeway {
namespace {

// The longest name in the sockets' folder, and the kernel's limit without the closing zero.
constexpr size_t kLongestSocketName = sizeof("/weights.sock") - 1;
constexpr size_t kLongestSocketPath = 107;

}  // namespace

std::string RunPaths::sockets() const {
  const std::string inside = root + "/sockets";
  if (inside.size() + kLongestSocketName <= kLongestSocketPath) return inside;
  return fmt::format("/tmp/leeway-{:016x}", Hash64(root.data(), root.size()));
}

std::vector<int64_t> CheckpointSteps(const RunPaths& paths) {
  std::vector<int64_t> steps;
  const absl::StatusOr<std::vector<std::string>> names = RealFileSystem()->ListDirectory(paths.checkpoints());
  if (!names.ok()) return steps;
  for (const std::string& name : *names) {
    int64_t step = 0;
    if (name.rfind("step-", 0) == 0 && absl::SimpleAtoi(name.substr(5), &step) && step >= 0) steps.push_back(step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

std::optional<int64_t> NewestCheckpoint(const RunPaths& paths) {
  const std::vector<int64_t> steps = CheckpointSteps(paths);
  return steps.empty() ? std::nullopt : std::optional<int64_t>(steps.back());
}

absl::Status MakePrivateFolder(const std::string& folder) {
  LEEWAY_RETURN_IF_ERROR(RealFileSystem()->CreateDirectory(folder));
  if (chmod(folder.c_str(), 0700) == 0) return absl::OkStatus();
  return absl::PermissionDeniedError(fmt::format("{} can not be kept from other users: {}", folder, strerror(errno)));
}

absl::StatusOr<Config> ReadRunConfig(const RunPaths& paths) {
  FileSystem* files = RealFileSystem();
  if (!files->Exists(paths.config()))
    return absl::NotFoundError(fmt::format("{} holds no run (no config.toml)", paths.root));
  LEEWAY_ASSIGN_OR_RETURN(const std::string text, files->ReadFile(paths.config()));
  LoadedConfig loaded = ParseConfig(text, paths.config());
  if (!loaded.errors.empty()) return absl::InvalidArgumentError(FormatDiagnostics(loaded.errors));
  return std::move(loaded.config);
}

absl::StatusOr<RunDirectory> RunDirectory::Open(const std::string& directory, const Config& config) {
  RunPaths paths(directory);
  FileSystem* files = RealFileSystem();
  LEEWAY_RETURN_IF_ERROR(files->CreateDirectory(paths.root));
  const int lock_fd = open(paths.lock().c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (lock_fd < 0) return absl::PermissionDeniedError(fmt::format("{}: {}", paths.lock(), strerror(errno)));
  if (flock(lock_fd, LOCK_EX | LOCK_NB) != 0) {
    char owner[32] = {};
    const ssize_t got = read(lock_fd, owner, sizeof(owner) - 1);
    close(lock_fd);
    return absl::ResourceExhaustedError(
        fmt::format("{} is in use by another leeway (pid {}); wait for its end or choose another run.name", paths.root,
                    got > 0 ? owner : "unknown"));
  }
  const std::string pid = std::to_string(getpid());
  if (ftruncate(lock_fd, 0) != 0 || pwrite(lock_fd, pid.data(), pid.size(), 0) < 0) {
    close(lock_fd);
    return absl::InternalError(fmt::format("{}: {}", paths.lock(), strerror(errno)));
  }
  RunDirectory run(std::move(paths), lock_fd);
  if (files->Exists(run.paths_.config())) {
    LEEWAY_ASSIGN_OR_RETURN(const Config existing, ReadRunConfig(run.paths_));
    run.is_resume_ = true;
    run.changes_ = CompareForResume(existing, config);
  }
  LEEWAY_RETURN_IF_ERROR(files->CreateDirectory(run.paths_.logs()));
  // Sockets of a launcher that was killed are of no use to anybody, nor is what its ranks told each other.
  LEEWAY_RETURN_IF_ERROR(files->RemoveAll(run.paths_.sockets()));
  LEEWAY_RETURN_IF_ERROR(files->RemoveAll(run.paths_.rendezvous()));
  LEEWAY_RETURN_IF_ERROR(MakePrivateFolder(run.paths_.sockets()));
  LEEWAY_RETURN_IF_ERROR(files->WriteFileAtomically(run.paths_.config(), config.ToToml()));
  return run;
}

RunDirectory::RunDirectory(RunDirectory&& other) noexcept
    : paths_(std::move(other.paths_)),
      lock_fd_(std::exchange(other.lock_fd_, -1)),
      is_resume_(other.is_resume_),
      changes_(std::move(other.changes_)) {}

RunDirectory::~RunDirectory() {
  if (lock_fd_ < 0) return;
  static_cast<void>(RealFileSystem()->RemoveAll(paths_.sockets()));
  close(lock_fd_);
}

}  // namespace leeway
