#ifndef LEEWAY_LAUNCH_SUPERVISION_PROCESS_SPAWNER_H_
#define LEEWAY_LAUNCH_SUPERVISION_PROCESS_SPAWNER_H_

#include <map>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "launch/supervision/supervision_policy.h"

namespace leeway {

// A program to start.
struct ProcessCommand {
  std::string executable;  // path
  std::vector<std::string> arguments;
  // Added to the launcher's own environment.
  std::map<std::string, std::string> environment;
  // Standard output and error are appended here.
  std::string log_path;
};

// A child is gone.
struct ProcessExited {
  int pid = 0;
  ChildExit exit;
  // User + system time of the whole child.
  double cpu_seconds = 0;
};
// The user or a scheduler asks the job to stop (SIGINT, SIGTERM, SIGHUP).
struct InterruptReceived {
  int signal = 0;
};
// The wait's time ran out.
struct NothingHappened {};
using ProcessEvent = std::variant<NothingHappened, ProcessExited, InterruptReceived>;

// Real processes behind an interface, so that the supervisor is tested without any. One caller, always the same thread.
class ProcessSpawner {
 public:
  virtual ~ProcessSpawner() = default;

  // Returns the child's pid once its program runs. The child dies with this process, however that ends. NOT_FOUND: no
  // such program; INTERNAL.
  virtual absl::StatusOr<int> Spawn(const ProcessCommand& command) = 0;
  // Sends a signal to a child that was not reported gone yet.
  virtual void Signal(int pid, int signal) = 0;
  // Blocks until something happens, at most `timeout`.
  virtual ProcessEvent Wait(absl::Duration timeout) = 0;
};

}  // namespace leeway

#endif  // LEEWAY_LAUNCH_SUPERVISION_PROCESS_SPAWNER_H_
