#include "trainer/checkpoint/checkpoint_store.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/failpoint.h"
#include "base/hash.h"
#include "base/logging.h"
#include "base/ndarray.h"
#include "base/status_macros.h"
#include "formats/safetensors.h"
#include "nlohmann/json.hpp"

namespace leeway {
namespace {

using nlohmann::json;

constexpr char kWeights[] = "weights.safetensors";
constexpr char kOptimizer[] = "optimizer.safetensors";
constexpr char kState[] = "state.json";
constexpr char kLedger[] = "ledger.bin";
constexpr char kRunState[] = "run_state.json";
constexpr char kManifest[] = "manifest.json";
constexpr char kLatest[] = "latest";
constexpr char kStepPrefix[] = "step-";
constexpr char kTemporaryPrefix[] = ".tmp-";

// Keys sorted, one value a line, a newline at the end.
std::string Text(const json& value) { return value.dump(1, ' ', false, json::error_handler_t::replace) + "\n"; }

// A view of values. Only read.
NamedTensor View(const std::string& name, const ParameterInfo& parameter, const float* values) {
  auto* const data = reinterpret_cast<std::byte*>(const_cast<float*>(values));
  return {name, NDArray(DType::kF32, parameter.shape, data, nullptr)};
}

std::string StateText(const Checkpoint& checkpoint) {
  json ranges = json::array();
  for (const auto& [first, last] : checkpoint.consumed.ranges()) ranges.push_back({first, last});
  return Text({{"step", checkpoint.step},
               {"version", checkpoint.step + 1},
               // Counter-based random numbers have no other state.
               {"random", {{"generator", "philox4x32-10"}, {"seed", checkpoint.seed}}},
               {"optimizer_updates", checkpoint.training.updates},
               {"skipped_steps", checkpoint.skipped_steps},
               {"consumed_tickets", ranges}});
}

std::string RunStateText(const Checkpoint& checkpoint) {
  json held = json::array();
  for (const HeldLine& line : checkpoint.held_lines) {
    held.push_back({{"step", line.step},
                    {"version", line.version},
                    {"awaits_evaluation", line.awaits_evaluation},
                    {"line", line.json}});
  }
  return Text({{"lineage", checkpoint.lineage},
               {"wall_seconds", checkpoint.wall_seconds},
               {"refused_groups", checkpoint.refused_groups},
               {"config", checkpoint.resolved_config},
               {"held_lines", held}});
}

// Both throw json::exception; see ParseWith.
void ParseState(const json& state, Checkpoint* checkpoint) {
  checkpoint->step = state.at("step").get<uint64_t>();
  checkpoint->seed = state.at("random").at("seed").get<uint64_t>();
  checkpoint->training.updates = state.at("optimizer_updates").get<int64_t>();
  checkpoint->skipped_steps = state.at("skipped_steps").get<uint64_t>();
  const auto ranges = state.at("consumed_tickets").get<std::vector<std::pair<uint64_t, uint64_t>>>();
  if (!checkpoint->consumed.Assign(ranges)) throw json::other_error::create(502, "ranges are not sorted", &state);
}

void ParseRunState(const json& state, Checkpoint* checkpoint) {
  checkpoint->lineage = state.at("lineage").get<uint64_t>();
  checkpoint->wall_seconds = state.at("wall_seconds").get<double>();
  checkpoint->refused_groups = state.value("refused_groups", uint64_t{0});  // older checkpoints have none
  checkpoint->resolved_config = state.at("config").get<std::string>();
  for (const json& line : state.at("held_lines")) {
    checkpoint->held_lines.push_back({line.at("step").get<uint64_t>(), line.at("version").get<uint64_t>(),
                                      line.at("awaits_evaluation").get<bool>(), line.at("line").get<std::string>()});
  }
}

// Runs a parser and turns what it throws into DATA_LOSS naming the file.
template <typename Parse>
absl::Status ParseWith(const std::string& path, const std::string& text, Parse parse) {
  try {
    parse(json::parse(text));
  } catch (const json::exception& error) {
    return absl::DataLossError(absl::StrCat(path, ": ", error.what()));
  }
  return absl::OkStatus();
}

// INVALID_ARGUMENT: not there, or not of the parameter's shape.
absl::StatusOr<NDArray> ReadTensor(const SafetensorsFile& file, const std::string& name,
                                   const ParameterInfo& parameter) {
  absl::StatusOr<NDArray> tensor = file.Tensor(name);
  if (!tensor.ok()) return absl::InvalidArgumentError(std::string(tensor.status().message()));
  if (tensor->dtype() != DType::kF32 || tensor->shape() != parameter.shape) {
    return absl::InvalidArgumentError(
        absl::StrCat(file.path(), ": ", name, " has another shape or dtype than the model"));
  }
  return tensor;
}

absl::Status ReadWeights(const std::string& path, const std::vector<ParameterInfo>& layout,
                         std::vector<float>* parameters) {
  LEEWAY_ASSIGN_OR_RETURN(const SafetensorsFile file, SafetensorsFile::Open(path));
  for (const ParameterInfo& parameter : layout) {
    LEEWAY_ASSIGN_OR_RETURN(const NDArray tensor, ReadTensor(file, parameter.name, parameter));
    const auto values = tensor.values<float>();
    parameters->insert(parameters->end(), values.begin(), values.end());
  }
  return absl::OkStatus();
}

// "<parameter>.<array>", as many as there are.
absl::Status ReadOptimizer(const std::string& path, const std::vector<ParameterInfo>& layout,
                           std::map<std::string, std::vector<float>>* arrays) {
  std::map<std::string, const ParameterInfo*> by_name;
  for (const ParameterInfo& parameter : layout) by_name[parameter.name] = &parameter;
  LEEWAY_ASSIGN_OR_RETURN(const SafetensorsFile file, SafetensorsFile::Open(path));
  for (const SafetensorsEntry& info : file.entries()) {
    const auto found = by_name.find(info.name.substr(0, info.name.rfind('.')));
    if (found == by_name.end()) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": ", info.name, " belongs to no parameter of the model"));
    }
    LEEWAY_ASSIGN_OR_RETURN(const NDArray tensor, ReadTensor(file, info.name, *found->second));
    const auto values = tensor.values<float>();
    (*arrays)[info.name].assign(values.begin(), values.end());
  }
  return absl::OkStatus();
}

