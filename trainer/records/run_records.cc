#include "trainer/records/run_records.h"

#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "trainer/records/trajectory_records.h"

namespace leeway {
namespace {

std::string StepFile(const std::string& directory, uint64_t step) {
  return JoinPath(directory, absl::StrCat("step-", step, ".jsonl"));
}

}  // namespace

RunRecords::RunRecords(const TrainerOptions& options, FileSystem* files, const Clock* clock, const Tokenizer* tokenizer)
    : sample_(options.trajectories),
      files_(files),
      tokenizer_(tokenizer),
      schedule_path_(JoinPath(options.run_directory, "schedule.jsonl")),
      trajectories_path_(JoinPath(options.run_directory, "trajectories")),
      failed_steps_path_(JoinPath(options.run_directory, "failed_steps")),
      metrics_(files, JoinPath(options.run_directory, "metrics.jsonl"), options.evaluation_wait, clock) {}

absl::Status RunRecords::Open(uint64_t step, const std::vector<HeldLine>& held, bool has_checkpoint) {
  LEEWAY_RETURN_IF_ERROR(metrics_.Open(step, held, has_checkpoint));
  bool has_lines = false;
  uint64_t last_step = 0;
  LEEWAY_RETURN_IF_ERROR(TruncateToStep(files_, schedule_path_, step, has_checkpoint, &has_lines, &last_step));
  LEEWAY_RETURN_IF_ERROR(files_->CreateDirectory(trajectories_path_));
  LEEWAY_RETURN_IF_ERROR(RemoveStepFiles(trajectories_path_, step));
  return RemoveStepFiles(failed_steps_path_, step);
}

absl::Status RunRecords::RemoveStepFiles(const std::string& directory, uint64_t step) {
  if (!files_->Exists(directory)) return absl::OkStatus();
  LEEWAY_ASSIGN_OR_RETURN(const std::vector<std::string> names, files_->ListDirectory(directory));
  for (const std::string& name : names) {
    absl::string_view number = name;
    uint64_t of_file = 0;
    const bool is_ours = absl::ConsumePrefix(&number, "step-") && absl::ConsumeSuffix(&number, ".jsonl") &&
                         absl::SimpleAtoi(number, &of_file);
    if (is_ours && of_file > step) LEEWAY_RETURN_IF_ERROR(files_->RemoveAll(JoinPath(directory, name)));
  }
  return absl::OkStatus();
}

absl::Status RunRecords::AddBatch(uint64_t step, const LeasedBatch& batch) {
  LEEWAY_RETURN_IF_ERROR(files_->AppendToFile(schedule_path_, FormatScheduleLine(step, batch) + "\n"));
  const bool is_sampled = sample_.every > 0 && (step == 1 || step % static_cast<uint64_t>(sample_.every) == 0);
  if (!is_sampled) return absl::OkStatus();
  std::string lines;
  for (size_t g = 0; g < batch.groups.size() && g < static_cast<size_t>(sample_.groups); ++g) {
    for (const v1::Trajectory& member : batch.groups[g].members) {
      absl::StrAppend(&lines, FormatTrajectoryLine(step, member, *tokenizer_), "\n");
    }
  }
  return files_->WriteFileAtomically(StepFile(trajectories_path_, step), lines);
}

absl::Status RunRecords::AddFailedStep(uint64_t step, const std::string& lines) {
  LEEWAY_RETURN_IF_ERROR(files_->CreateDirectory(failed_steps_path_));
  return files_->WriteFileAtomically(StepFile(failed_steps_path_, step), lines);
}

}  // namespace leeway
