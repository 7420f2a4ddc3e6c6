#ifndef LEEWAY_LAUNCH_RUN_RUN_DIRECTORY_H_
#define LEEWAY_LAUNCH_RUN_RUN_DIRECTORY_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "launch/config/config.h"
#include "launch/config/diagnostic.h"

namespace leeway {

// Where a run's files lie. Only names; nothing is touched.
struct RunPaths {
  explicit RunPaths(std::string directory) : root(std::move(directory)) {}

  std::string config() const { return root + "/config.toml"; }
  std::string metrics() const { return root + "/metrics.jsonl"; }
  std::string summary() const { return root + "/summary.json"; }
  std::string trace() const { return root + "/trace.json"; }
  std::string tensorboard() const { return root + "/tensorboard"; }
  std::string trajectories() const { return root + "/trajectories"; }
  std::string checkpoints() const { return root + "/checkpoints"; }
  std::string quarantine() const { return root + "/quarantine"; }
  std::string logs() const { return root + "/logs"; }
  std::string log(const std::string& process) const { return logs() + "/" + process + ".log"; }
  // What every process said about its states, sampled by the launcher: one object a line.
  std::string samples() const { return logs() + "/samples.jsonl"; }
  std::string lineage() const { return root + "/lineage"; }
  // What the queue goes on from (queue.store = "rocksdb").
  std::string queue_store() const { return root + "/queue"; }
  // Where the trainer's ranks meet.
  std::string rendezvous() const { return root + "/rendezvous"; }
  std::string lock() const { return root + "/.lock"; }
  // Of processes that talk over TCP without security.token_file.
  std::string tokens() const { return root + "/tokens"; }
  // Folder of the unix sockets: inside the run if their paths fit into the kernel's 107 bytes, else a short one below
  // /tmp.
  std::string sockets() const;

  std::string root;  // absolute
};

// Steps that the run has checkpoints of, in order.
std::vector<int64_t> CheckpointSteps(const RunPaths& paths);
// The newest of them.
std::optional<int64_t> NewestCheckpoint(const RunPaths& paths);

// Makes a folder for this user alone (0700): of sockets, of what ranks tell each other. PERMISSION_DENIED: somebody
// else was there first.
absl::Status MakePrivateFolder(const std::string& folder);

// The run that a directory holds, if it holds one. NOT_FOUND: no config.toml. INVALID_ARGUMENT: it can not be read, all
// errors inside.
absl::StatusOr<Config> ReadRunConfig(const RunPaths& paths);

// A run directory that this process owns: locked until the object dies, so that two launchers never share one.
class RunDirectory {
 public:
  // Makes the directory, or takes over the existing one for a resume, and writes config.toml. `config` must have passed
  // CheckResume. UNAVAILABLE: another launcher has it now (its pid is named). Errors of files are passed on.
  static absl::StatusOr<RunDirectory> Open(const std::string& directory, const Config& config);
  RunDirectory(RunDirectory&& other) noexcept;
  RunDirectory& operator=(RunDirectory&&) = delete;
  // Gives the lock back and removes the sockets.
  ~RunDirectory();

  const RunPaths& paths() const { return paths_; }
  // There was a run already.
  bool is_resume() const { return is_resume_; }
  // What the resume changed, for people.
  const std::vector<ConfigDifference>& changes() const { return changes_; }

 private:
  RunDirectory(RunPaths paths, int lock_fd) : paths_(std::move(paths)), lock_fd_(lock_fd) {}

  RunPaths paths_;
  int lock_fd_;
  bool is_resume_ = false;
  std::vector<ConfigDifference> changes_;
};

}  // namespace leeway

#endif  // LEEWAY_LAUNCH_RUN_RUN_DIRECTORY_H_
