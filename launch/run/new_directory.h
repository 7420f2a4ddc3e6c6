#ifndef LEEWAY_LAUNCH_RUN_NEW_DIRECTORY_H_
#define LEEWAY_LAUNCH_RUN_NEW_DIRECTORY_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace leeway {

// A directory that appears with all its files or not at all: they are written into a hidden one beside it, which then
// takes the name. An object that dies unfinished takes its files along; what a killed process left is taken away by the
// next one that makes the same directory. One owner; blocks on the disk.
class NewDirectory {
 public:
  // FAILED_PRECONDITION: `path` is there and is not an empty directory. UNAVAILABLE: another process makes it now.
  // Errors of files are passed on.
  static absl::StatusOr<NewDirectory> Begin(const std::string& path);
  NewDirectory(NewDirectory&& other) noexcept;
  NewDirectory& operator=(NewDirectory&&) = delete;
  ~NewDirectory();

  // Where its files are written.
  const std::string& unfinished() const { return unfinished_; }
  // Gives it its name, durably. After an error nothing is left.
  absl::Status Finish();

 private:
  NewDirectory(std::string path, std::string unfinished, int lock_fd)
      : path_(std::move(path)), unfinished_(std::move(unfinished)), lock_fd_(lock_fd) {}

  const std::string path_;
  const std::string unfinished_;
  int lock_fd_;  // of the unfinished directory; -1 = moved away
  bool is_finished_ = false;
};

}  // namespace leeway

#endif  // LEEWAY_LAUNCH_RUN_NEW_DIRECTORY_H_
