#include "trainer/parallel/sharding_options.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "model/tensor_parallel.h"
#include "trainer/optimizer/muon.h"

namespace leeway {

std::vector<ConfigProblem> ShardingProblems(const ShardingOptions& options) {
  std::vector<ConfigProblem> problems;
  if (options.zero_stage < 0 || options.zero_stage > 3) {
    problems.push_back({"trainer.zero_stage", absl::StrCat(options.zero_stage, " is none of 0, 1, 2, 3")});
  } else if (options.reduce_once && options.zero_stage != 3) {
    problems.push_back(
        {"trainer.reduce_once",
         absl::StrCat("has no use at zero_stage = ", options.zero_stage,
                      options.zero_stage == 2 ? ", whose gradients are kept in shards; use zero_stage = 1"
                                              : ", which reduces once anyway; leave it out")});
  }
  return problems;
}

ShardedKinds KindsSharded(const ShardingOptions& options, int data_ranks) {
  if (data_ranks == 1) return {};
  return {options.zero_stage >= 1, options.zero_stage >= 2 && !options.reduce_once, options.zero_stage == 3};
}

BufferSizes SizesOfBuffers(const ShardPlan& plan, int64_t rank, const ShardingOptions& options, int data_ranks,
                           int64_t real_bytes) {
  const ShardedKinds sharded = KindsSharded(options, data_ranks);
  const int64_t parameter_bytes = options.bf16_parameters ? 2 : real_bytes;
  BufferSizes sizes;
  for (int64_t unit = 0; unit < plan.unit_count(); ++unit) {
    const int64_t all = plan.UnitCount(unit, Held::kAll);
    const int64_t trainable = plan.UnitCount(unit, Held::kTrainable);
    const int64_t share = plan.ShareCount(unit, rank, Held::kTrainable);
    const bool in_place = plan.IsRankMajor(unit, Held::kTrainable);
    const auto needs_scratch = [&](int64_t bytes) { sizes.scratch_bytes = std::max(sizes.scratch_bytes, bytes); };
    if (sharded.parameters) sizes.unit = std::max(sizes.unit, all);
    if (sharded.parameters && !plan.IsRankMajor(unit, Held::kAll)) sizes.gathered = std::max(sizes.gathered, all);
    // Reductions.
    if (sharded.gradients) {
      needs_scratch((in_place ? share : trainable) * real_bytes);
    } else if (data_ranks > 1 && (options.bf16_gradients || (sharded.optimizer && !in_place))) {
      needs_scratch(trainable * real_bytes);
    }
    // The update, and the gather behind it.
    if (options.bf16_gradients) needs_scratch(share * real_bytes);
    if (sharded.optimizer && !sharded.parameters && !in_place) needs_scratch(trainable * parameter_bytes);
  }
  return sizes;
}

absl::StatusOr<StateBytes> ExpectedStateBytes(const ModelShape& model, const MeshShape& mesh, int world_rank,
                                              const ShardingOptions& options, OptimizerKind optimizer,
                                              int64_t real_bytes) {
  const ShardedKinds sharded = KindsSharded(options, mesh.data);
  const ModelShape share = TensorShard(model, world_rank % mesh.tensor, mesh.tensor);
  const int64_t rank = sharded.optimizer ? world_rank / mesh.tensor : 0;
  LEEWAY_ASSIGN_OR_RETURN(const ShardPlan plan,
                          ShardPlan::Create(ParameterLayout(share), sharded.optimizer ? mesh.data : 1, options.frozen));
  const int64_t parameter_bytes = options.bf16_parameters ? 2 : real_bytes;
  const int64_t gradient_bytes = options.bf16_gradients ? 2 : real_bytes;
  const int64_t own = plan.ShardCount(rank, Held::kTrainable);
  StateBytes bytes;
  bytes.parameters =
      parameter_bytes * (sharded.parameters ? plan.ShardCount(rank, Held::kAll) : plan.FullCount(Held::kAll));
  bytes.master = options.bf16_parameters ? real_bytes * own : 0;
  bytes.gradients = gradient_bytes * (sharded.gradients ? own : plan.FullCount(Held::kTrainable));
  bytes.optimizer = real_bytes * OptimizerStateElements(optimizer, plan.OptimizerParts(rank));
  const BufferSizes buffers = SizesOfBuffers(plan, rank, options, mesh.data, real_bytes);
  bytes.buffers = (buffers.unit + buffers.gathered) * parameter_bytes + buffers.scratch_bytes;
  return bytes;
}

}  // namespace leeway
