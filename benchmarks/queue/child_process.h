#ifndef LEEWAY_BENCHMARKS_QUEUE_CHILD_PROCESS_H_
#define LEEWAY_BENCHMARKS_QUEUE_CHILD_PROCESS_H_

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace leeway {

// One process of a measurement: started with its arguments, ended with the object. It dies with its parent.
class ChildProcess {
 public:
  // `command[0]` is a path or a name to be found in PATH. The child's output goes to `log_path`.
  // NOT_FOUND: no such program.
  static absl::StatusOr<ChildProcess> Start(const std::vector<std::string>& command, const std::string& log_path);
  ChildProcess(ChildProcess&& other) noexcept : pid_(other.pid_) { other.pid_ = 0; }
  ~ChildProcess() { Stop(); }

  pid_t pid() const { return pid_; }
  // SIGTERM, SIGKILL when it is not gone after 20 s; waits.
  void Stop();
  // At once, no farewell; waits.
  void Kill();

 private:
  explicit ChildProcess(pid_t pid) : pid_(pid) {}

  pid_t pid_ = 0;
};

// User and system time of a process (0: of this one) since its start.
double ProcessCpuSeconds(pid_t pid);
// Resident size.
uint64_t ProcessResidentBytes(pid_t pid);
// Bytes of the files below a folder.
uint64_t DirectoryBytes(const std::string& path);

// A new folder that is removed with the object. `parent` must exist.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(const std::string& parent);
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Prints the error and ends the program with 1 when there is one.
void MustSucceed(const absl::Status& status);
template <class T>
T Must(absl::StatusOr<T> value) {
  MustSucceed(value.status());
  return *std::move(value);
}

}  // namespace leeway

#endif  // LEEWAY_BENCHMARKS_QUEUE_CHILD_PROCESS_H_
