#ifndef LEEWAY_LAUNCH_ROLES_ROLLOUT_ROLE_H_
#define LEEWAY_LAUNCH_ROLES_ROLLOUT_ROLE_H_

#include <string>

#include "absl/status/statusor.h"
#include "launch/config/config.h"
#include "leeway/v1/weights.pb.h"
#include "rollout/rollout_options.h"

namespace leeway {

// A rollout worker's options out of a resolved configuration; `name` is "rollout-<rank>".
RolloutOptions RolloutOptionsOf(const Config& config, int64_t vocabulary, const std::string& name);

// The tensors that a worker of this model expects from the trainer: the parameters in ParameterLayout order, as F32, or
// as BF16 for a model of bf16 weights.
absl::StatusOr<v1::Manifest> ExpectedManifest(const ModelShape& shape, bool bf16_weights);

}  // namespace leeway

#endif  // LEEWAY_LAUNCH_ROLES_ROLLOUT_ROLE_H_
