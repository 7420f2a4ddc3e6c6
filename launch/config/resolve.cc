#include "launch/config/resolve.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <sstream>
#include <utility>

#include "base/file_system.h"
#include "base/hash.h"
#include "base/status_macros.h"
#include "envs/registry.h"
#include "fmt/format.h"
#include "launch/config/nearest.h"
#include "launch/roles/task_options.h"
#include "model/model_files.h"

namespace leeway {
namespace {

// A derived value keeps the place of the key that asked for it, so that a complaint about it points at something the
// user wrote.
void Derive(Config* config, const std::string& key, ConfigValue value) {
  config->Set(key, std::move(value), config->PlaceOf(key));
}

// Relative paths in a file are relative to that file; on the command line to the working directory.
void MakeAbsolute(Config* config, const std::string& key) {
  const std::string& value = config->GetString(key);
  if (value.empty() || value.front() == '/') return;
  const std::string& file = config->PlaceOf(key).file;
  std::filesystem::path base;
  std::error_code error;
  if (std::filesystem::is_regular_file(file, error)) base = std::filesystem::path(file).parent_path();
  Derive(config, key, std::filesystem::absolute(base / value).lexically_normal().string());
}

// The tasks' complaints name their keys: one diagnostic a line, at the key's place.
void AddTaskErrors(const Config& config, const absl::Status& status, std::vector<Diagnostic>* errors) {
  std::istringstream lines{std::string(status.message())};
  for (std::string line; std::getline(lines, line);) {
    if (line.empty()) continue;
    const std::string& file = config.GetString("task.file");
    std::string key = file.empty() ? "task.name" : "task.file";
    // What is wrong in the file's lines may speak of keys, but the file is at fault.
    const bool is_of_file = !file.empty() && line.rfind(file + ":", 0) == 0;
    for (const char* candidate : {"task.latency", "task.faults", "task.match", "task.max_answer_tokens",
                                  "task.held_out_share", "task.file", "task.name"}) {
      if (!is_of_file && line.find(candidate) != std::string::npos) {
        key = candidate;
        break;
      }
    }
    if (line.rfind(key + ": ", 0) == 0) line = line.substr(key.size() + 2);
    errors->push_back({config.PlaceOf(key), key, line});
  }
}

// What model.init says about the keys that nobody has set.
absl::Status ResolveInitialModel(Config* config) {
  const std::string& directory = config->GetString("model.init");
  const char* const keys[] = {"model.family",     "model.hidden",       "model.layers",        "model.heads",
                              "model.head_dim",   "model.intermediate", "model.max_positions", "model.key_value_heads",
                              "model.rope_theta", "model.rms_epsilon",  "model.tied_head"};
  // All are set where a resolved configuration comes back: a machine that only plays does not need the folder.
  const bool is_needed =
      std::any_of(std::begin(keys), std::end(keys), [&](auto key) { return config->IsDefault(key); });
  if (directory.empty() || !is_needed) return absl::OkStatus();
  LEEWAY_ASSIGN_OR_RETURN(const ModelConfig model, ReadModelConfig(directory));
  // The bounds of the keys are those of a shape.
  LEEWAY_ASSIGN_OR_RETURN(const ModelShape shape, ShapeOf(model));
  const auto derive = [config](const char* key, ConfigValue value) {
    if (config->IsDefault(key)) Derive(config, key, std::move(value));
  };
  derive("model.family", std::string(ModelFamilyName(shape.family)));
  derive("model.hidden", shape.hidden);
  derive("model.layers", shape.layers);
  derive("model.heads", shape.heads);
  derive("model.key_value_heads", shape.key_value_heads);
  derive("model.head_dim", shape.head_dim);
  derive("model.intermediate", shape.intermediate);
  derive("model.max_positions", shape.max_positions);
  derive("model.rope_theta", shape.rope_theta);
  derive("model.rms_epsilon", shape.rms_epsilon);
  derive("model.tied_head", shape.tied_head);
  return absl::OkStatus();
}

void ResolveModel(Config* config, const Task* task) {
  const int64_t hidden = config->GetInteger("model.hidden");
  const int64_t heads = config->GetInteger("model.heads");
  if (config->GetInteger("model.key_value_heads") == 0) Derive(config, "model.key_value_heads", heads);
  if (config->GetInteger("model.head_dim") == 0 && hidden % heads == 0)
    Derive(config, "model.head_dim", hidden / heads);
  if (config->GetInteger("model.intermediate") == 0) {
    Derive(config, "model.intermediate", (hidden * 8 / 3 + 15) / 16 * 16);
  }
  if (config->GetInteger("model.max_positions") == 0 && task != nullptr) {
    Derive(config, "model.max_positions", int64_t{task->max_episode_tokens()});
  }
}

void ResolveQueue(Config* config, const Task* task, const Tokenizer* tokenizer) {
  if (config->GetInteger("queue.max_groups") == 0) {
    const int64_t budget = config->GetString("mode") == "sync" ? 0 : config->GetInteger("staleness.budget");
    Derive(config, "queue.max_groups", (budget + 2) * config->GetInteger("trainer.groups_per_step"));
  }
  if (config->GetInteger("queue.max_trajectory_bytes") == 0 && task != nullptr && tokenizer != nullptr) {
    Derive(config, "queue.max_trajectory_bytes", LargestTrajectoryBytes(*task, tokenizer->vocabulary_size()));
  }
}

}  // namespace

ResolvedConfig ResolveConfig(const Config& config, const std::string& name) {
  ResolvedConfig resolved;
  resolved.config = config;
  Config* out = &resolved.config;
  if (out->GetString("run.name").empty()) Derive(out, "run.name", name);
  for (const char* key : {"run.directory"}) {
    // Runs go below the working directory, wherever the configuration file lies.
    Derive(out, key, std::filesystem::absolute(out->GetString(key)).lexically_normal().string());
  }
  MakeAbsolute(out, "task.file");
  MakeAbsolute(out, "model.init");
  for (const char* key : {"security.certificate", "security.key", "security.authority", "security.token_file"})
    MakeAbsolute(out, key);
  // Whether the file can be read is the task's business.
  const absl::StatusOr<std::string> questions = RealFileSystem()->ReadFile(out->GetString("task.file"));
  const std::string digest = questions.ok() ? Digest128(questions->data(), questions->size()) : "";
  out->Set("task.file_digest", digest, out->PlaceOf("task.file"));
  absl::StatusOr<std::unique_ptr<Task>> task = NewTask(TaskOptionsOf(*out));
  if (!task.ok()) {
    AddTaskErrors(*out, task.status(), &resolved.errors);
  } else {
    resolved.task = *std::move(task);
    absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = NewTokenizer(resolved.task->vocabulary());
    if (tokenizer.ok()) {
      resolved.tokenizer = *std::move(tokenizer);
    } else {
      resolved.errors.push_back({out->PlaceOf("task.name"), "task.name", std::string(tokenizer.status().message())});
    }
  }
  if (const absl::Status initial = ResolveInitialModel(out); !initial.ok()) {
    resolved.errors.push_back({out->PlaceOf("model.init"), "model.init", std::string(initial.message())});
  }
  ResolveModel(out, resolved.task.get());
  ResolveQueue(out, resolved.task.get(), resolved.tokenizer.get());
  return resolved;
}

std::string RunNameOf(const std::vector<std::string>& files) {
  return files.empty() ? "run" : std::filesystem::path(files.back()).stem().string();
}

}  // namespace leeway
