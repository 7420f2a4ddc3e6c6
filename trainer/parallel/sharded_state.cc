#include "trainer/parallel/sharded_state.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "model/tensor_parallel.h"
#include "trainer/optimizer/element_storage.h"
#include "trainer/parallel/sharded_optimizer.h"

namespace leeway {
namespace {

NDArray MakeArray(DType type, int64_t count) { return NDArray(type, {count}); }

}  // namespace

template <typename Real>
absl::StatusOr<std::unique_ptr<ShardedState<Real>>> ShardedState<Real>::Create(const ModelShape& model,
                                                                               const ShardingOptions& sharding,
                                                                               const OptimizerOptions& optimizer,
                                                                               const Mesh* mesh,
                                                                               ParallelFor* parallel) {
  std::vector<std::string> faults;
  for (const ConfigProblem& problem : ShardingProblems(sharding)) {
    faults.push_back(absl::StrCat(problem.key, ": ", problem.message));
  }
  if (sharding.bf16_parameters && kTypeOf<Real> != DType::kF32) {
    faults.push_back("trainer.bf16_parameters: only with arithmetic in float");
  }
  if (!faults.empty()) return absl::InvalidArgumentError(absl::StrJoin(faults, "; "));
  LEEWAY_RETURN_IF_ERROR(CheckTensorParallel(model, mesh->shape().tensor));
  const ModelShape share = TensorShard(model, mesh->tensor_rank(), mesh->shape().tensor);
  const bool is_sharded = KindsSharded(sharding, mesh->shape().data).optimizer;
  LEEWAY_ASSIGN_OR_RETURN(
      ShardPlan plan, ShardPlan::Create(ParameterLayout(share), is_sharded ? mesh->shape().data : 1, sharding.frozen));
  std::unique_ptr<ShardedState> state(new ShardedState(sharding, std::move(plan), mesh, parallel));
  state->optimizer_ =
      MakeShardedOptimizer<Real>(optimizer, model, *mesh, is_sharded, state->optimizer_parts_, parallel);
  return state;
}

template <typename Real>
ShardedState<Real>::ShardedState(const ShardingOptions& sharding, ShardPlan plan, const Mesh* mesh,
                                 ParallelFor* parallel)
    : sharding_(sharding),
      mesh_(mesh),
      parallel_(parallel),
      sharded_(KindsSharded(sharding, mesh->shape().data)),
      plan_(std::move(plan)),
      rank_(sharded_.optimizer ? mesh->data_rank() : 0),
      optimizer_parts_(plan_.OptimizerParts(rank_)) {
  const DType parameter_type = sharding.bf16_parameters ? DType::kBF16 : kTypeOf<Real>;
  const DType gradient_type = sharding.bf16_gradients ? DType::kBF16 : kTypeOf<Real>;
  const int64_t own = plan_.ShardCount(rank_, Held::kTrainable);
  parameters_ = MakeArray(parameter_type,
                          sharded_.parameters ? plan_.ShardCount(rank_, Held::kAll) : plan_.FullCount(Held::kAll));
  if (sharding.bf16_parameters) master_ = MakeArray(kTypeOf<Real>, own);
  gradients_ = MakeArray(gradient_type, sharded_.gradients ? own : plan_.FullCount(Held::kTrainable));
  const BufferSizes buffers = SizesOfBuffers(plan_, rank_, sharding, data_ranks(), sizeof(Real));
  unit_ = MakeArray(parameter_type, buffers.unit);
  gathered_ = MakeArray(parameter_type, buffers.gathered);
  scratch_ = MakeArray(DType::kU8, buffers.scratch_bytes);
  if (sharded_.parameters) gather_thread_ = std::make_unique<CommunicationThread>(mesh->data_gather());

  for (int64_t unit = 0; unit < plan_.unit_count(); ++unit) {
    own_parts_.emplace_back();
    // Frozen parameters make the shares of kAll and of kTrainable differ.
    std::vector<int64_t> shares_of_all(plan_.layout().size());
    for (const ShardPart& part : plan_.Parts(unit, rank_, Held::kAll)) {
      shares_of_all[static_cast<size_t>(part.parameter)] = part.shard_offset;
    }
    for (const ShardPart& part : plan_.Parts(unit, rank_, Held::kTrainable)) {
      const ParameterInfo& info = plan_.layout()[static_cast<size_t>(part.parameter)];
      OwnPart where;
      where.count = part.count;
      where.flat = part.flat_offset;
      where.parameter = sharded_.parameters ? shares_of_all[static_cast<size_t>(part.parameter)] : part.flat_offset;
      where.master = part.shard_offset;
      where.gradient = sharded_.gradients ? part.shard_offset : part.full_offset;
      where.is_counted =
          (sharded_.optimizer || mesh->data_rank() == 0) && (!IsReplicated(info) || mesh->tensor_rank() == 0);
      own_parts_.back().push_back(where);
    }
    const ShardUnit& range = plan_.units()[static_cast<size_t>(unit)];
    if (sharded_.parameters) {
      for (const ShardPart& part : plan_.Parts(unit, rank_, Held::kAll)) {
        if (!plan_.is_frozen(part.parameter)) continue;
        const ParameterInfo& info = plan_.layout()[static_cast<size_t>(part.parameter)];
        frozen_parts_.push_back({{info, part.first_row, part.count}, part.shard_offset, true});
      }
    } else {
      for (int64_t p = range.parameter_begin; p < range.parameter_end; ++p) {
        if (!plan_.is_frozen(p)) continue;
        const ParameterInfo& info = plan_.layout()[static_cast<size_t>(p)];
        frozen_parts_.push_back({{info, 0, info.element_count}, info.offset, false});
      }
    }
  }
}

template <typename Real>
Real* ShardedState<Real>::MasterAt(const OwnPart& part) {
  if (sharding_.bf16_parameters) return reinterpret_cast<Real*>(At(master_, part.master));
  return reinterpret_cast<Real*>(ParameterAt(part.parameter));
}

template <typename Real>
void ShardedState<Real>::SetParameters(absl::Span<const Real> flat) {
  LEEWAY_CHECK(static_cast<int64_t>(flat.size()) == plan_.FullCount(Held::kAll)) << flat.size();
  // What is being gathered is of no more use, whatever became of it.
  FinishGathering().IgnoreError();
  for (int64_t unit = 0; unit < plan_.unit_count(); ++unit) {
    if (sharded_.parameters) {
      for (const ShardPart& part : plan_.Parts(unit, rank_, Held::kAll)) {
        StoreElements(flat.data() + part.flat_offset, part.count, parameter_type(), ParameterAt(part.shard_offset),
                      parallel_);
      }
    } else {
      const int64_t begin = plan_.FullOffset(unit, Held::kAll);
      StoreElements(flat.data() + begin, plan_.UnitCount(unit, Held::kAll), parameter_type(), ParameterAt(begin),
                    parallel_);
    }
    for (const OwnPart& part : own_parts_[static_cast<size_t>(unit)]) {
      std::copy_n(flat.data() + part.flat, part.count, MasterAt(part));
    }
  }
}

template <typename Real>
absl::Span<const Real> ShardedState<Real>::FlatParameters() const {
  if (sharded_.parameters || sharding_.bf16_parameters) return {};
  return parameters_.template values<Real>();
}

template <typename Real>
absl::Status ShardedState<Real>::ExportParameters(absl::Span<Real> flat) {
  LEEWAY_CHECK(static_cast<int64_t>(flat.size()) == plan_.FullCount(Held::kAll)) << flat.size();
  for (int64_t unit = 0; unit < plan_.unit_count(); ++unit) {
    const int64_t next = unit + 1 < plan_.unit_count() ? unit + 1 : -1;
    LEEWAY_ASSIGN_OR_RETURN(const WeightSpan<Real> values, Acquire(unit, next));
    values.CopyTo(WeightFormat::kReal, flat.data() + plan_.FullOffset(unit, Held::kAll));
  }
  return absl::OkStatus();
}

template <typename Real>
std::vector<PartState<Real>> ShardedState<Real>::PartStates() {
  // What is being gathered reads what the caller may write. An error comes back at the next operation.
  FinishGathering().IgnoreError();
  std::vector<PartState<Real>> states;
  for (const std::vector<OwnPart>& unit : own_parts_) {
    for (const OwnPart& part : unit) {
      states.push_back({"master", static_cast<int64_t>(states.size()),
                        absl::MakeSpan(MasterAt(part), static_cast<size_t>(part.count))});
    }
  }
  for (const PartState<Real>& state : optimizer_->PartStates()) states.push_back(state);
  return states;
}

template <typename Real>
void ShardedState<Real>::LoadFrozen(const FrozenPart& frozen, absl::Span<Real> values) {
  LEEWAY_CHECK(static_cast<int64_t>(values.size()) == frozen.part.count) << values.size();
  LoadElements(parameter_type(), ParameterAt(frozen.offset), frozen.part.count, values.data(), parallel_);
}

template <typename Real>
void ShardedState<Real>::StoreFrozen(const FrozenPart& frozen, absl::Span<const Real> values) {
  LEEWAY_CHECK(static_cast<int64_t>(values.size()) == frozen.part.count) << values.size();
  // What is being gathered reads what is written here.
  FinishGathering().IgnoreError();
  StoreElements(values.data(), frozen.part.count, parameter_type(), ParameterAt(frozen.offset), parallel_);
}

template <typename Real>
typename ShardedState<Real>::Snapshot ShardedState<Real>::Save() {
  Snapshot snapshot;
  for (const PartState<Real>& state : PartStates()) {
    snapshot.arrays.emplace_back(state.values.begin(), state.values.end());
  }
  snapshot.updates = updates();
  return snapshot;
}

template <typename Real>
absl::Status ShardedState<Real>::Restore(const Snapshot& snapshot) {
  const std::vector<PartState<Real>> states = PartStates();
  LEEWAY_CHECK(states.size() == snapshot.arrays.size()) << states.size() << " and " << snapshot.arrays.size();
  for (size_t i = 0; i < states.size(); ++i) {
    std::copy(snapshot.arrays[i].begin(), snapshot.arrays[i].end(), states[i].values.begin());
  }
  set_updates(snapshot.updates);
  return SyncParameters();
}

template <typename Real>
StateBytes ShardedState<Real>::bytes() const {
  const auto size = [](const NDArray& array) { return static_cast<int64_t>(array.size_bytes()); };
  StateBytes bytes;
  bytes.parameters = size(parameters_);
  bytes.master = size(master_);
  bytes.gradients = size(gradients_);
  bytes.optimizer = optimizer_->state_bytes();
  bytes.buffers = size(unit_) + size(gathered_) + size(scratch_);
  return bytes;
}

template class ShardedState<float>;
template class ShardedState<double>;

}  // namespace leeway
