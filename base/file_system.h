#ifndef LEEWAY_BASE_FILE_SYSTEM_H_
#define LEEWAY_BASE_FILE_SYSTEM_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace leeway {

// Files as leeway uses them: whole reads, appends, atomic replacement. Everything that writes takes a FileSystem*, so
// that a test can make writes fail, be lost or be torn (base/fake_file_system.h). Thread-safe. Paths are UTF-8.
//
// Errors: NOT_FOUND (no such file), RESOURCE_EXHAUSTED (no space), PERMISSION_DENIED, INTERNAL (anything else, errno's
// text inside); every message names the path.
class FileSystem {
 public:
  virtual ~FileSystem() = default;

  virtual absl::StatusOr<std::string> ReadFile(const std::string& path) = 0;
  // Up to `max_bytes` bytes from `offset` on; fewer only at the end of the file.
  virtual absl::StatusOr<std::string> ReadFileRange(const std::string& path, uint64_t offset, size_t max_bytes) = 0;
  // Temporary file in the same folder + fsync + rename + fsync of the folder: readers see the old bytes or the new
  // ones.
  virtual absl::Status WriteFileAtomically(const std::string& path, absl::string_view content) = 0;
  // Appends in one write; creates the file. Not synced.
  virtual absl::Status AppendToFile(const std::string& path, absl::string_view content) = 0;
  virtual absl::Status SyncFile(const std::string& path) = 0;
  // With parents; OK if it exists.
  virtual absl::Status CreateDirectory(const std::string& path) = 0;
  // Names (not paths), sorted.
  virtual absl::StatusOr<std::vector<std::string>> ListDirectory(const std::string& path) = 0;
  virtual absl::Status Rename(const std::string& from, const std::string& to) = 0;
  // File or whole directory; OK if there is none.
  virtual absl::Status RemoveAll(const std::string& path) = 0;
  virtual bool Exists(const std::string& path) = 0;
  virtual absl::StatusOr<uint64_t> FileSize(const std::string& path) = 0;
};

// The machine's file system. Lives for ever.
FileSystem* RealFileSystem();

// "a/b" from "a" and "b"; an absolute second part wins.
std::string JoinPath(absl::string_view first, absl::string_view second);

}  // namespace leeway

#endif  // LEEWAY_BASE_FILE_SYSTEM_H_
