// The communicating half of ShardedState: gathering parameters, reducing gradients, the norm, the update.

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/status_macros.h"
#include "trainer/optimizer/element_storage.h"
#include "trainer/optimizer/global_norm.h"
#include "trainer/parallel/sharded_state.h"

namespace leeway {

template <typename Real>
void ShardedState<Real>::Gather(int64_t unit, NDArray* into) {
  const std::byte* const share = ParameterAt(plan_.ShardOffset(unit, rank_, Held::kAll));
  gathering_ = Gathering{
      unit, gather_thread_->Issue(
                [type = parameter_type(), share, counts = plan_.ShareCounts(unit, Held::kAll),
                 to = into->data()](Communicator* ranks) { return ranks->AllGather(type, share, counts, to); })};
}

template <typename Real>
absl::Status ShardedState<Real>::FinishGathering() {
  if (!gathering_.has_value()) return absl::OkStatus();
  const PendingOperation operation = gathering_->operation;
  gathering_.reset();
  return operation.Wait();
}

template <typename Real>
absl::StatusOr<WeightSpan<Real>> ShardedState<Real>::Acquire(int64_t unit, int64_t next) {
  const size_t count = static_cast<size_t>(plan_.UnitCount(unit, Held::kAll));
  const auto lend = [this, count](const std::byte* values) -> WeightSpan<Real> {
    if (sharding_.bf16_parameters) return absl::MakeConstSpan(reinterpret_cast<const uint16_t*>(values), count);
    return absl::MakeConstSpan(reinterpret_cast<const Real*>(values), count);
  };
  if (!sharded_.parameters) return lend(ParameterAt(plan_.FullOffset(unit, Held::kAll)));
  // Gathered where it is lent from, which only the present call may overwrite: never ahead.
  const auto is_direct = [this](int64_t u) { return plan_.IsRankMajor(u, Held::kAll); };
  if (!gathering_.has_value() || gathering_->unit != unit) {
    LEEWAY_RETURN_IF_ERROR(FinishGathering());
    Gather(unit, is_direct(unit) ? &unit_ : &gathered_);
  }
  LEEWAY_RETURN_IF_ERROR(FinishGathering());
  if (!is_direct(unit)) {
    const int64_t begin = plan_.FullOffset(unit, Held::kAll);
    const size_t bytes = DTypeBytes(parameter_type());
    for (const ShardPart& part : plan_.RankMajorParts(unit, Held::kAll)) {
      std::memcpy(At(unit_, part.flat_offset - begin), At(gathered_, part.shard_offset),
                  static_cast<size_t>(part.count) * bytes);
    }
  }
  if (next >= 0 && !is_direct(next)) Gather(next, &gathered_);
  return lend(unit_.data());
}

template <typename Real>
void ShardedState<Real>::ZeroGradients() {
  parallel_->Run(static_cast<int64_t>(gradients_.size_bytes()), 1 << 20, [this](int64_t begin, int64_t end) {
    std::memset(gradients_.data() + begin, 0, static_cast<size_t>(end - begin));
  });
  is_finished_ = false;
}

template <typename Real>
absl::Span<Real> ShardedState<Real>::FlatGradients() {
  const bool is_whole = plan_.FullCount(Held::kTrainable) == plan_.FullCount(Held::kAll);
  if (sharded_.gradients || sharding_.bf16_gradients || !is_whole) return {};
  return gradients_.template values<Real>();
}

template <typename Real>
absl::Status ShardedState<Real>::ReduceUnit(int64_t unit, DType type, const void* full, Held order, Real* in_place,
                                            Real** share) {
  const std::vector<int64_t> counts = plan_.ShareCounts(unit, Held::kTrainable);
  const std::vector<ShardPart> parts = plan_.RankMajorParts(unit, Held::kTrainable);
  const int64_t begin = plan_.FullOffset(unit, order);
  const auto source = [&](const ShardPart& part) {
    const int64_t offset = (order == Held::kAll ? part.flat_offset : part.full_offset) - begin;
    return static_cast<const std::byte*>(full) + static_cast<size_t>(offset) * DTypeBytes(type);
  };
  if (type == kTypeOf<Real> && plan_.IsRankMajor(unit, Held::kTrainable)) {
    *share = in_place;
    return mesh_->data()->ReduceScatter(ReduceOp::kSum, type, source(parts[0]), counts, in_place);
  }
  for (const ShardPart& part : parts) {
    LoadElements(type, source(part), part.count, scratch() + part.shard_offset, parallel_);
  }
  *share = scratch();
  for (int64_t r = 0; r < rank_; ++r) *share += counts[static_cast<size_t>(r)];
  return mesh_->data()->ReduceScatter(ReduceOp::kSum, kTypeOf<Real>, scratch(), counts, *share);
}

template <typename Real>
absl::Status ShardedState<Real>::Add(int64_t unit, absl::Span<const Real> gradient) {
  LEEWAY_CHECK(!is_finished_) << "a gradient after FinishGradients; ZeroGradients begins the next update";
  LEEWAY_CHECK(static_cast<int64_t>(gradient.size()) == plan_.UnitCount(unit, Held::kAll)) << gradient.size();
  if (plan_.UnitCount(unit, Held::kTrainable) == 0) return absl::OkStatus();
  if (sharded_.gradients) {
    Real* share = nullptr;
    LEEWAY_RETURN_IF_ERROR(ReduceUnit(unit, kTypeOf<Real>, gradient.data(), Held::kAll, scratch(), &share));
    AddElements(share, plan_.ShareCount(unit, rank_, Held::kTrainable), gradients_.dtype(),
                GradientAt(plan_.ShardOffset(unit, rank_, Held::kTrainable)), parallel_);
    return absl::OkStatus();
  }
  const ShardUnit& range = plan_.units()[static_cast<size_t>(unit)];
  const int64_t begin = plan_.FullOffset(unit, Held::kAll);
  int64_t to = plan_.FullOffset(unit, Held::kTrainable);
  for (int64_t p = range.parameter_begin; p < range.parameter_end; ++p) {
    if (plan_.is_frozen(p)) continue;
    const ParameterInfo& info = plan_.layout()[static_cast<size_t>(p)];
    AddElements(gradient.data() + (info.offset - begin), info.element_count, gradients_.dtype(), GradientAt(to),
                parallel_);
    to += info.element_count;
  }
  return absl::OkStatus();
}

template <typename Real>
absl::Status ShardedState<Real>::AllReduceGradients() {
  if (gradients_.dtype() == kTypeOf<Real>) {
    return mesh_->data()->AllReduce(ReduceOp::kSum, kTypeOf<Real>, gradients_.data(), gradients_.element_count());
  }
  for (int64_t unit = 0; unit < plan_.unit_count(); ++unit) {
    const int64_t count = plan_.UnitCount(unit, Held::kTrainable);
    if (count == 0) continue;
    std::byte* const stored = GradientAt(plan_.FullOffset(unit, Held::kTrainable));
    LoadElements(gradients_.dtype(), stored, count, scratch(), parallel_);
    LEEWAY_RETURN_IF_ERROR(mesh_->data()->AllReduce(ReduceOp::kSum, kTypeOf<Real>, scratch(), count));
    StoreElements(scratch(), count, gradients_.dtype(), stored, parallel_);
  }
  return absl::OkStatus();
}

template <typename Real>
absl::Status ShardedState<Real>::FinishGradients() {
  LEEWAY_CHECK(!is_finished_) << "gradients are finished already";
  is_finished_ = true;
  if (data_ranks() == 1 || sharded_.gradients) return absl::OkStatus();
  if (!sharded_.optimizer) return AllReduceGradients();
  for (int64_t unit = 0; unit < plan_.unit_count(); ++unit) {
    if (plan_.UnitCount(unit, Held::kTrainable) == 0) continue;
    const std::vector<OwnPart>& own = own_parts_[static_cast<size_t>(unit)];
    Real* const in_place = reinterpret_cast<Real*>(GradientAt(own[0].gradient));
    Real* share = nullptr;
    LEEWAY_RETURN_IF_ERROR(ReduceUnit(unit, gradients_.dtype(), GradientAt(plan_.FullOffset(unit, Held::kTrainable)),
                                      Held::kTrainable, in_place, &share));
    if (share == in_place) continue;
    for (const OwnPart& part : own) {
      StoreElements(share, part.count, gradients_.dtype(), GradientAt(part.gradient), parallel_);
      share += part.count;
    }
  }
  return absl::OkStatus();
}

template <typename Real>
absl::StatusOr<double> ShardedState<Real>::GradientNorm() {
  LEEWAY_CHECK(is_finished_) << "the norm of gradients that are not finished";
  double sum = 0;
  const Real* run = nullptr;
  size_t run_count = 0;
  const auto end_run = [&] {
    sum += SumOfSquares(absl::MakeConstSpan(run, run_count), parallel_);
    run_count = 0;
  };
  for (const std::vector<OwnPart>& unit : own_parts_) {
    for (const OwnPart& part : unit) {
      if (!part.is_counted) continue;
      const bool is_stored = gradients_.dtype() == kTypeOf<Real>;
      const Real* const values = is_stored ? reinterpret_cast<Real*>(GradientAt(part.gradient)) : scratch();
      // Neighbours are one run, so that one rank alone sums in the blocks of GlobalNorm.
      if (!is_stored || run + run_count != values) {
        end_run();
        run = values;
      }
      if (!is_stored) LoadElements(gradients_.dtype(), GradientAt(part.gradient), part.count, scratch(), parallel_);
      run_count += static_cast<size_t>(part.count);
    }
  }
  end_run();
  if (mesh_->world()->size() > 1) {
    LEEWAY_RETURN_IF_ERROR(mesh_->world()->AllReduce(ReduceOp::kSum, DType::kF64, &sum, 1));
  }
  return std::sqrt(sum);
}

template <typename Real>
absl::Status ShardedState<Real>::Step(double learning_rate, double gradient_scale) {
  LEEWAY_CHECK(is_finished_) << "a step with gradients that are not finished";
  LEEWAY_RETURN_IF_ERROR(FinishGathering());
  optimizer_->Begin(learning_rate, gradient_scale);
  int64_t index = 0;
  for (int64_t unit = 0; unit < plan_.unit_count(); ++unit) {
    std::vector<PartUpdate<Real>> updates;
    Real* converted = scratch();
    for (const OwnPart& part : own_parts_[static_cast<size_t>(unit)]) {
      const Real* gradients = reinterpret_cast<Real*>(GradientAt(part.gradient));
      if (gradients_.dtype() != kTypeOf<Real>) {
        LoadElements(gradients_.dtype(), GradientAt(part.gradient), part.count, converted, parallel_);
        gradients = converted;
        converted += part.count;
      }
      updates.push_back({index++, gradients, MasterAt(part)});
    }
    LEEWAY_RETURN_IF_ERROR(optimizer_->Update(updates));
    LEEWAY_RETURN_IF_ERROR(SyncUnit(unit));
  }
  return absl::OkStatus();
}

template <typename Real>
absl::Status ShardedState<Real>::SyncUnit(int64_t unit) {
  const std::vector<OwnPart>& own = own_parts_[static_cast<size_t>(unit)];
  if (sharding_.bf16_parameters) {
    for (const OwnPart& part : own) {
      StoreElements(MasterAt(part), part.count, parameter_type(), ParameterAt(part.parameter), parallel_);
    }
  }
  if (own.empty() || !sharded_.optimizer || sharded_.parameters) return absl::OkStatus();
  const std::vector<int64_t> counts = plan_.ShareCounts(unit, Held::kTrainable);
  const std::vector<ShardPart> parts = plan_.RankMajorParts(unit, Held::kTrainable);
  if (plan_.IsRankMajor(unit, Held::kTrainable)) {
    return mesh_->data()->AllGather(parameter_type(), ParameterAt(own[0].parameter), counts,
                                    ParameterAt(parts[0].flat_offset));
  }
  const size_t bytes = DTypeBytes(parameter_type());
  std::byte* const rank_major = scratch_.data();
  std::byte* share = rank_major;
  for (int64_t r = 0; r < rank_; ++r) share += static_cast<size_t>(counts[static_cast<size_t>(r)]) * bytes;
  std::byte* to = share;
  for (const OwnPart& part : own) {
    std::memcpy(to, ParameterAt(part.parameter), static_cast<size_t>(part.count) * bytes);
    to += static_cast<size_t>(part.count) * bytes;
  }
  LEEWAY_RETURN_IF_ERROR(mesh_->data()->AllGather(parameter_type(), share, counts, rank_major));
  for (const ShardPart& part : parts) {
    std::memcpy(ParameterAt(part.flat_offset), rank_major + static_cast<size_t>(part.shard_offset) * bytes,
                static_cast<size_t>(part.count) * bytes);
  }
  return absl::OkStatus();
}

template <typename Real>
absl::Status ShardedState<Real>::SyncParameters() {
  LEEWAY_RETURN_IF_ERROR(FinishGathering());
  for (int64_t unit = 0; unit < plan_.unit_count(); ++unit) LEEWAY_RETURN_IF_ERROR(SyncUnit(unit));
  return absl::OkStatus();
}

template class ShardedState<float>;
template class ShardedState<double>;

}  // namespace leeway
