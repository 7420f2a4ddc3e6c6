#ifndef LEEWAY_FORMATS_MODEL_CONFIG_H_
#define LEEWAY_FORMATS_MODEL_CONFIG_H_

// Hugging Face's config.json and generation_config.json for the Llama, Qwen2 and Qwen3 families, as plain numbers.
// Knows no model: whoever builds one from it decides what it supports.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "formats/model_family.h"

namespace leeway {

// How rotary positions are stretched beyond the length that was trained.
enum class RopeType { kDefault, kLinear, kLlama3 };

struct RopeConfig {
  RopeType type = RopeType::kDefault;
  double theta = 10000.0;
  // kLinear, kLlama3.
  double factor = 1.0;
  // kLlama3.
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  int64_t original_max_position_embeddings = 0;
};

// "default", "linear", "llama3".
const char* RopeTypeName(RopeType type);

// Field names are those of config.json.
struct ModelConfig {
  ModelFamily model_type = ModelFamily::kLlama;
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_hidden_layers = 0;
  int64_t num_attention_heads = 0;
  int64_t num_key_value_heads = 0;
  int64_t head_dim = 0;
  int64_t max_position_embeddings = 0;
  double rms_norm_eps = 1e-5;
  bool tie_word_embeddings = false;
  RopeConfig rope;
  // float32 | bfloat16 | float16: of the weights in the files beside it.
  std::string dtype = "float32";
  std::optional<int64_t> bos_token_id;
  std::vector<int64_t> eos_token_ids;
};

// Reads the text of a config.json; `path` is for messages. Accepts rope_theta + rope_scaling (either spelling of its
// type) and the newer rope_parameters, dtype and torch_dtype, eos_token_id as a number or a list. Absent optional keys
// mean what transformers means by them in that family; sizes are never guessed. INVALID_ARGUMENT: lists every fault:
// bad JSON (with line), duplicate keys, missing or mistyped values, impossible sizes, styles that contradict each
// other, and whatever would change the numbers and is not known here (other families and architectures, stretched or
// partial rotary positions of unknown kind, windows, dropout, biases, activations, quantised weights, own code), by its
// key and with what to do.
absl::StatusOr<ModelConfig> ParseModelConfig(absl::string_view text, const std::string& path);

// The text of a config.json that transformers loads as its family's model, old (rope_theta) and new (rope_parameters)
// releases alike. Deterministic; ParseModelConfig gives the same values back.
std::string FormatModelConfig(const ModelConfig& config);

// The text of the generation_config.json beside it: the tokens that begin, end and pad; sampling is the caller's
// choice.
std::string FormatGenerationConfig(const ModelConfig& config);

}  // namespace leeway

#endif  // LEEWAY_FORMATS_MODEL_CONFIG_H_
