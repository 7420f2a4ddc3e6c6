#include "trainer/initial_weights.h"

#include "model/transformer.h"

namespace leeway {

absl::StatusOr<std::vector<float>> InitialWeights(const TrainerOptions& options) {
  if (options.model_directory.empty()) return RandomParameters(options.model, options.seed);
  return absl::UnimplementedError("model.directory");
}

}  // namespace leeway
