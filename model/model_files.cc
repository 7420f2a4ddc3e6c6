#include "model/model_files.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/ndarray.h"
#include "base/status_macros.h"
#include "formats/strict_json.h"

namespace leeway {
namespace {

constexpr char kConfigFile[] = "config.json";
constexpr char kGenerationFile[] = "generation_config.json";
constexpr char kWeightsFile[] = "model.safetensors";
constexpr char kIndexFile[] = "model.safetensors.index.json";
constexpr size_t kFaultsListed = 8;

float WidenBFloat16(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &wide, sizeof(value));
  return value;
}

float WidenHalf(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1fu;
  const uint32_t mantissa = bits & 0x3ffu;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return sign != 0 ? -magnitude : magnitude;
  }
  const uint32_t wide = sign | (exponent == 31 ? 0x7f800000u : (exponent + 112) << 23) | mantissa << 13;
  float value;
  std::memcpy(&value, &wide, sizeof(value));
  return value;
}

bool IsReadable(DType dtype) { return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16; }

absl::Status CopyWidened(const NDArray& array, const std::string& name, float* to) {
  const size_t count = static_cast<size_t>(array.element_count());
  switch (array.dtype()) {
    case DType::kF32:
      std::memcpy(to, array.data(), count * sizeof(float));
      return absl::OkStatus();
    case DType::kBF16:
    case DType::kF16:
      for (size_t i = 0; i < count; ++i) {
        uint16_t bits;
        std::memcpy(&bits, array.data() + i * sizeof(bits), sizeof(bits));
        to[i] = array.dtype() == DType::kBF16 ? WidenBFloat16(bits) : WidenHalf(bits);
      }
      return absl::OkStatus();
    default:
      return absl::InvalidArgumentError(absl::StrCat(name, " has dtype ", std::string(DTypeName(array.dtype())),
                                                     "; weights must be F32, BF16 or F16"));
  }
}

bool EndsWith(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

std::string Listed(const std::vector<std::string>& names) {
  if (names.size() <= kFaultsListed) return absl::StrJoin(names, ", ");
  const std::vector<std::string> first(names.begin(), names.begin() + kFaultsListed);
  return absl::StrCat(absl::StrJoin(first, ", "), " and ", names.size() - kFaultsListed, " more");
}

// What a model.safetensors.index.json says.
struct WeightIndex {
  std::string path;  // empty: there is none, all tensors lie in one file
  std::vector<std::string> files;
  std::map<std::string, std::string> file_of_tensor;
};

absl::StatusOr<WeightIndex> ReadIndex(const std::string& directory) {
  FileSystem* const files = RealFileSystem();
  WeightIndex result;
  if (files->Exists(JoinPath(directory, kWeightsFile))) {
    result.files = {kWeightsFile};
    return result;
  }
  result.path = JoinPath(directory, kIndexFile);
  if (!files->Exists(result.path)) {
    return absl::NotFoundError(absl::StrCat(directory, " has neither ", kWeightsFile, " nor ", kIndexFile));
  }
  LEEWAY_ASSIGN_OR_RETURN(const std::string text, files->ReadFile(result.path));
  LEEWAY_ASSIGN_OR_RETURN(const nlohmann::json index, ParseStrictJson(text, result.path));
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(result.path, ": expected an object with an object \"weight_map\""));
  }
  std::set<std::string> names;
  for (const auto& [tensor, file] : index["weight_map"].items()) {
    const std::string name = file.is_string() ? file.get<std::string>() : "";
    if (name.empty() || name.find('/') != std::string::npos) {
      return absl::InvalidArgumentError(absl::StrCat(result.path, ": weight_map.\"", tensor, "\" is not a file name"));
    }
    names.insert(name);
    result.file_of_tensor[tensor] = name;
  }
  result.files.assign(names.begin(), names.end());
  return result;
}

const SafetensorsFile* HolderOf(const std::string& name, absl::Span<const SafetensorsFile> files) {
  const auto holder =
      std::find_if(files.begin(), files.end(), [&](const SafetensorsFile& f) { return f.Contains(name); });
  return holder == files.end() ? nullptr : &*holder;
}

// Names of tensors by what is wrong with them.
struct TensorFaults {
  std::vector<std::string> missing, misshapen, mistyped, unexpected, repeated;

  bool any() const {
    return !(missing.empty() && misshapen.empty() && mistyped.empty() && unexpected.empty() && repeated.empty());
  }
  std::string ToString() const {
    std::vector<std::string> parts;
    const auto add = [&](const char* what, const std::vector<std::string>& names) {
      if (!names.empty()) parts.push_back(absl::StrCat(what, ": ", Listed(names)));
    };
    add("missing", missing);
    add("wrong shape", misshapen);
    add("not F32, BF16 or F16", mistyped);
    add("unexpected", unexpected);
    add("in two files", repeated);
    return absl::StrJoin(parts, "; ");
  }
};

