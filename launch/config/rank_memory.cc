#include "launch/config/rank_memory.h"

#include <algorithm>
#include <vector>

#include "absl/status/statusor.h"
#include "base/status_macros.h"
#include "launch/roles/trainer_role.h"
#include "model/memory.h"
#include "model/tensor_parallel.h"
#include "trainer/trainer_options.h"

namespace leeway {

double BatchEpisodes(const Config& config) {
  return static_cast<double>(config.GetInteger("trainer.groups_per_step") * config.GetInteger("trainer.group_size"));
}

namespace {

// By two small models, since all layers are alike: a model that is far too large has more of them than could be listed.
absl::StatusOr<StateBytes> StatesOfFirstRank(const TrainerOptions& options) {
  const auto with_layers = [&options](int64_t layers) {
    ModelShape shape = options.model;
    shape.layers = layers;
    return ExpectedStateBytes(shape, options.mesh, /*world_rank=*/0, options.sharding, options.optimizer.kind,
                              sizeof(float));
  };
  LEEWAY_ASSIGN_OR_RETURN(StateBytes states, with_layers(1));
  LEEWAY_ASSIGN_OR_RETURN(const StateBytes two, with_layers(2));
  const int64_t more = options.model.layers - 1;
  states.parameters += more * (two.parameters - states.parameters);
  states.master += more * (two.master - states.master);
  states.gradients += more * (two.gradients - states.gradients);
  states.optimizer += more * (two.optimizer - states.optimizer);
  return states;
}

}  // namespace

std::optional<RankMemory> RankMemoryOf(const ResolvedConfig& resolved) {
  const TrainerOptions options =
      TrainerOptionsOf(resolved.config, *resolved.task, resolved.tokenizer->vocabulary_size(), "");
  if (!TrainerProblems(options).empty()) return std::nullopt;
  const int64_t real_bytes = sizeof(float);
  const absl::StatusOr<StateBytes> states = StatesOfFirstRank(options);
  if (!states.ok()) return std::nullopt;
  RankMemory memory;
  memory.states = *states;
  const TensorRank rank{0, options.mesh.tensor, options.sequence_parallel};
  const bool is_streamed =
      KindsSharded(options.sharding, options.mesh.data).parameters || options.sharding.bf16_parameters;
  memory.packed_weights = PackedWeightBytes(options.model, rank, is_streamed, /*backward=*/true, real_bytes,
                                            WeightFormatOf(options.model, options.sharding.bf16_parameters));
  if (is_streamed || options.mesh.tensor > 1) memory.published = options.model.ParameterCount() * real_bytes;
  const int64_t length = std::max<int64_t>(resolved.task->max_episode_tokens(), 1);
  const int64_t episodes = static_cast<int64_t>(BatchEpisodes(resolved.config)) / options.mesh.data;
  const int64_t sequences = std::clamp<int64_t>(options.micro_batch_tokens / length, 1, std::max<int64_t>(episodes, 1));
  memory.activations = ActivationBytes(options.model, rank, options.recompute,
                                       std::vector<int64_t>(static_cast<size_t>(sequences), length), real_bytes);
  const ModelShape shard = TensorShard(options.model, rank.rank, rank.size);
  const int64_t holders = KindsSharded(options.sharding, options.mesh.data).optimizer ? options.mesh.data : 1;
  memory.checkpoint = shard.ParameterCount() / holders * real_bytes + memory.states.optimizer;
  memory.passing =
      sequences * length * real_bytes *
      (4 * shard.hidden + 3 * shard.intermediate + (2 * shard.heads + 2 * shard.key_value_heads) * shard.head_dim);
  return memory;
}

}  // namespace leeway
