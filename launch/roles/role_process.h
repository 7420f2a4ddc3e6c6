#ifndef LEEWAY_LAUNCH_ROLES_ROLE_PROCESS_H_
#define LEEWAY_LAUNCH_ROLES_ROLE_PROCESS_H_

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "base/metrics.h"
#include "collective/rank_environment.h"
#include "envs/environment.h"
#include "launch/config/config.h"
#include "launch/run/run_directory.h"
#include "rpc/security/connection_security.h"
#include "tokenizer/tokenizer.h"

namespace leeway {

// What every main does first: malloc keeps big blocks instead of giving them back to the kernel (first touch of fresh
// pages is what bounds the data plane), broken pipes are errors instead of signals, many files may be open. Before any
// thread exists.
void PrepareProcess();

// Calls `stop` at every SIGTERM or SIGINT, on a thread of its own, until it dies. Create it on the main thread before
// other threads exist: it blocks both signals for the whole process.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  // Replaces what is called; an empty function ignores signals. A signal that came before is delivered at once.
  void OnStop(std::function<void()> stop);

 private:
  struct State;
  std::unique_ptr<State> state_;
  std::thread thread_;
};

// Everything that a role's main needs before it makes its objects.
struct RoleContext {
  Config config;  // resolved
  std::unique_ptr<Task> task;
  std::unique_ptr<Tokenizer> tokenizer;
  RunPaths paths{""};
  int rank = 0;
  RankEnvironment rank_environment;  // of a trainer
  std::string name;                  // "rollout-1"
  std::string queue_address;
  std::string weights_address;
  // As a server and as a client of the others.
  ConnectionSecurity security;
  // Serves Prometheus if the configuration says so.
  std::unique_ptr<Metrics> metrics;
};

// Reads the command line of a role's binary (CONFIG... [key=value...] [--rank N]), resolves the
// configuration (which `leeway train` has checked), joins the run directory (makes it if nobody has), and starts log
// and metrics. INVALID_ARGUMENT carries all errors of the configuration; its text is for the terminal. `port_offset` of
// metrics.port: queue 0, trainer 1, rollout 2.
// Only the first trainer serves metrics: it has them all.
absl::StatusOr<RoleContext> StartRole(int argc, char** argv, const std::string& role, int port_offset);

// Says how the role ended and ends the process with the status's exit code, without waiting for detached threads.
[[noreturn]] void EndRole(const std::string& name, const absl::Status& status);

// Where the processes of a run find each other.
std::string QueueAddressOf(const Config& config, const RunPaths& paths);
std::string WeightsAddressOf(const Config& config, const RunPaths& paths);

}  // namespace leeway

#endif  // LEEWAY_LAUNCH_ROLES_ROLE_PROCESS_H_
