#ifndef LEEWAY_MODEL_MODEL_FILES_H_
#define LEEWAY_MODEL_MODEL_FILES_H_

// A model as a Hugging Face directory: config.json, generation_config.json and model.safetensors with the family's
// names. What is written here loads with transformers' AutoModelForCausalLM; what is read may come from there.
//
// Any thread; blocks on the disk. Errors name the file and what to do.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/file_system.h"
#include "formats/model_config.h"
#include "formats/safetensors.h"
#include "model/shape.h"

namespace leeway {

struct ModelDirectory {
  ModelShape shape;
  std::vector<float> parameters;  // ParameterLayout order
  std::optional<int64_t> bos_token_id;
  std::vector<int64_t> eos_token_ids;
};

// The shape that a config.json describes. UNIMPLEMENTED: stretched rotary positions. INVALID_ARGUMENT: an impossible
// shape.
absl::StatusOr<ModelShape> ShapeOf(const ModelConfig& config);
ModelConfig ConfigOf(const ModelShape& shape);

// The flat parameters as named tensors that borrow them: `flat` must outlive the result.
std::vector<NamedTensor> ParameterTensors(const ModelShape& shape, absl::Span<const float> flat);

// The reverse: copies every parameter of the layout out of `files` (each tensor lies in one of them), widening BF16 and
// F16. INVALID_ARGUMENT: lists the missing, the unexpected and the repeated tensors, and those of another shape or
// type.
absl::StatusOr<std::vector<float>> ReadParameters(const ModelShape& shape, absl::Span<const SafetensorsFile> files);

// Reads config.json alone. NOT_FOUND: no such folder, or no such file in it. INVALID_ARGUMENT: see ParseModelConfig.
absl::StatusOr<ModelConfig> ReadModelConfig(const std::string& directory);

// Reads config.json and model.safetensors, or the shards that model.safetensors.index.json lists, each tensor in the
// one that the index names. NOT_FOUND: no such directory or files. INVALID_ARGUMENT, UNIMPLEMENTED: as above.
absl::StatusOr<ModelDirectory> ReadModelDirectory(const std::string& directory);

// What ReadModelDirectory would refuse, from config.json and the headers alone: reads no tensor bytes.
absl::Status CheckModelDirectory(const std::string& directory);

// Writes config.json, generation_config.json and model.safetensors (F32), each atomically, config.json last; creates
// the directory. INVALID_ARGUMENT: an impossible shape, or one that transformers can not load.
absl::Status WriteModelDirectory(FileSystem* file_system, const std::string& directory, const ModelDirectory& model);

}  // namespace leeway

#endif  // LEEWAY_MODEL_MODEL_FILES_H_
