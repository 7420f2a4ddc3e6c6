#include "formats/model_config.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "formats/strict_json.h"

namespace leeway {
namespace {

using Json = nlohmann::json;

// Takes values out of a JSON object and collects what is wrong with them.
class ConfigReader {
 public:
  // `prefix` goes before each key in messages. Both pointers outlive the reader.
  ConfigReader(const Json* object, std::string prefix, std::vector<std::string>* faults)
      : object_(object), prefix_(std::move(prefix)), faults_(faults) {}

  // The value, unless it is absent or null.
  const Json* Find(const char* key) const {
    const auto found = object_->find(key);
    return found == object_->end() || found->is_null() ? nullptr : &*found;
  }

  // Whether the key is there, null or not.
  bool Has(const char* key) const { return object_->contains(key); }

  int64_t Integer(const char* key, std::optional<int64_t> fallback, int64_t smallest) const {
    const Json* const value = Find(key);
    if (value == nullptr) {
      if (!fallback.has_value()) Fault(key, "is missing");
      return fallback.value_or(smallest);
    }
    const bool fits = value->is_number_integer() &&
                      !(value->is_number_unsigned() && value->get<uint64_t>() > std::numeric_limits<int64_t>::max());
    if (!fits || value->get<int64_t>() < smallest) {
      Fault(key, absl::StrCat("is ", value->dump(), ", expected a whole number from ", smallest));
      return smallest;
    }
    return value->get<int64_t>();
  }

  double Positive(const char* key, std::optional<double> fallback) const {
    const Json* const value = Find(key);
    if (value == nullptr) {
      if (!fallback.has_value()) Fault(key, "is missing");
      return fallback.value_or(1.0);
    }
    const double number = value->is_number() ? value->get<double>() : 0.0;
    if (!(number > 0.0) || !std::isfinite(number)) {
      Fault(key, absl::StrCat("is ", value->dump(), ", expected a positive number"));
      return 1.0;
    }
    return number;
  }

  bool Boolean(const char* key, bool fallback) const {
    const Json* const value = Find(key);
    if (value == nullptr) return fallback;
    if (!value->is_boolean()) Fault(key, absl::StrCat("is ", value->dump(), ", expected true or false"));
    return value->is_boolean() && value->get<bool>();
  }

  std::string String(const char* key, const std::string& fallback) const {
    const Json* const value = Find(key);
    if (value == nullptr) return fallback;
    if (!value->is_string()) {
      Fault(key, absl::StrCat("is ", value->dump(), ", expected a string"));
      return fallback;
    }
    return value->get<std::string>();
  }

  // A number or a list of numbers.
  std::vector<int64_t> IntegerOrList(const char* key) const {
    const Json* const value = Find(key);
    std::vector<int64_t> numbers;
    if (value == nullptr) return numbers;
    const Json list = value->is_array() ? *value : Json::array({*value});
    for (const Json& number : list) {
      if (!number.is_number_unsigned() || number.get<uint64_t>() > std::numeric_limits<int64_t>::max()) {
        Fault(key, absl::StrCat("is ", value->dump(), ", expected a token id or a list of them"));
        return {};
      }
      numbers.push_back(number.get<int64_t>());
    }
    return numbers;
  }

  void Fault(const char* key, const std::string& what) const {
    faults_->push_back(absl::StrCat("'", prefix_, key, "' ", what));
  }

  // A fault for every key that is not in `known`.
  void RefuseOtherKeys(const std::vector<std::string>& known) const {
    for (const auto& [key, value] : object_->items()) {
      if (std::find(known.begin(), known.end(), key) == known.end())
        Fault(key.c_str(), absl::StrCat("is ", value.dump(), ", which is not known here"));
    }
  }

