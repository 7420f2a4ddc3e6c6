#include "trainer/checkpoint/checkpoint_store.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/failpoint.h"
#include "base/logging.h"
#include "base/status_macros.h"
#include "trainer/pieces/piece_reader.h"

namespace leeway {
namespace {

constexpr char kLatest[] = "latest";
constexpr char kStepPrefix[] = "step-";
constexpr char kTemporaryPrefix[] = ".tmp-";

// Empty = not a checkpoint's name.
std::optional<uint64_t> StepOfName(const std::string& name) {
  uint64_t step = 0;
  if (!absl::StartsWith(name, kStepPrefix)) return std::nullopt;
  if (!absl::SimpleAtoi(name.substr(std::strlen(kStepPrefix)), &step)) return std::nullopt;
  return step;
}

}  // namespace

std::string CheckpointStore::PathOf(uint64_t step) const {
  return JoinPath(directory_, absl::StrCat(kStepPrefix, step));
}

std::string CheckpointStore::TemporaryOf(uint64_t step, uint64_t lineage) const {
  return JoinPath(directory_, absl::StrCat(kTemporaryPrefix, kStepPrefix, step, "-lineage-", lineage));
}

absl::StatusOr<std::optional<Checkpoint>> CheckpointStore::LoadNewest() {
  verified_steps_.clear();
  if (!files_->Exists(directory_)) return std::optional<Checkpoint>();
  LEEWAY_ASSIGN_OR_RETURN(const std::vector<std::string> names, files_->ListDirectory(directory_));
  std::vector<uint64_t> steps;
  for (const std::string& name : names) {
    if (const std::optional<uint64_t> step = StepOfName(name); step.has_value()) steps.push_back(*step);
    if (!absl::StartsWith(name, kTemporaryPrefix)) continue;
    LEEWAY_LOG_INFO("removing the unfinished checkpoint {}", JoinPath(directory_, name));
    const absl::Status removed = files_->RemoveAll(JoinPath(directory_, name));
    if (!removed.ok()) LEEWAY_LOG_WARNING("could not remove it: {}", removed.ToString());
  }
  std::sort(steps.rbegin(), steps.rend());
  std::optional<Checkpoint> newest;
  for (const uint64_t step : steps) {
    absl::StatusOr<Checkpoint> checkpoint = Load(PathOf(step));
    if (checkpoint.status().code() == absl::StatusCode::kInvalidArgument) return checkpoint.status();
    if (checkpoint.ok() && checkpoint->step != step) {
      checkpoint = absl::DataLossError(absl::StrCat(PathOf(step), " holds step ", checkpoint->step));
    }
    if (!checkpoint.ok()) {
      LEEWAY_LOG_ERROR("checkpoint {} is damaged or incomplete and is passed over: {}", PathOf(step),
                       checkpoint.status().ToString());
      continue;
    }
    verified_steps_.insert(verified_steps_.begin(), step);
    if (!newest.has_value()) newest = *std::move(checkpoint);
  }
  if (!newest.has_value() && !steps.empty()) {
    return absl::DataLossError(absl::StrCat("none of the ", steps.size(), " checkpoints in ", directory_,
                                            " is whole (the log says what is wrong with each); ",
                                            "put one back from a copy, or choose another run.name to start anew"));
  }
  return newest;
}

absl::StatusOr<Checkpoint> CheckpointStore::Load(const std::string& path) const {
  LEEWAY_RETURN_IF_ERROR(VerifyCheckpoint(files_, path));
  LEEWAY_RETURN_IF_ERROR(OpenCheckpoint(files_, path, layout_).status());
  return ReadCheckpoint(files_, path);
}

absl::StatusOr<std::string> CheckpointStore::Begin(uint64_t step, uint64_t lineage) {
  const std::string temporary = TemporaryOf(step, lineage);
  LEEWAY_RETURN_IF_ERROR(files_->RemoveAll(temporary));
  LEEWAY_RETURN_IF_ERROR(files_->CreateDirectory(temporary));
  return temporary;
}

absl::Status CheckpointStore::Complete(uint64_t step, const std::string& folder, const WrittenFiles& written) {
  LEEWAY_RETURN_IF_ERROR(WriteManifest(files_, folder, step, written));
  LEEWAY_FAILPOINT_STATUS("trainer_in_checkpoint");
  // The ranks have compared what they wrote; together it has to be everything.
  LEEWAY_RETURN_IF_ERROR(OpenCheckpoint(files_, folder, layout_).status());
  LEEWAY_ASSIGN_OR_RETURN(const Checkpoint read_back, ReadCheckpoint(files_, folder));
  if (read_back.step != step) return absl::DataLossError(absl::StrCat(folder, " holds step ", read_back.step));
  // Only a damaged folder, or one of an undone life of the run, can be in the way.
  LEEWAY_RETURN_IF_ERROR(files_->RemoveAll(PathOf(step)));
  LEEWAY_RETURN_IF_ERROR(files_->Rename(folder, PathOf(step)));
  std::erase_if(verified_steps_, [&](uint64_t verified) { return verified >= step; });
  verified_steps_.push_back(step);
  RemoveOld();
  // For people; a start looks at the folders.
  const absl::Status named =
      files_->WriteFileAtomically(JoinPath(directory_, kLatest), absl::StrCat(kStepPrefix, step, "\n"));
  if (!named.ok()) LEEWAY_LOG_WARNING("the checkpoint of step {} is in place, but {}", step, named.ToString());
  return absl::OkStatus();
}

void CheckpointStore::Abandon(const std::string& folder) {
  const absl::Status removed = files_->RemoveAll(folder);
  if (!removed.ok()) LEEWAY_LOG_WARNING("could not remove {}: {}", folder, removed.ToString());
}

void CheckpointStore::RemoveOld() {
  while (static_cast<int64_t>(verified_steps_.size()) > kept_) {
    const std::string path = PathOf(verified_steps_.front());
    const absl::Status removed = files_->RemoveAll(path);
    if (!removed.ok()) LEEWAY_LOG_WARNING("could not remove the old checkpoint {}: {}", path, removed.ToString());
    verified_steps_.erase(verified_steps_.begin());
  }
}

}  // namespace leeway
