#ifndef LEEWAY_ENVS_REGISTRY_H_
#define LEEWAY_ENVS_REGISTRY_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "envs/environment.h"

namespace leeway {

// The `task.*` part of the run configuration, as strings and numbers that NewTask judges.
struct TaskOptions {
  // task.name: "sort5", "reverse5", "add2", "lake4x4", "guess20", "question_file", or a registered name.
  std::string name;
  // task.latency: "" (none) or "lognormal(median=20ms, sigma=1.0)"; see envs/latency_environment.h.
  std::string latency;
  // task.faults: "" (none) or "faults(fail=0.01, hang=0.001)"; see envs/fault_environment.h.
  std::string faults;

  // Of question_file only; see envs/tasks/question_file.h.
  std::string file;             // task.file: path of the JSONL file
  std::string match = "exact";  // task.match: exact | regex | numeric
  int max_answer_tokens = 32;   // task.max_answer_tokens
  double held_out_share = 0.2;  // task.held_out_share: in (0, 1)
};

// Makes the task with the wrappers that the options ask for. Reads the question file (blocks on it), nothing else.
// INVALID_ARGUMENT: every fault of the options at once; an unknown name is answered with the known ones and the
// nearest. NOT_FOUND and other file errors: the question file can not be read.
absl::StatusOr<std::unique_ptr<Task>> NewTask(const TaskOptions& options);

// Names that NewTask knows, built-in ones first, each part sorted.
std::vector<std::string> TaskNames();

using TaskFactory = std::function<absl::StatusOr<std::unique_ptr<Task>>(const TaskOptions& options)>;

// Adds a task of the user's under `name`, for the life of the process; call it in main before the configuration is
// read. ALREADY_EXISTS: the name is taken. Thread-safe.
absl::Status RegisterTask(const std::string& name, TaskFactory factory);

}  // namespace leeway

#endif  // LEEWAY_ENVS_REGISTRY_H_
