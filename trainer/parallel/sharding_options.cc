#include "trainer/parallel/sharding_options.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
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

std::vector<std::string> FrozenNames(absl::string_view list, const ModelShape& model) {
  std::vector<std::string> names;
  const auto add = [&names](const std::string& name) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  };
  for (absl::string_view name : absl::StrSplit(list, ',', absl::SkipWhitespace())) {
    name = absl::StripAsciiWhitespace(name);
    const size_t before = names.size();
    absl::string_view start = name;
    if (absl::ConsumeSuffix(&start, "*")) {
      for (const ParameterInfo& parameter : ParameterLayout(model)) {
        if (absl::StartsWith(parameter.name, start)) add(parameter.name);
      }
    }
    if (names.size() == before) add(std::string(name));
  }
  return names;
}

std::vector<ConfigProblem> FrozenProblems(const std::vector<std::string>& frozen, const ModelShape& model) {
  if (frozen.empty()) return {};
  const std::vector<ParameterInfo> layout = ParameterLayout(model);
  std::vector<std::string> unknown(frozen);
  for (const ParameterInfo& parameter : layout) {
    unknown.erase(std::remove(unknown.begin(), unknown.end(), parameter.name), unknown.end());
  }
  if (!unknown.empty()) {
    return {{"trainer.frozen", absl::StrCat("the model has no parameter ", absl::StrJoin(unknown, ", "), "; it has ",
                                            layout.front().name, ", ", layout[1].name, ", ..., ", layout.back().name)}};
  }
  if (frozen.size() < layout.size()) return {};
  return {{"trainer.frozen", "leaves no parameter to train; freeze fewer"}};
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
