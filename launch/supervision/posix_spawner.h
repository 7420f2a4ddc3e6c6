#ifndef LEEWAY_LAUNCH_SUPERVISION_POSIX_SPAWNER_H_
#define LEEWAY_LAUNCH_SUPERVISION_POSIX_SPAWNER_H_

#include <memory>
#include <set>

#include "launch/supervision/process_spawner.h"

namespace leeway {

// Linux processes. Create it on the main thread before any other thread exists: it blocks SIGCHLD, SIGINT, SIGTERM and
// SIGHUP for the whole process and reads them from a signalfd. Children
//   * are killed by the kernel when the thread that spawned them ends (PR_SET_PDEATHSIG), so no orphan outlives the
//   launcher;
//   * have a process group of their own, so that a terminal's Ctrl-C reaches the launcher alone, which then drains in
//   order.
class PosixSpawner : public ProcessSpawner {
 public:
  static absl::StatusOr<std::unique_ptr<PosixSpawner>> Create();
  // Kills and reaps what still runs.
  ~PosixSpawner() override;

  absl::StatusOr<int> Spawn(const ProcessCommand& command) override;
  void Signal(int pid, int signal) override;
  ProcessEvent Wait(absl::Duration timeout) override;

 private:
  explicit PosixSpawner(int signal_fd) : signal_fd_(signal_fd) {}
  // A child that is gone and not reported yet, if any.
  ProcessEvent Reap();

  const int signal_fd_;
  std::set<int> children_;
};

}  // namespace leeway

#endif  // LEEWAY_LAUNCH_SUPERVISION_POSIX_SPAWNER_H_
