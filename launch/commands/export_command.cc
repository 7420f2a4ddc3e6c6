#include <stdio.h>

#include <algorithm>
#include <filesystem>

#include "base/file_system.h"
#include "base/status_macros.h"
#include "envs/registry.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "launch/commands/commands.h"
#include "launch/roles/task_options.h"
#include "launch/run/new_directory.h"
#include "launch/run/run_directory.h"
#include "model/model_files.h"
#include "tokenizer/hugging_face_tokenizer.h"
#include "trainer/checkpoint/checkpoint_manifest.h"
#include "trainer/pieces/piece_reader.h"

namespace leeway {
namespace {

std::string CheckpointPath(const RunPaths& paths, int64_t step) {
  return fmt::format("{}/step-{}", paths.checkpoints(), step);
}

// The weights of a checkpoint whose every file is what was written.
absl::StatusOr<std::vector<float>> ReadWeights(const std::string& path, const ModelShape& shape) {
  LEEWAY_RETURN_IF_ERROR(VerifyCheckpoint(RealFileSystem(), path));
  LEEWAY_ASSIGN_OR_RETURN(const PieceReader state, OpenCheckpoint(RealFileSystem(), path, ParameterLayout(shape)));
  return state.ReadParameters<float>();
}

struct Weights {
  int64_t step = 0;
  std::vector<float> parameters;
};

// Of the newest checkpoint that is whole, or of the one that is asked for. Damaged ones are named: on standard error
// where an older one is taken instead, else in the status (DATA_LOSS).
absl::StatusOr<Weights> FindWeights(const RunPaths& paths, int64_t wanted, const ModelShape& shape) {
  std::vector<int64_t> steps = CheckpointSteps(paths);
  if (steps.empty()) return absl::NotFoundError(fmt::format("{} has no checkpoint", paths.root));
  if (wanted >= 0) {
    if (std::find(steps.begin(), steps.end(), wanted) == steps.end()) {
      return absl::NotFoundError(fmt::format("{} has no checkpoint of step {}; of these it has: {}", paths.root, wanted,
                                             fmt::join(steps, ", ")));
    }
    std::erase_if(steps, [wanted](int64_t step) { return step != wanted; });
  }
  std::string damaged;
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    const std::string path = CheckpointPath(paths, *step);
    absl::StatusOr<std::vector<float>> parameters = ReadWeights(path, shape);
    if (parameters.ok()) {
      if (!damaged.empty()) fmt::print(stderr, "{}taking step {} instead\n", damaged, *step);
      return Weights{*step, *std::move(parameters)};
    }
    damaged += fmt::format("the checkpoint {} is damaged or incomplete: {}\n", path,
                           std::string(parameters.status().message()));
  }
  return absl::DataLossError(fmt::format("{}{}", damaged,
                                         wanted >= 0 ? "leave --step out for the newest one that is whole"
                                                     : "no other checkpoint is left; put one back from a copy"));
}

absl::Status Export(const ExportArguments& arguments) {
  const RunPaths paths(std::filesystem::absolute(FindRun(arguments.run)).lexically_normal().string());
  LEEWAY_ASSIGN_OR_RETURN(const Config config, ReadRunConfig(paths));
  LEEWAY_ASSIGN_OR_RETURN(const std::unique_ptr<Task> task, NewTask(TaskOptionsOf(config)));
  LEEWAY_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer, NewTokenizer(task->vocabulary()));
  ModelDirectory model;
  model.shape = ShapeOf(config, tokenizer->vocabulary_size());
  model.bos_token_id = tokenizer->beginning_id();
  model.eos_token_ids = {tokenizer->end_of_text_id()};
  // Before anything long: a folder that is taken.
  LEEWAY_ASSIGN_OR_RETURN(NewDirectory directory, NewDirectory::Begin(arguments.to));
  LEEWAY_ASSIGN_OR_RETURN(Weights weights, FindWeights(paths, arguments.step, model.shape));
  model.parameters = std::move(weights.parameters);
  FileSystem* const files = RealFileSystem();
  LEEWAY_RETURN_IF_ERROR(WriteModelDirectory(files, directory.unfinished(), model));
  LEEWAY_RETURN_IF_ERROR(
      files->WriteFileAtomically(JoinPath(directory.unfinished(), "tokenizer.json"), FormatTokenizerJson(*tokenizer)));
  LEEWAY_RETURN_IF_ERROR(files->WriteFileAtomically(JoinPath(directory.unfinished(), "tokenizer_config.json"),
                                                    FormatTokenizerConfig(model.shape.max_positions)));
  LEEWAY_RETURN_IF_ERROR(directory.Finish());
  fmt::print(
      "step {} of {} is in {}: {}, {} parameters in float32{}, {} vocabulary of {}\n", weights.step, paths.root,
      arguments.to, ModelFamilyName(model.shape.family), model.shape.ParameterCount(),
      config.GetString("model.dtype") == "bfloat16" ? " (the master copies, which the run rounds to bfloat16)" : "",
      tokenizer->name(), tokenizer->vocabulary_size());
  return absl::OkStatus();
}

}  // namespace

ExitCode ExportCommand(const ExportArguments& arguments) {
  const absl::Status status = Export(arguments);
  if (!status.ok()) fmt::print(stderr, "{}\n", std::string(status.message()));
  return ExitCodeOf(status);
}

}  // namespace leeway
