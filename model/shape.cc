#include "model/shape.h"

#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace leeway {
namespace {

// Above this any product of two sizes could overflow; no real model comes near.
constexpr int64_t kLargestSize = int64_t{1} << 30;

void CheckSize(const char* key, int64_t value, std::vector<std::string>* faults) {
  if (value < 1 || value > kLargestSize) {
    faults->push_back(absl::StrCat(key, " = ", value, ": expected 1 to ", kLargestSize));
  }
}

}  // namespace

absl::Status ModelShape::Validate() const {
  std::vector<std::string> faults;
  CheckSize("model.vocabulary", vocabulary, &faults);
  CheckSize("model.hidden", hidden, &faults);
  CheckSize("model.layers", layers, &faults);
  CheckSize("model.heads", heads, &faults);
  CheckSize("model.key_value_heads", key_value_heads, &faults);
  CheckSize("model.head_dim", head_dim, &faults);
  CheckSize("model.intermediate", intermediate, &faults);
  CheckSize("model.max_positions", max_positions, &faults);
  if (vocabulary > std::numeric_limits<int32_t>::max()) {
    faults.push_back(absl::StrCat("model.vocabulary = ", vocabulary, ": token ids are 32 bits"));
  }
  if (head_dim >= 1 && head_dim % 2 != 0) {
    faults.push_back(absl::StrCat("model.head_dim = ", head_dim, ": must be even (rotary positions turn pairs)"));
  }
  if (heads >= 1 && key_value_heads >= 1 && heads % key_value_heads != 0) {
    faults.push_back(
        absl::StrCat("model.heads = ", heads, " is not a multiple of model.key_value_heads = ", key_value_heads));
  }
  if (!std::isfinite(rope_theta) || rope_theta <= 0) {
    faults.push_back(absl::StrCat("model.rope_theta = ", rope_theta, ": expected a finite number above 0"));
  }
  if (!std::isfinite(rms_epsilon) || rms_epsilon <= 0) {
    faults.push_back(absl::StrCat("model.rms_epsilon = ", rms_epsilon, ": expected a finite number above 0"));
  }
  if (faults.empty()) {
    // In floating point, since the integer count could overflow exactly when it is too large.
    const double per_layer = 2.0 * hidden + 2.0 * hidden * heads * head_dim +
                             2.0 * hidden * key_value_heads * head_dim + 3.0 * hidden * intermediate;
    const double total = per_layer * layers + 2.0 * vocabulary * hidden;
    if (total > 1e12) faults.push_back(absl::StrCat("model.*: ", total, " parameters are more than 1e12"));
  }
  if (faults.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("impossible model shape: ", absl::StrJoin(faults, "; ")));
}

int64_t ModelShape::ParameterCount() const {
  const int64_t query = heads * head_dim;
  const int64_t key_value = key_value_heads * head_dim;
  const int64_t layer = 2 * hidden + 2 * hidden * query + 2 * hidden * key_value + 3 * hidden * intermediate +
                        (has_qkv_bias() ? query + 2 * key_value : 0) + (has_qk_norm() ? 2 * head_dim : 0);
  return layers * layer + hidden + vocabulary * hidden * (tied_head ? 1 : 2);
}

std::vector<ParameterInfo> ParameterLayout(const ModelShape& shape) {
  std::vector<ParameterInfo> layout;
  int64_t offset = 0;
  const auto add = [&](std::string name, std::vector<int64_t> dimensions) {
    int64_t count = 1;
    for (const int64_t dimension : dimensions) count *= dimension;
    layout.push_back({std::move(name), std::move(dimensions), offset, count});
    offset += count;
  };
  const int64_t query = shape.heads * shape.head_dim;
  const int64_t key_value = shape.key_value_heads * shape.head_dim;
  add("model.embed_tokens.weight", {shape.vocabulary, shape.hidden});
  for (int64_t layer = 0; layer < shape.layers; ++layer) {
    const std::string prefix = absl::StrCat("model.layers.", layer, ".");
    add(prefix + "input_layernorm.weight", {shape.hidden});
    add(prefix + "self_attn.q_proj.weight", {query, shape.hidden});
    if (shape.has_qkv_bias()) add(prefix + "self_attn.q_proj.bias", {query});
    if (shape.has_qk_norm()) add(prefix + "self_attn.q_norm.weight", {shape.head_dim});
    add(prefix + "self_attn.k_proj.weight", {key_value, shape.hidden});
    if (shape.has_qkv_bias()) add(prefix + "self_attn.k_proj.bias", {key_value});
    if (shape.has_qk_norm()) add(prefix + "self_attn.k_norm.weight", {shape.head_dim});
    add(prefix + "self_attn.v_proj.weight", {key_value, shape.hidden});
    if (shape.has_qkv_bias()) add(prefix + "self_attn.v_proj.bias", {key_value});
    add(prefix + "self_attn.o_proj.weight", {shape.hidden, query});
    add(prefix + "post_attention_layernorm.weight", {shape.hidden});
    add(prefix + "mlp.gate_proj.weight", {shape.intermediate, shape.hidden});
    add(prefix + "mlp.up_proj.weight", {shape.intermediate, shape.hidden});
    add(prefix + "mlp.down_proj.weight", {shape.hidden, shape.intermediate});
  }
  add("model.norm.weight", {shape.hidden});
  if (!shape.tied_head) add("lm_head.weight", {shape.vocabulary, shape.hidden});
  return layout;
}

std::vector<ParameterUnit> ParameterUnits(const ModelShape& shape) {
  const int64_t embedding = shape.vocabulary * shape.hidden;
  const int64_t last = shape.hidden + (shape.tied_head ? 0 : embedding);
  const int64_t layer = (shape.ParameterCount() - embedding - last) / shape.layers;
  std::vector<ParameterUnit> units = {{0, embedding}};
  for (int64_t i = 0; i < shape.layers; ++i) units.push_back({units.back().end, units.back().end + layer});
  units.push_back({units.back().end, units.back().end + last});
  return units;
}

}  // namespace leeway
