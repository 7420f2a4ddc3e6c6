#include "formats/model_family.h"

namespace leeway {
namespace {

constexpr ModelFamily kFamilies[] = {ModelFamily::kLlama, ModelFamily::kQwen2, ModelFamily::kQwen3};

}  // namespace

const char* ModelFamilyName(ModelFamily family) {
  switch (family) {
    case ModelFamily::kLlama:
      return "llama";
    case ModelFamily::kQwen2:
      return "qwen2";
    case ModelFamily::kQwen3:
      return "qwen3";
  }
  return "";
}

bool ParseModelFamily(absl::string_view name, ModelFamily* family) {
  for (const ModelFamily candidate : kFamilies) {
    if (name != ModelFamilyName(candidate)) continue;
    *family = candidate;
    return true;
  }
  return false;
}

std::vector<std::string> ModelFamilyNames() {
  std::vector<std::string> names;
  for (const ModelFamily family : kFamilies) names.push_back(ModelFamilyName(family));
  return names;
}

}  // namespace leeway