 private:
  const Json* object_;
  std::string prefix_;
  std::vector<std::string>* faults_;
};

void RefusePartialRotation(const ConfigReader& reader) {
  if (reader.Positive("partial_rotary_factor", 1.0) != 1.0) {
    reader.Fault("partial_rotary_factor", "is not 1: heads are rotated as a whole here; use another model");
  }
}

// The dictionary of either style: rope_scaling, or rope_parameters (which also holds the theta).
RopeConfig ReadRopeDictionary(const Json& dictionary, const char* name, double theta,
                              std::vector<std::string>* faults) {
  RopeConfig rope;
  rope.theta = theta;
  if (!dictionary.is_object()) {
    faults->push_back(absl::StrCat("'", name, "' is ", dictionary.dump(), ", expected an object or null"));
    return rope;
  }
  const ConfigReader reader(&dictionary, absl::StrCat(name, "."), faults);
  // `type` is the older spelling of `rope_type`; files may hold both.
  const std::string type = reader.String("rope_type", reader.String("type", "default"));
  if (type == "default") {
    rope.type = RopeType::kDefault;
    // What is there besides would be for a kind of positions that the name does not tell, or for single layers.
    reader.RefuseOtherKeys({"rope_theta", "rope_type", "type", "partial_rotary_factor"});
  } else if (type == "linear") {
    rope.type = RopeType::kLinear;
    rope.factor = reader.Positive("factor", std::nullopt);
  } else if (type == "llama3") {
    rope.type = RopeType::kLlama3;
    rope.factor = reader.Positive("factor", std::nullopt);
    rope.low_freq_factor = reader.Positive("low_freq_factor", std::nullopt);
    rope.high_freq_factor = reader.Positive("high_freq_factor", std::nullopt);
    rope.original_max_position_embeddings = reader.Integer("original_max_position_embeddings", std::nullopt, 1);
  } else {
    reader.Fault("rope_type",
                 absl::StrCat("is '", type, "', which is not supported (supported: default, linear, llama3)"));
  }
  RefusePartialRotation(reader);
  return rope;
}

bool IsSame(const RopeConfig& a, const RopeConfig& b) {
  return a.type == b.type && a.theta == b.theta && a.factor == b.factor && a.low_freq_factor == b.low_freq_factor &&
         a.high_freq_factor == b.high_freq_factor &&
         a.original_max_position_embeddings == b.original_max_position_embeddings;
}

RopeConfig ReadRope(const ConfigReader& reader, std::vector<std::string>* faults) {
  constexpr double kDefaultTheta = 10000.0;
  const double theta = reader.Positive("rope_theta", kDefaultTheta);
  const Json* const scaling = reader.Find("rope_scaling");
  const Json* const parameters = reader.Find("rope_parameters");

  RopeConfig old_style;
  old_style.theta = theta;
  if (scaling != nullptr) old_style = ReadRopeDictionary(*scaling, "rope_scaling", theta, faults);
  if (parameters == nullptr) return old_style;

  double new_theta = theta;
  if (parameters->is_object()) {
    new_theta = ConfigReader(parameters, "rope_parameters.", faults).Positive("rope_theta", theta);
  }
  const RopeConfig new_style = ReadRopeDictionary(*parameters, "rope_parameters", new_theta, faults);
  const bool has_old_style = scaling != nullptr || reader.Find("rope_theta") != nullptr;
  // An old style of which only the theta is written leaves the type to the new one.
  RopeConfig comparable = new_style;
  if (scaling == nullptr) {
    comparable = RopeConfig{};
    comparable.theta = new_style.theta;
  }
  if (has_old_style && !IsSame(old_style, comparable)) {
    reader.Fault("rope_parameters", "contradicts rope_theta and rope_scaling; keep one style");
  }
  return new_style;
}

std::string ReadDType(const ConfigReader& reader) {
  const std::string old_name = reader.String("torch_dtype", "");
  const std::string new_name = reader.String("dtype", "");
  if (!old_name.empty() && !new_name.empty() && old_name != new_name) {
    reader.Fault("dtype", absl::StrCat("is '", new_name, "', but 'torch_dtype' is '", old_name, "'"));
  }
  const std::string dtype = !new_name.empty() ? new_name : !old_name.empty() ? old_name : "float32";
  if (dtype != "float32" && dtype != "bfloat16" && dtype != "float16") {
    reader.Fault(new_name.empty() ? "torch_dtype" : "dtype",
                 absl::StrCat("is '", dtype, "', expected float32, bfloat16 or float16"));
  }
  return dtype;
}

// "LlamaForCausalLM".
std::string ArchitectureOf(ModelFamily family) {
  switch (family) {
    case ModelFamily::kLlama:
      return "LlamaForCausalLM";
    case ModelFamily::kQwen2:
      return "Qwen2ForCausalLM";
    case ModelFamily::kQwen3:
      return "Qwen3ForCausalLM";
  }
  return "";
}

ModelFamily ReadFamily(const ConfigReader& reader) {
  ModelFamily family = ModelFamily::kLlama;
  const std::string supported = absl::StrJoin(ModelFamilyNames(), ", ");
  const std::string model_type = reader.String("model_type", "");
  if (model_type.empty()) {
    reader.Fault("model_type", absl::StrCat("is missing; expected one of ", supported));
  } else if (!ParseModelFamily(model_type, &family)) {
    reader.Fault("model_type", absl::StrCat("is '", model_type, "', which is not supported (supported: ", supported,
                                            "); use a model of one of these families"));
    return family;
  }
  const Json* const architectures = reader.Find("architectures");
  if (architectures != nullptr && *architectures != Json::array({ArchitectureOf(family)})) {
    reader.Fault("architectures", absl::StrCat("is ", architectures->dump(), ", expected [\"", ArchitectureOf(family),
                                               "\"]; export the language model itself"));
  }
  return family;
}

// Qwen's windows of attention: they are in use where a layer has one.
void RefuseWindows(const ConfigReader& reader, ModelFamily family, int64_t layers) {
  constexpr char kRemedy[] = "attention sees all earlier tokens here; use a model without sliding windows";
  if (family == ModelFamily::kLlama) {
    if (reader.Find("sliding_window") != nullptr) reader.Fault("sliding_window", absl::StrCat("is set: ", kRemedy));
    return;
  }
  const Json* const types = reader.Find("layer_types");
  if (types != nullptr) {
    const bool all_full = types->is_array() && std::all_of(types->begin(), types->end(), [](const Json& type) {
                            return type.is_string() && type.get<std::string>() == "full_attention";
                          });
    if (!all_full) {
      reader.Fault("layer_types",
                   absl::StrCat("is ", types->dump(), ", expected \"full_attention\" everywhere: ", kRemedy));
    }
    return;
  }
  constexpr int64_t kDefaultMaxWindowLayers = 28;
  if (reader.Boolean("use_sliding_window", false) &&
      (reader.Find("sliding_window") != nullptr || !reader.Has("sliding_window")) &&
      reader.Integer("max_window_layers", kDefaultMaxWindowLayers, 0) < layers) {
    reader.Fault("use_sliding_window", absl::StrCat("is true: ", kRemedy));
  }
}

// What changes the computation and exists in other members of the families.
void RefuseUnsupported(const ConfigReader& reader, ModelFamily family, int64_t layers) {
  // Qwen2 has no such key: its biases are the family's own.
  if (family != ModelFamily::kQwen2 && reader.Boolean("attention_bias", false)) {
    reader.Fault("attention_bias", "is true: biases are not supported in this family; use a model without them");
  }
  if (reader.Boolean("mlp_bias", false)) {
    reader.Fault("mlp_bias", "is true: biases are not supported here; use a model without them");
  }
  const std::string activation = reader.String("hidden_act", "silu");
  if (activation != "silu") {
    reader.Fault("hidden_act", absl::StrCat("is '", activation, "', expected silu; use a model with this activation"));
  }
  const Json* const dropout = reader.Find("attention_dropout");
  if (dropout != nullptr && (!dropout->is_number() || dropout->get<double>() != 0.0)) {
    reader.Fault("attention_dropout", absl::StrCat("is ", dropout->dump(),
                                                   ", expected 0: nothing is dropped in training "
                                                   "here; set it to 0 if that is what you want"));
  }
  RefusePartialRotation(reader);
  RefuseWindows(reader, family, layers);
  if (reader.Find("quantization_config") != nullptr) {
    reader.Fault("quantization_config", "is set: quantised weights are not supported; save the model dequantised");
  }
  if (reader.Find("auto_map") != nullptr) {
    reader.Fault("auto_map", "is set: the model brings code of its own, which is not run; use a model without it");
  }
  if (!reader.Boolean("is_causal", true)) {
    reader.Fault("is_causal", "is false: only causal attention is supported; use a language model");
  }
}

int64_t ReadKeyValueHeads(const ConfigReader& reader, const ModelConfig& config) {
  constexpr int64_t kQwenDefault = 32;
  const bool is_absent = !reader.Has("num_key_value_heads");
  return reader.Integer(
      "num_key_value_heads",
      is_absent && config.model_type != ModelFamily::kLlama ? kQwenDefault : config.num_attention_heads, 1);
}

int64_t ReadHeadDim(const ConfigReader& reader, const ModelConfig& config) {
  constexpr int64_t kQwen3Default = 128;
  if (config.model_type == ModelFamily::kQwen3) return reader.Integer("head_dim", kQwen3Default, 1);
  if (reader.Find("head_dim") == nullptr && config.hidden_size % config.num_attention_heads != 0) {
    reader.Fault("hidden_size", absl::StrCat("is ", config.hidden_size, ", not a multiple of num_attention_heads ",
                                             config.num_attention_heads, ", and head_dim is not given"));
  }
  return reader.Integer("head_dim", config.hidden_size / config.num_attention_heads, 1);
}

void CheckSizes(const ModelConfig& config, const ConfigReader& reader) {
  if (config.num_attention_heads % config.num_key_value_heads != 0) {
    reader.Fault("num_attention_heads",
                 absl::StrCat("is ", config.num_attention_heads, ", not a multiple of num_key_value_heads ",
                              config.num_key_value_heads));
  }
  if (config.head_dim % 2 != 0) {
    reader.Fault("head_dim", absl::StrCat("is ", config.head_dim, ": rotary positions need an even number"));
  }
}

// What both files say about the special tokens.
nlohmann::ordered_json TokenIds(const ModelConfig& config) {
  nlohmann::ordered_json json;
  json["bos_token_id"] = nullptr;
  if (config.bos_token_id.has_value()) json["bos_token_id"] = *config.bos_token_id;
  json["eos_token_id"] = nullptr;
  if (config.eos_token_ids.size() == 1) json["eos_token_id"] = config.eos_token_ids[0];
  if (config.eos_token_ids.size() > 1) json["eos_token_id"] = config.eos_token_ids;
  return json;
}

}  // namespace

const char* RopeTypeName(RopeType type) {
  switch (type) {
    case RopeType::kDefault:
      return "default";
    case RopeType::kLinear:
      return "linear";
    case RopeType::kLlama3:
      return "llama3";
  }
  return "";
}

absl::StatusOr<ModelConfig> ParseModelConfig(absl::string_view text, const std::string& path) {
  LEEWAY_ASSIGN_OR_RETURN(const Json json, ParseStrictJson(text, path));
  if (!json.is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": is ", json.type_name(), ", expected an object"));
  }
  std::vector<std::string> faults;
  const ConfigReader reader(&json, "", &faults);
  constexpr double kDefaultEpsilon = 1e-6;
  ModelConfig config;
  config.model_type = ReadFamily(reader);
  const bool is_llama = config.model_type == ModelFamily::kLlama;
  config.vocab_size = reader.Integer("vocab_size", std::nullopt, 1);
  config.hidden_size = reader.Integer("hidden_size", std::nullopt, 1);
  config.intermediate_size = reader.Integer("intermediate_size", std::nullopt, 1);
  config.num_hidden_layers = reader.Integer("num_hidden_layers", std::nullopt, 1);
  config.num_attention_heads = reader.Integer("num_attention_heads", std::nullopt, 1);
  config.num_key_value_heads = ReadKeyValueHeads(reader, config);
  config.head_dim = ReadHeadDim(reader, config);
  config.max_position_embeddings = reader.Integer("max_position_embeddings", is_llama ? 2048 : 32768, 1);
  config.rms_norm_eps = reader.Positive("rms_norm_eps", kDefaultEpsilon);
  config.tie_word_embeddings = reader.Boolean("tie_word_embeddings", false);
  RefuseUnsupported(reader, config.model_type, config.num_hidden_layers);
  config.rope = ReadRope(reader, &faults);
  config.dtype = ReadDType(reader);
  if (reader.Find("bos_token_id") != nullptr) config.bos_token_id = reader.Integer("bos_token_id", std::nullopt, 0);
  config.eos_token_ids = reader.IntegerOrList("eos_token_id");
  if (faults.empty()) CheckSizes(config, reader);
  if (faults.empty()) return config;
  return absl::InvalidArgumentError(absl::StrJoin(
      faults, "\n", [&](std::string* out, const std::string& fault) { absl::StrAppend(out, path, ": ", fault); }));
}