// Whether the files hold the tensors of this shape, no others, in types that can be read. Touches no tensor bytes.
absl::Status CheckTensors(const ModelShape& shape, absl::Span<const SafetensorsFile> files) {
  std::set<std::string> known;
  TensorFaults faults;
  for (const ParameterInfo& info : ParameterLayout(shape)) {
    known.insert(info.name);
    const SafetensorsFile* const holder = HolderOf(info.name, files);
    if (holder == nullptr) {
      faults.missing.push_back(info.name);
      continue;
    }
    LEEWAY_ASSIGN_OR_RETURN(const NDArray array, holder->Tensor(info.name));
    if (array.shape() != info.shape) {
      faults.misshapen.push_back(absl::StrCat(info.name, " is [", absl::StrJoin(array.shape(), ", "), "], expected [",
                                              absl::StrJoin(info.shape, ", "), "]"));
    }
    if (!IsReadable(array.dtype())) {
      faults.mistyped.push_back(absl::StrCat(info.name, " is ", std::string(DTypeName(array.dtype()))));
    }
  }
  std::set<std::string> seen;
  for (const SafetensorsFile& file : files) {
    for (const SafetensorsEntry& entry : file.entries()) {
      if (!seen.insert(entry.name).second) faults.repeated.push_back(entry.name);
      if (known.count(entry.name) > 0) continue;
      // Constants that old releases stored, and the second name of a tied head.
      if (EndsWith(entry.name, "rotary_emb.inv_freq") || (shape.tied_head && entry.name == "lm_head.weight")) continue;
      faults.unexpected.push_back(entry.name);
    }
  }
  if (!faults.any()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(files.empty() ? "no weight files" : files[0].path(),
                                                 " does not hold the weights that config.json describes; ",
                                                 faults.ToString()));
}

// Whether every tensor lies where the index says.
absl::Status CheckIndex(const WeightIndex& index, const std::string& directory,
                        absl::Span<const SafetensorsFile> files) {
  std::vector<std::string> elsewhere;
  for (const auto& [tensor, name] : index.file_of_tensor) {
    const std::string path = JoinPath(directory, name);
    const auto file = std::find_if(files.begin(), files.end(), [&](const auto& f) { return f.path() == path; });
    if (file == files.end() || !file->Contains(tensor)) elsewhere.push_back(absl::StrCat(tensor, " in ", name));
  }
  if (elsewhere.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(index.path, " names tensors that are not there: ", Listed(elsewhere)));
}

struct OpenDirectory {
  ModelConfig config;
  ModelShape shape;
  std::vector<SafetensorsFile> files;
};

// Reads config.json and the weight files' headers.
absl::StatusOr<OpenDirectory> Open(const std::string& directory) {
  OpenDirectory open;
  LEEWAY_ASSIGN_OR_RETURN(open.config, ReadModelConfig(directory));
  LEEWAY_ASSIGN_OR_RETURN(open.shape, ShapeOf(open.config));
  LEEWAY_ASSIGN_OR_RETURN(const WeightIndex index, ReadIndex(directory));
  for (const std::string& name : index.files) {
    LEEWAY_ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::Open(JoinPath(directory, name)));
    open.files.push_back(std::move(file));
  }
  LEEWAY_RETURN_IF_ERROR(CheckIndex(index, directory, open.files));
  return open;
}

}  // namespace

absl::StatusOr<ModelShape> ShapeOf(const ModelConfig& config) {
  if (config.rope.type != RopeType::kDefault) {
    return absl::UnimplementedError(
        absl::StrCat("config.json: rope_type '", RopeTypeName(config.rope.type),
                     "' stretches rotary positions, which is not supported; use a model with rope_type 'default'"));
  }
  const ModelShape shape = {.vocabulary = config.vocab_size,
                            .hidden = config.hidden_size,
                            .layers = config.num_hidden_layers,
                            .heads = config.num_attention_heads,
                            .key_value_heads = config.num_key_value_heads,
                            .head_dim = config.head_dim,
                            .intermediate = config.intermediate_size,
                            .max_positions = config.max_position_embeddings,
                            .rope_theta = config.rope.theta,
                            .rms_epsilon = config.rms_norm_eps,
                            .tied_head = config.tie_word_embeddings,
                            .family = config.model_type};
  LEEWAY_RETURN_IF_ERROR(shape.Validate());
  return shape;
}

