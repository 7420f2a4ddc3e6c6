#include "trainer/learner.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/failpoint.h"
#include "base/status_macros.h"

namespace leeway {

Learner::Learner(const TrainerOptions& options, ParallelFor* parallel)
    : options_(options),
      layout_(ParameterLayout(options.model)),
      parallel_(parallel),
      model_(options.model, parallel),
      optimizer_(options.optimizer, layout_, parallel),
      pass_(options.objective, &model_) {
  Reset(std::vector<float>(options.model.ParameterCount(), 0.0f));
}

void Learner::Restore(std::vector<float> parameters, AdamW::State optimizer) {
  LEEWAY_CHECK(static_cast<int64_t>(parameters.size()) == options_.model.ParameterCount()) << parameters.size();
  parameters_ = std::move(parameters);
  gradients_.assign(parameters_.size(), 0.0f);
  optimizer_.set_state(std::move(optimizer));
  model_.SetParameters(parameters_);
}

void Learner::Reset(std::vector<float> parameters) {
  AdamW::State fresh;
  fresh.first_moment.assign(parameters.size(), 0.0f);
  fresh.second_moment.assign(parameters.size(), 0.0f);
  Restore(std::move(parameters), std::move(fresh));
}

absl::Status Learner::Train(uint64_t step, const LeasedBatch& leased, StepReport* report) {
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
  LEEWAY_RETURN_IF_ERROR(BuildTrainBatch(batch_options, leased.groups, &batch_, &report->refused));
  if (!report->refused.empty()) return absl::OkStatus();

  const bool has_many_updates = batch_.updates.size() > 1;
  std::vector<float> parameters_before;
  AdamW::State optimizer_before;
  if (has_many_updates) {
    // The later minibatches see changed weights, so what the step began with is computed for all of them first; and a
    // step that turns out not to be finite half-way has to be undone.
    LEEWAY_RETURN_IF_ERROR(pass_.Score(batch_, &prox_));
    report->refused = FindMismatches(batch_, prox_);
    if (!report->refused.empty()) return absl::OkStatus();
    parameters_before = parameters_;
    optimizer_before = optimizer_.state();
  }
  for (size_t u = 0; u < batch_.updates.size() && report->is_finite; ++u) {
    LEEWAY_ASSIGN_OR_RETURN(report->is_finite, Update(batch_.updates[u], !has_many_updates, report));
    if (!report->refused.empty()) return absl::OkStatus();
  }
  if (!report->is_finite && report->updates > 0) {
    Restore(std::move(parameters_before), std::move(optimizer_before));
    report->updates = 0;
  }
  report->mismatch = ComputeMismatch(batch_, prox_);
  return absl::OkStatus();
}

absl::StatusOr<bool> Learner::Update(const UpdateRange& range, bool is_first, StepReport* report) {
  std::fill(gradients_.begin(), gradients_.end(), 0.0f);
  ObjectiveSums sums;
  LEEWAY_RETURN_IF_ERROR(pass_.Run(batch_, range, is_first ? absl::Span<const double>() : prox_, &theta_, &sums,
                                   absl::MakeSpan(gradients_)));
  if (is_first) {
    prox_ = theta_;
    report->refused = FindMismatches(batch_, prox_);
    if (!report->refused.empty()) return true;
  }
  const double norm = GlobalNorm(gradients_, parallel_);
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
  const double limit = options_.optimizer.max_grad_norm;
  const double scale = limit > 0 && norm > limit ? limit / norm : 1.0;
  optimizer_.Step(report->learning_rate, scale, gradients_, absl::MakeSpan(parameters_));
  model_.SetParameters(parameters_);
  ++report->updates;
  LEEWAY_FAILPOINT("trainer_after_optimizer");
  return true;
}

}  // namespace leeway
