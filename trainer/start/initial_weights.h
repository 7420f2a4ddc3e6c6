#ifndef LEEWAY_TRAINER_START_INITIAL_WEIGHTS_H_
#define LEEWAY_TRAINER_START_INITIAL_WEIGHTS_H_

#include <vector>

#include "absl/status/statusor.h"
#include "trainer/trainer_options.h"

namespace leeway {

// The weights before version 1 (flat, ParameterLayout order): those of model_directory, or random ones from the run's
// seed. INVALID_ARGUMENT, NOT_FOUND: the directory's weights are unreadable or do not fit the model; the message names
// file and tensor.
absl::StatusOr<std::vector<float>> InitialWeights(const TrainerOptions& options);

}  // namespace leeway

#endif  // LEEWAY_TRAINER_START_INITIAL_WEIGHTS_H_