ModelConfig ConfigOf(const ModelShape& shape) {
  ModelConfig config;
  config.model_type = shape.family;
  config.vocab_size = shape.vocabulary;
  config.hidden_size = shape.hidden;
  config.num_hidden_layers = shape.layers;
  config.num_attention_heads = shape.heads;
  config.num_key_value_heads = shape.key_value_heads;
  config.head_dim = shape.head_dim;
  config.intermediate_size = shape.intermediate;
  config.max_position_embeddings = shape.max_positions;
  config.rope.theta = shape.rope_theta;
  config.rms_norm_eps = shape.rms_epsilon;
  config.tie_word_embeddings = shape.tied_head;
  return config;
}

std::vector<NamedTensor> ParameterTensors(const ModelShape& shape, absl::Span<const float> flat) {
  LEEWAY_CHECK(static_cast<int64_t>(flat.size()) == shape.ParameterCount()) << flat.size();
  std::vector<NamedTensor> tensors;
  for (const ParameterInfo& info : ParameterLayout(shape)) {
    // NDArray has no read-only form; nobody writes through these.
    std::byte* bytes = reinterpret_cast<std::byte*>(const_cast<float*>(flat.data() + info.offset));
    tensors.push_back({info.name, NDArray(DType::kF32, info.shape, bytes, nullptr)});
  }
  return tensors;
}

absl::StatusOr<std::vector<float>> ReadParameters(const ModelShape& shape, absl::Span<const SafetensorsFile> files) {
  LEEWAY_RETURN_IF_ERROR(CheckTensors(shape, files));
  std::vector<float> flat(static_cast<size_t>(shape.ParameterCount()));
  for (const ParameterInfo& info : ParameterLayout(shape)) {
    const SafetensorsFile& holder = *HolderOf(info.name, files);
    LEEWAY_ASSIGN_OR_RETURN(const NDArray array, holder.Tensor(info.name));
    LEEWAY_RETURN_IF_ERROR(CopyWidened(array, absl::StrCat(holder.path(), ": ", info.name), flat.data() + info.offset));
  }
  return flat;
}

absl::StatusOr<ModelConfig> ReadModelConfig(const std::string& directory) {
  std::error_code error;
  if (!std::filesystem::is_directory(directory, error)) {
    return absl::NotFoundError(absl::StrCat("no such folder: ", directory));
  }
  const std::string path = JoinPath(directory, kConfigFile);
  LEEWAY_ASSIGN_OR_RETURN(const std::string text, RealFileSystem()->ReadFile(path));
  return ParseModelConfig(text, path);
}

absl::Status CheckModelDirectory(const std::string& directory) {
  LEEWAY_ASSIGN_OR_RETURN(const OpenDirectory open, Open(directory));
  return CheckTensors(open.shape, open.files);
}

absl::StatusOr<ModelDirectory> ReadModelDirectory(const std::string& directory) {
  LEEWAY_ASSIGN_OR_RETURN(const OpenDirectory open, Open(directory));
  ModelDirectory model;
  model.shape = open.shape;
  model.bos_token_id = open.config.bos_token_id;
  model.eos_token_ids = open.config.eos_token_ids;
  LEEWAY_ASSIGN_OR_RETURN(model.parameters, ReadParameters(model.shape, open.files));
  return model;
}

absl::Status WriteModelDirectory(FileSystem* file_system, const std::string& directory, const ModelDirectory& model) {
  LEEWAY_RETURN_IF_ERROR(model.shape.Validate());
  if (model.shape.family == ModelFamily::kLlama && model.shape.hidden % model.shape.heads != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "transformers loads no Llama model whose hidden size is not a multiple of its heads: model.hidden = ",
        model.shape.hidden, ", model.heads = ", model.shape.heads));
  }
  LEEWAY_RETURN_IF_ERROR(file_system->CreateDirectory(directory));
  ModelConfig config = ConfigOf(model.shape);
  config.bos_token_id = model.bos_token_id;
  config.eos_token_ids = model.eos_token_ids;
  LEEWAY_RETURN_IF_ERROR(WriteSafetensors(file_system, JoinPath(directory, kWeightsFile),
                                          ParameterTensors(model.shape, model.parameters), {{"format", "pt"}}));
  LEEWAY_RETURN_IF_ERROR(
      file_system->WriteFileAtomically(JoinPath(directory, kGenerationFile), FormatGenerationConfig(config)));
  return file_system->WriteFileAtomically(JoinPath(directory, kConfigFile), FormatModelConfig(config));
}

}  // namespace leeway
