#ifndef LEEWAY_MODEL_SHAPE_H_
#define LEEWAY_MODEL_SHAPE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "formats/model_family.h"

namespace leeway {

// The shape of Llama, Qwen2 or Qwen3: RMSNorm, rotary positions, grouped-query attention, SwiGLU, tied or untied head,
// and what the family adds to attention.
struct ModelShape {
  int64_t vocabulary = 0;
  int64_t hidden = 0;
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t key_value_heads = 0;
  int64_t head_dim = 0;  // even; heads * head_dim may differ from hidden
  int64_t intermediate = 0;
  int64_t max_positions = 0;
  double rope_theta = 10000.0;
  double rms_epsilon = 1e-5;
  bool tied_head = true;
  ModelFamily family = ModelFamily::kLlama;

  // Biases on the query, key and value projections.
  bool has_qkv_bias() const { return family == ModelFamily::kQwen2; }
  // RMSNorm over every query and key head (one weight of head_dim for all query heads, one for all key heads).
  bool has_qk_norm() const { return family == ModelFamily::kQwen3; }

  // INVALID_ARGUMENT listing everything that is impossible, in the words of the configuration keys.
  absl::Status Validate() const;
  int64_t ParameterCount() const;
};

// A parameter as Hugging Face's transformers names and shapes it ("model.layers.0.self_attn.q_proj.weight",
// [heads*head_dim, hidden]).
struct ParameterInfo {
  std::string name;
  std::vector<int64_t> shape;
  int64_t offset = 0;  // elements before it in the flat order
  int64_t element_count = 0;
};

// All parameters in the one fixed order that every side uses: checkpoints, manifests, optimizer state. Back to back, no
// padding.
std::vector<ParameterInfo> ParameterLayout(const ModelShape& shape);

// A run of the flat order whose parameters are needed together: unit 0 is the embedding (a tied head with it), unit 1 +
// l is layer l, the last one the final norm (an untied head with it). The grain in which parameters are gathered and
// gradients reduced when ranks hold parts of them.
struct ParameterUnit {
  int64_t begin = 0;  // elements of the flat order
  int64_t end = 0;
  int64_t element_count() const { return end - begin; }
};
std::vector<ParameterUnit> ParameterUnits(const ModelShape& shape);

}  // namespace leeway

#endif  // LEEWAY_MODEL_SHAPE_H_