// Digests of the checkpoint's files as they are on disk.
absl::StatusOr<json> DigestsOf(FileSystem* files, const std::string& path) {
  json digests = json::object();
  for (const char* name : {kWeights, kOptimizer, kState, kLedger, kRunState}) {
    LEEWAY_ASSIGN_OR_RETURN(const std::string content, files->ReadFile(JoinPath(path, name)));
    digests[name] = {{"bytes", content.size()}, {"digest", Digest128(content.data(), content.size())}};
  }
  return digests;
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

bool SameBits(const TrainingState& a, const TrainingState& b) {
  return SameBits(a.parameters, b.parameters) && a.updates == b.updates &&
         std::equal(a.optimizer.begin(), a.optimizer.end(), b.optimizer.begin(), b.optimizer.end(),
                    [](const auto& x, const auto& y) { return x.first == y.first && SameBits(x.second, y.second); });
}

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

absl::Status VerifyCheckpoint(FileSystem* files, const std::string& path) {
  LEEWAY_ASSIGN_OR_RETURN(const std::string manifest_text, files->ReadFile(JoinPath(path, kManifest)));
  json expected;
  LEEWAY_RETURN_IF_ERROR(ParseWith(JoinPath(path, kManifest), manifest_text,
                                   [&](const json& manifest) { expected = manifest.at("files"); }));
  LEEWAY_ASSIGN_OR_RETURN(const json actual, DigestsOf(files, path));
  if (actual != expected) {
    std::string damaged;
    for (const auto& [name, digest] : actual.items()) {
      if (!expected.is_object() || expected.value(name, json()) != digest)
        absl::StrAppend(&damaged, damaged.empty() ? "" : ", ", name);
    }
    return absl::DataLossError(absl::StrCat("sizes or digests differ from ", kManifest, ": ",
                                            damaged.empty() ? "a file is missing" : damaged));
  }
  return absl::OkStatus();
}

absl::StatusOr<Checkpoint> CheckpointStore::Load(const std::string& path) const {
  LEEWAY_RETURN_IF_ERROR(VerifyCheckpoint(files_, path));
  Checkpoint checkpoint;
  LEEWAY_ASSIGN_OR_RETURN(const std::string state, files_->ReadFile(JoinPath(path, kState)));
  LEEWAY_RETURN_IF_ERROR(
      ParseWith(JoinPath(path, kState), state, [&](const json& value) { ParseState(value, &checkpoint); }));
  LEEWAY_ASSIGN_OR_RETURN(const std::string run_state, files_->ReadFile(JoinPath(path, kRunState)));
  LEEWAY_RETURN_IF_ERROR(
      ParseWith(JoinPath(path, kRunState), run_state, [&](const json& value) { ParseRunState(value, &checkpoint); }));
  LEEWAY_ASSIGN_OR_RETURN(checkpoint.ledger, files_->ReadFile(JoinPath(path, kLedger)));
  LEEWAY_RETURN_IF_ERROR(ReadWeights(JoinPath(path, kWeights), layout_, &checkpoint.training.parameters));
  LEEWAY_RETURN_IF_ERROR(ReadOptimizer(JoinPath(path, kOptimizer), layout_, &checkpoint.training.optimizer));
  return checkpoint;
}

absl::Status CheckpointStore::Write(const Checkpoint& checkpoint, const std::string& path) const {
  const TrainingState& training = checkpoint.training;
  std::vector<NamedTensor> weights;
  std::map<std::string, const ParameterInfo*> by_name;
  for (const ParameterInfo& parameter : layout_) {
    weights.push_back(View(parameter.name, parameter, training.parameters.data() + parameter.offset));
    by_name[parameter.name] = &parameter;
  }
  std::vector<NamedTensor> arrays;
  for (const auto& [name, values] : training.optimizer) {
    arrays.push_back(View(name, *by_name.at(name.substr(0, name.rfind('.'))), values.data()));
  }
  LEEWAY_RETURN_IF_ERROR(WriteSafetensors(files_, JoinPath(path, kWeights), weights));
  LEEWAY_RETURN_IF_ERROR(WriteSafetensors(files_, JoinPath(path, kOptimizer), arrays));
  LEEWAY_RETURN_IF_ERROR(files_->WriteFileAtomically(JoinPath(path, kState), StateText(checkpoint)));
  LEEWAY_RETURN_IF_ERROR(files_->WriteFileAtomically(JoinPath(path, kLedger), checkpoint.ledger));
  LEEWAY_RETURN_IF_ERROR(files_->WriteFileAtomically(JoinPath(path, kRunState), RunStateText(checkpoint)));
  LEEWAY_FAILPOINT_STATUS("trainer_in_checkpoint");
  LEEWAY_ASSIGN_OR_RETURN(const json digests, DigestsOf(files_, path));
  return files_->WriteFileAtomically(JoinPath(path, kManifest), Text({{"step", checkpoint.step}, {"files", digests}}));
}

absl::Status CheckpointStore::Save(const Checkpoint& checkpoint) {
  const std::string name = absl::StrCat(kStepPrefix, checkpoint.step);
  const std::string temporary = JoinPath(directory_, absl::StrCat(kTemporaryPrefix, name));
  LEEWAY_RETURN_IF_ERROR(files_->RemoveAll(temporary));
  LEEWAY_RETURN_IF_ERROR(files_->CreateDirectory(temporary));
  LEEWAY_RETURN_IF_ERROR(Write(checkpoint, temporary));
  LEEWAY_ASSIGN_OR_RETURN(const Checkpoint read_back, Load(temporary));
  const bool is_same = SameBits(read_back.training, checkpoint.training) &&
                       StateText(read_back) == StateText(checkpoint) &&
                       RunStateText(read_back) == RunStateText(checkpoint) && read_back.ledger == checkpoint.ledger;
  if (!is_same) return absl::DataLossError(absl::StrCat(temporary, ": read back other bytes than were written"));
  // Only a damaged folder, or one of an undone life of the run, can be in the way.
  LEEWAY_RETURN_IF_ERROR(files_->RemoveAll(PathOf(checkpoint.step)));
  LEEWAY_RETURN_IF_ERROR(files_->Rename(temporary, PathOf(checkpoint.step)));
  LEEWAY_RETURN_IF_ERROR(files_->WriteFileAtomically(JoinPath(directory_, kLatest), name + "\n"));
  std::erase_if(verified_steps_, [&](uint64_t step) { return step >= checkpoint.step; });
  verified_steps_.push_back(checkpoint.step);
  RemoveOld();
  return absl::OkStatus();
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
