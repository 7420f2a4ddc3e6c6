#include "envs/registry.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/file_system.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "envs/fault_environment.h"
#include "envs/latency_environment.h"
#include "envs/tasks/add2.h"
#include "envs/tasks/guess20.h"
#include "envs/tasks/lake4x4.h"
#include "envs/tasks/question_file.h"
#include "envs/tasks/reverse5.h"
#include "envs/tasks/sort5.h"

namespace leeway {
namespace {

absl::StatusOr<std::unique_ptr<Task>> QuestionFileFromOptions(const TaskOptions& options) {
  std::vector<std::string> faults;
  if (options.file.empty()) faults.push_back("task.file: required by question_file: the path of a JSONL file");
  if (options.max_answer_tokens < 1) {
    faults.push_back(absl::StrCat("task.max_answer_tokens: ", options.max_answer_tokens, " is below 1"));
  }
  // Written so that NaN fails too.
  if (!(options.held_out_share > 0.0 && options.held_out_share < 1.0)) {
    faults.push_back(absl::StrCat("task.held_out_share: ", options.held_out_share, " is not between 0 and 1"));
  }
  const absl::StatusOr<AnswerMatch> match = ParseAnswerMatch(options.match);
  if (!match.ok()) faults.push_back(absl::StrCat("task.match: ", std::string(match.status().message())));
  if (!faults.empty()) return absl::InvalidArgumentError(absl::StrJoin(faults, "\n"));
  LEEWAY_ASSIGN_OR_RETURN(const std::string text, RealFileSystem()->ReadFile(options.file));
  return NewQuestionFileTask(
      text, options.file,
      {.match = *match, .max_answer_tokens = options.max_answer_tokens, .held_out_share = options.held_out_share});
}

// A task that needs no options.
TaskFactory Plain(std::unique_ptr<Task> (*make)()) {
  return [make](const TaskOptions& options) -> absl::StatusOr<std::unique_ptr<Task>> {
    if (!options.file.empty()) {
      return absl::InvalidArgumentError(absl::StrCat("task.file: only question_file reads a file, not ", options.name));
    }
    return make();
  };
}

const std::map<std::string, TaskFactory>& BuiltInTasks() {
  static const auto* const tasks = new std::map<std::string, TaskFactory>{
      {"add2", Plain(NewAdd2Task)},         {"guess20", Plain(NewGuess20Task)},
      {"lake4x4", Plain(NewLake4x4Task)},   {"question_file", QuestionFileFromOptions},
      {"reverse5", Plain(NewReverse5Task)}, {"sort5", Plain(NewSort5Task)},
  };
  return *tasks;
}

struct RegisteredTasks {
  Mutex mutex;
  std::map<std::string, TaskFactory> factories LEEWAY_GUARDED_BY(mutex);
};

RegisteredTasks& Registered() {
  static auto* const registered = new RegisteredTasks;
  return *registered;
}

std::optional<TaskFactory> FactoryOf(const std::string& name) {
  const auto built_in = BuiltInTasks().find(name);
  if (built_in != BuiltInTasks().end()) return built_in->second;
  RegisteredTasks& registered = Registered();
  MutexLock lock(&registered.mutex);
  const auto found = registered.factories.find(name);
  if (found == registered.factories.end()) return std::nullopt;
  return found->second;
}

// Fewest insertions, deletions and replacements between two words.
size_t EditDistance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0]++;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

std::string UnknownName(const std::string& name) {
  const std::vector<std::string> known = TaskNames();
  const auto nearest = std::min_element(known.begin(), known.end(), [&](const std::string& a, const std::string& b) {
    return EditDistance(name, a) < EditDistance(name, b);
  });
  return absl::StrCat("task.name: unknown task '", name, "'; did you mean '", *nearest,
                      "'? Known: ", absl::StrJoin(known, ", "));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Task>> NewTask(const TaskOptions& options) {
  std::vector<std::string> faults;
  absl::StatusOr<LatencyDistribution> latency = LatencyDistribution{};
  if (!options.latency.empty()) latency = ParseLatency(options.latency);
  if (!latency.ok()) faults.push_back(absl::StrCat("task.latency: ", std::string(latency.status().message())));
  absl::StatusOr<FaultProbabilities> probabilities = FaultProbabilities{};
  if (!options.faults.empty()) probabilities = ParseFaults(options.faults);
  if (!probabilities.ok())
    faults.push_back(absl::StrCat("task.faults: ", std::string(probabilities.status().message())));

  std::unique_ptr<Task> task;
  absl::StatusCode code = absl::StatusCode::kInvalidArgument;
  if (const std::optional<TaskFactory> factory = FactoryOf(options.name); factory.has_value()) {
    absl::StatusOr<std::unique_ptr<Task>> made = (*factory)(options);
    if (made.ok()) {
      task = *std::move(made);
    } else {
      code = made.status().code();
      faults.push_back(std::string(made.status().message()));
    }
  } else {
    faults.push_back(UnknownName(options.name));
  }
  if (!faults.empty()) return absl::Status(code, absl::StrJoin(faults, "\n"));
  if (!options.latency.empty()) task = WithLatency(std::move(task), *latency);
  if (!options.faults.empty()) task = WithFaults(std::move(task), *probabilities);
  return task;
}

std::vector<std::string> TaskNames() {
  std::vector<std::string> names;
  for (const auto& [name, factory] : BuiltInTasks()) names.push_back(name);
  RegisteredTasks& registered = Registered();
  MutexLock lock(&registered.mutex);
  for (const auto& [name, factory] : registered.factories) names.push_back(name);
  return names;
}

absl::Status RegisterTask(const std::string& name, TaskFactory factory) {
  if (name.empty()) return absl::InvalidArgumentError("a task needs a name");
  RegisteredTasks& registered = Registered();
  MutexLock lock(&registered.mutex);
  if (BuiltInTasks().count(name) > 0 || !registered.factories.emplace(name, std::move(factory)).second) {
    return absl::AlreadyExistsError(absl::StrCat("a task named '", name, "' exists already"));
  }
  return absl::OkStatus();
}

}  // namespace leeway
