#ifndef LEEWAY_FORMATS_MODEL_FAMILY_H_
#define LEEWAY_FORMATS_MODEL_FAMILY_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace leeway {

// The families whose files are read and written. They differ in the attention layer alone:
//   kLlama   nothing else
//   kQwen2   biases on the query, key and value projections
//   kQwen3   RMSNorm over every query and key head, before the rotation
enum class ModelFamily { kLlama, kQwen2, kQwen3 };

// As config.json's model_type and the key model.family spell it: "llama".
const char* ModelFamilyName(ModelFamily family);
// False, and `family` untouched: an unknown name.
bool ParseModelFamily(absl::string_view name, ModelFamily* family);
// All names, in the order of the enumeration.
std::vector<std::string> ModelFamilyNames();

}  // namespace leeway

#endif  // LEEWAY_FORMATS_MODEL_FAMILY_H_