std::string FormatModelConfig(const ModelConfig& config) {
  nlohmann::ordered_json json;
  json["architectures"] = {ArchitectureOf(config.model_type)};
  json["model_type"] = ModelFamilyName(config.model_type);
  json["vocab_size"] = config.vocab_size;
  json["hidden_size"] = config.hidden_size;
  json["intermediate_size"] = config.intermediate_size;
  json["num_hidden_layers"] = config.num_hidden_layers;
  json["num_attention_heads"] = config.num_attention_heads;
  json["num_key_value_heads"] = config.num_key_value_heads;
  json["head_dim"] = config.head_dim;
  json["max_position_embeddings"] = config.max_position_embeddings;
  json["rms_norm_eps"] = config.rms_norm_eps;
  json["tie_word_embeddings"] = config.tie_word_embeddings;
  if (config.model_type != ModelFamily::kQwen2) json["attention_bias"] = false;
  if (config.model_type == ModelFamily::kLlama) {
    json["mlp_bias"] = false;
  } else {
    json["use_sliding_window"] = false;
  }
  json["attention_dropout"] = 0.0;
  json["hidden_act"] = "silu";

  nlohmann::ordered_json scaling;
  scaling["rope_type"] = RopeTypeName(config.rope.type);
  if (config.rope.type != RopeType::kDefault) scaling["factor"] = config.rope.factor;
  if (config.rope.type == RopeType::kLlama3) {
    scaling["low_freq_factor"] = config.rope.low_freq_factor;
    scaling["high_freq_factor"] = config.rope.high_freq_factor;
    scaling["original_max_position_embeddings"] = config.rope.original_max_position_embeddings;
  }
  json["rope_theta"] = config.rope.theta;
  json["rope_scaling"] = nullptr;
  if (config.rope.type != RopeType::kDefault) json["rope_scaling"] = scaling;
  scaling["rope_theta"] = config.rope.theta;
  json["rope_parameters"] = scaling;

  json["torch_dtype"] = config.dtype;
  json["dtype"] = config.dtype;
  json.update(TokenIds(config));
  return json.dump(2) + "\n";
}

std::string FormatGenerationConfig(const ModelConfig& config) {
  nlohmann::ordered_json json = TokenIds(config);
  // Nothing is generated behind the end, so that its token can fill up a batch.
  if (!config.eos_token_ids.empty()) json["pad_token_id"] = config.eos_token_ids[0];
  return json.dump(2) + "\n";
}

}  // namespace leeway
