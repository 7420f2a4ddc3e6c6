#include "launch/commands/prepared_config.h"

#include <algorithm>

#include "base/file_system.h"
#include "fmt/format.h"
#include "launch/config/check.h"
#include "launch/config/config_loader.h"
#include "launch/run/run_directory.h"

namespace leeway {

PreparedConfig PrepareConfig(const std::vector<std::string>& arguments) {
  PreparedConfig prepared;
  const ConfigSources sources = SplitArguments(arguments);
  LoadedConfig loaded = LoadConfig(sources);
  prepared.errors = std::move(loaded.errors);
  // Keys with errors hold their defaults: what they mean together is checked nevertheless, so that all errors show at
  // once. Without the task's name, or with a file that could not be read, that would only be noise.
  for (const Diagnostic& error : prepared.errors) {
    if (error.key.empty() || error.key == "task.name") return prepared;
  }
  prepared.resolved = ResolveConfig(loaded.config, RunNameOf(sources.files));
  std::vector<Diagnostic> meaning = CheckConfig(prepared.resolved);
  // Only that they hold their defaults is not the user's complaint.
  std::erase_if(meaning, [&](const Diagnostic& error) {
    return std::any_of(prepared.errors.begin(), prepared.errors.end(),
                       [&](const Diagnostic& known) { return known.key == error.key; });
  });
  prepared.errors.insert(prepared.errors.end(), meaning.begin(), meaning.end());
  const Config& config = prepared.resolved.config;
  prepared.run_directory = JoinPath(config.GetString("run.directory"), config.GetString("run.name"));
  const absl::StatusOr<Config> existing = ReadRunConfig(RunPaths(prepared.run_directory));
  prepared.run_exists = existing.ok();
  if (existing.ok()) {
    std::vector<Diagnostic> refused = CheckResume(*existing, config);
    prepared.errors.insert(prepared.errors.end(), refused.begin(), refused.end());
    const int64_t done = NewestCheckpoint(RunPaths(prepared.run_directory)).value_or(0);
    if (config.GetInteger("trainer.steps") < done) {
      prepared.errors.push_back(
          {config.PlaceOf("trainer.steps"), "trainer.steps",
           fmt::format("the run that exists has trained {} steps; a resume can not go back below them", done)});
    }
  } else if (absl::IsNotFound(existing.status()) && NewestCheckpoint(RunPaths(prepared.run_directory)).has_value()) {
    prepared.errors.push_back({config.PlaceOf("run.name"), "run.name",
                               fmt::format("{} holds checkpoints but no config.toml, so nobody knows what they are of; "
                                           "put it back, or choose another run.name",
                                           prepared.run_directory)});
  } else if (!absl::IsNotFound(existing.status())) {
    prepared.errors.push_back({config.PlaceOf("run.name"), "run.name",
                               fmt::format("{} holds a run whose configuration can not be read: {}",
                                           prepared.run_directory, std::string(existing.status().message()))});
  }
  return prepared;
}

std::string DescribeErrors(const std::vector<Diagnostic>& errors) {
  return fmt::format("{}{} error{}; nothing was started\n", FormatDiagnostics(errors), errors.size(),
                     errors.size() == 1 ? "" : "s");
}

}  // namespace leeway
