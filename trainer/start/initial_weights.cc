#include "trainer/start/initial_weights.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "model/model_files.h"
#include "model/transformer/transformer.h"

namespace leeway {
namespace {

// Where the directory's model is another one than the configuration's, in the words of its keys. Empty = the same.
std::string Differences(const ModelShape& wanted, const ModelShape& found) {
  std::string text;
  const auto compare = [&](const char* key, auto ours, auto theirs) {
    if (ours != theirs) absl::StrAppend(&text, "\n  model.", key, " = ", ours, ", the directory has ", theirs);
  };
  compare("family", std::string(ModelFamilyName(wanted.family)), std::string(ModelFamilyName(found.family)));
  compare("vocabulary", wanted.vocabulary, found.vocabulary);
  compare("hidden", wanted.hidden, found.hidden);
  compare("layers", wanted.layers, found.layers);
  compare("heads", wanted.heads, found.heads);
  compare("key_value_heads", wanted.key_value_heads, found.key_value_heads);
  compare("head_dim", wanted.head_dim, found.head_dim);
  compare("intermediate", wanted.intermediate, found.intermediate);
  compare("rope_theta", wanted.rope_theta, found.rope_theta);
  compare("rms_epsilon", wanted.rms_epsilon, found.rms_epsilon);
  compare("tied_head", wanted.tied_head, found.tied_head);
  if (wanted.max_positions > found.max_positions) {
    absl::StrAppend(&text, "\n  model.max_positions = ", wanted.max_positions, ", the directory allows ",
                    found.max_positions);
  }
  return text;
}

}  // namespace

absl::StatusOr<std::vector<float>> InitialWeights(const TrainerOptions& options) {
  if (options.model_directory.empty()) return RandomParameters(options.model, options.seed);
  LEEWAY_ASSIGN_OR_RETURN(ModelDirectory directory, ReadModelDirectory(options.model_directory));
  const std::string differences = Differences(options.model, directory.shape);
  if (!differences.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("model.init = ", options.model_directory,
                                                   " holds another model than the configuration:", differences));
  }
  return std::move(directory.parameters);
}

}  // namespace leeway
