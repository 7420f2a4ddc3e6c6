#include "trainer/learner.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "base/failpoint.h"
#include "base/status_macros.h"
#include "model/compute_peak.h"
#include "model/memory.h"
#include "model/tensor_parallel.h"
#include "trainer/optimizer/global_norm.h"
#include "trainer/pieces/parameter_gathering.h"

namespace leeway {

template <typename Real>
absl::StatusOr<std::unique_ptr<BasicLearner<Real>>> BasicLearner<Real>::Create(const TrainerOptions& options,
                                                                               const Mesh* mesh,
                                                                               ParallelFor* parallel) {
  LEEWAY_ASSIGN_OR_RETURN(
      std::unique_ptr<ShardedState<Real>> state,
      ShardedState<Real>::Create(options.model, options.sharding, options.optimizer, mesh, parallel));
  auto learner = absl::WrapUnique(new BasicLearner(options, mesh, parallel, std::move(state)));
  learner->UpdateModel();
  return learner;
}

template <typename Real>
BasicLearner<Real>::BasicLearner(const TrainerOptions& options, const Mesh* mesh, ParallelFor* parallel,
                                 std::unique_ptr<ShardedState<Real>> state)
    : options_(options),
      layout_(ParameterLayout(options.model)),
      mesh_(mesh),
      parallel_(parallel),
      state_(std::move(state)),
      model_(options.model, parallel,
             {.tensor_parallel = {.ranks = mesh->tensor(), .sequence = options.sequence_parallel},
              .recompute = options.recompute,
              .weights = options.sharding.bf16_parameters ? FormatOfBf16(options.model) : WeightFormat::kReal}),
      pass_(options.objective, &model_) {
  if (state_->FlatParameters().empty()) model_.StreamParameters(state_.get());
}

template <typename Real>
absl::Status BasicLearner<Real>::Restore(const PieceReader& state, int64_t updates) {
  LEEWAY_FAILPOINT("trainer_at_restore");
  LEEWAY_RETURN_IF_ERROR(RestoreOwnPieces(options_.model, *mesh_, state, updates, state_.get()));
  UpdateModel();
  return GatherParameters();
}

template <typename Real>
absl::Status BasicLearner<Real>::Reset(absl::Span<const Real> parameters) {
  const ModelShape& model = options_.model;
  if (static_cast<int64_t>(parameters.size()) != model.ParameterCount()) {
    return absl::InvalidArgumentError(
        absl::StrCat(parameters.size(), " parameters for a model of ", model.ParameterCount()));
  }
  LEEWAY_FAILPOINT("trainer_at_restore");
  const int rank = mesh_->tensor_rank(), size = mesh_->shape().tensor;
  std::vector<Real> share(static_cast<size_t>(TensorShard(model, rank, size).ParameterCount()));
  CopyToShard<Real>(TensorShardSlices(model, rank, size), parameters, absl::MakeSpan(share));
  // Masters too; what is left are the optimizer's arrays.
  for (const PartState<Real>& state : state_->PartStates())
    std::fill(state.values.begin(), state.values.end(), Real(0));
  state_->SetParameters(share);
  state_->set_updates(0);
  UpdateModel();
  return GatherParameters();
}

template <typename Real>
void BasicLearner<Real>::UpdateModel() {
  const absl::Span<const Real> flat = state_->FlatParameters();
  if (!flat.empty()) model_.SetParameters(flat);
}

template <typename Real>
absl::Status BasicLearner<Real>::GatherParameters() {
  if (mesh_->shape().tensor == 1 && !state_->FlatParameters().empty()) {
    if (mesh_->world()->rank() == 0) parameters_ = state_->FlatParameters();
    return absl::OkStatus();
  }
  LEEWAY_RETURN_IF_ERROR(GatherWholeParameters(options_.model, *mesh_, state_.get(), &whole_));
  parameters_ = whole_;
  return absl::OkStatus();
}

template <typename Real>
absl::StatusOr<double> BasicLearner<Real>::MeasurePeak() {
  LEEWAY_RETURN_IF_ERROR(mesh_->world()->Barrier());
  double peak = MeasureComputePeak(parallel_);
  LEEWAY_RETURN_IF_ERROR(mesh_->world()->AllReduce(ReduceOp::kSum, DType::kF64, &peak, 1));
  return peak;
}

template <typename Real>
absl::Status BasicLearner<Real>::SumOverData(absl::Span<double> values) {
  if (mesh_->shape().data == 1) return absl::OkStatus();
  return mesh_->data()->AllReduce(ReduceOp::kSum, DType::kF64, values.data(), static_cast<int64_t>(values.size()));
}

template <typename Real>
absl::Status BasicLearner<Real>::SumOverData(ObjectiveSums* sums) {
  // Counts are far below 2^53.
  double values[] = {sums->policy_loss,
                     sums->loss,
                     sums->entropy,
                     sums->kl_old,
                     static_cast<double>(sums->clipped),
                     static_cast<double>(sums->tokens),
                     static_cast<double>(sums->corrected)};
  LEEWAY_RETURN_IF_ERROR(SumOverData(absl::MakeSpan(values)));
  *sums = {values[0],
           values[1],
           values[2],
           values[3],
           static_cast<int64_t>(values[4]),
           static_cast<int64_t>(values[5]),
           static_cast<int64_t>(values[6])};
  return absl::OkStatus();
}

template <typename Real>
absl::Status BasicLearner<Real>::Train(uint64_t step, const LeasedBatch& leased, StepReport* report) {
  *report = StepReport();
  report->learning_rate = options_.optimizer.schedule.At(static_cast<int64_t>(step));
  TrainBatchOptions batch_options;
  batch_options.step = step;
  batch_options.lag_limit = leased.lag_limit;
  batch_options.breach_masks = options_.breach_masks;
  batch_options.advantage = options_.advantage;
  batch_options.vocabulary = options_.model.vocabulary;
  batch_options.max_positions = options_.model.max_positions;
  batch_options.micro_batch_tokens = options_.micro_batch_tokens;
  batch_options.updates = options_.updates_per_step;
  batch_options.data_ranks = mesh_->shape().data;
  batch_options.data_rank = mesh_->data_rank();
  batch_options.cost = CostOfLength(options_.model);
  LEEWAY_RETURN_IF_ERROR(BuildTrainBatch(batch_options, leased.groups, &batch_, &report->refused));
  if (!report->refused.empty()) return absl::OkStatus();

  const bool has_many_updates = batch_.updates.size() > 1;
  typename ShardedState<Real>::Snapshot before;
  if (has_many_updates) {
    // The later minibatches see changed weights, so what the step began with is computed for all of them first; and a
    // step that turns out not to be finite half-way has to be undone.
    prox_.assign(batch_.position_count(), 0.0);
    LEEWAY_RETURN_IF_ERROR(pass_.Score(batch_, &prox_));
    LEEWAY_RETURN_IF_ERROR(SumOverData(absl::MakeSpan(prox_)));
    LEEWAY_FAILPOINT("trainer_after_score");
    report->refused = FindMismatches(batch_, prox_);
    if (!report->refused.empty()) return absl::OkStatus();
    before = state_->Save();
  }
  for (size_t u = 0; u < batch_.updates.size() && report->is_finite; ++u) {
    LEEWAY_ASSIGN_OR_RETURN(report->is_finite, Update(batch_.updates[u], !has_many_updates, report));
    if (!report->refused.empty()) return absl::OkStatus();
  }
  if (!report->is_finite && report->updates > 0) {
    LEEWAY_RETURN_IF_ERROR(state_->Restore(before));
    UpdateModel();
    report->updates = 0;
  }
  if (report->updates > 0) LEEWAY_RETURN_IF_ERROR(GatherParameters());
  report->mismatch = ComputeMismatch(batch_, prox_);
  return absl::OkStatus();
}

template <typename Real>
absl::StatusOr<bool> BasicLearner<Real>::Update(const UpdateRange& range, bool is_first, StepReport* report) {
  state_->ZeroGradients();
  ObjectiveSums sums;
  const absl::Span<const double> prox = is_first ? absl::Span<const double>() : prox_;
  theta_.assign(batch_.position_count(), 0.0);
  const absl::Span<Real> flat = state_->FlatGradients();
  if (flat.empty()) {
    LEEWAY_RETURN_IF_ERROR(pass_.Run(batch_, range, prox, &theta_, &sums, state_.get()));
  } else {
    LEEWAY_RETURN_IF_ERROR(pass_.Run(batch_, range, prox, &theta_, &sums, flat));
  }
  LEEWAY_RETURN_IF_ERROR(SumOverData(&sums));
  if (is_first) {
    prox_ = theta_;
    // Every position is some rank's; the others have added 0.
    LEEWAY_RETURN_IF_ERROR(SumOverData(absl::MakeSpan(prox_)));
    LEEWAY_FAILPOINT("trainer_after_score");
    report->refused = FindMismatches(batch_, prox_);
    if (!report->refused.empty()) return true;
  }
  LEEWAY_FAILPOINT("trainer_before_reduction");
  LEEWAY_RETURN_IF_ERROR(state_->FinishGradients());
  LEEWAY_FAILPOINT("trainer_after_reduction");
  LEEWAY_ASSIGN_OR_RETURN(const double norm, state_->GradientNorm());
  report->grad_norm = std::max(report->grad_norm, norm);
  if (std::isnan(norm)) report->grad_norm = norm;
  report->sums.policy_loss += sums.policy_loss;
  report->sums.loss += sums.loss;
  report->sums.entropy += sums.entropy;
  report->sums.kl_old += sums.kl_old;
  report->sums.clipped += sums.clipped;
  report->sums.corrected += sums.corrected;
  report->sums.tokens += sums.tokens;
  if (!std::isfinite(sums.loss) || !std::isfinite(norm)) return false;
  if (range.normaliser.tokens == 0) return true;
  LEEWAY_FAILPOINT("trainer_before_optimizer");
  LEEWAY_RETURN_IF_ERROR(state_->Step(report->learning_rate, ClipScale(norm, options_.optimizer.max_grad_norm)));
  UpdateModel();
  ++report->updates;
  LEEWAY_FAILPOINT("trainer_after_optimizer");
  return true;
}

template class BasicLearner<float>;
template class BasicLearner<double>;

}  // namespace leeway
