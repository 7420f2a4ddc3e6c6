#include "trainer/loss/gradient_pass.h"

#include "base/logging.h"
#include "base/status_macros.h"

namespace leeway {

template <typename Real>
absl::Status GradientPass<Real>::ScoreMicroBatch(const TrainBatch& batch, const MicroBatch& micro,
                                                 bool keep_activations, double* logprobs) {
  LEEWAY_RETURN_IF_ERROR(model_->Score(micro.sequences, micro.positions, batch.legal_sets, keep_activations, &scores_));
  LEEWAY_CHECK(scores_.logprobs.size() == micro.positions.size() && scores_.entropies.size() == micro.positions.size())
      << scores_.logprobs.size() << " scores for " << micro.positions.size() << " positions";
  const Real* next = scores_.logprobs.data();
  for (const int64_t s : micro.members) {
    const TrainSequence& sequence = batch.sequences[s];
    for (int64_t i = sequence.begin; i < sequence.end; ++i) logprobs[i] = *next++;
  }
  return absl::OkStatus();
}

template <typename Real>
absl::Status GradientPass<Real>::Score(const TrainBatch& batch, std::vector<double>* logprobs) {
  logprobs->resize(batch.position_count());
  liveness_.Begin();
  for (size_t m = 0; m < batch.micro_batches.size(); ++m) {
    if (liveness_.IsDue()) LEEWAY_LOG_INFO("scored {} of {} micro-batches", m, batch.micro_batches.size());
    LEEWAY_RETURN_IF_ERROR(
        ScoreMicroBatch(batch, batch.micro_batches[m], /*keep_activations=*/false, logprobs->data()));
  }
  return absl::OkStatus();
}

template <typename Real>
absl::Status GradientPass<Real>::RunMicroBatches(const TrainBatch& batch, const UpdateRange& update,
                                                 absl::Span<const double> prox, std::vector<double>* theta,
                                                 ObjectiveSums* sums, const std::function<absl::Status()>& backward) {
  LEEWAY_CHECK(prox.empty() || static_cast<int64_t>(prox.size()) == batch.position_count()) << prox.size();
  theta->resize(batch.position_count());
  liveness_.Begin();
  for (int64_t m = update.micro_begin; m < update.micro_end; ++m) {
    const MicroBatch& micro = batch.micro_batches[m];
    if (liveness_.IsDue()) {
      LEEWAY_LOG_INFO("gradients of {} of {} micro-batches", m - update.micro_begin,
                      update.micro_end - update.micro_begin);
    }
    LEEWAY_RETURN_IF_ERROR(ScoreMicroBatch(batch, micro, /*keep_activations=*/true, theta->data()));
    ranges_.clear();
    theta_.clear();
    prox_.clear();
    mu_.clear();
    mask_.clear();
    for (const int64_t s : micro.members) {
      const TrainSequence& sequence = batch.sequences[s];
      const int64_t begin = static_cast<int64_t>(theta_.size());
      const auto append = [&sequence](const auto& from, auto* to) {
        to->insert(to->end(), from.begin() + sequence.begin, from.begin() + sequence.end);
      };
      append(*theta, &theta_);
      if (!prox.empty()) append(prox, &prox_);
      append(batch.mu, &mu_);
      append(batch.mask, &mask_);
      ranges_.push_back({begin, static_cast<int64_t>(theta_.size()), sequence.advantage});
    }
    entropy_.assign(scores_.entropies.begin(), scores_.entropies.end());
    ObjectiveInput input;
    input.sequences = ranges_;
    input.theta = theta_;
    input.prox = prox.empty() ? theta_ : prox_;
    input.mu = mu_;
    input.entropy = entropy_;
    input.mask = mask_;
    LEEWAY_RETURN_IF_ERROR(EvaluateObjective(options_, update.normaliser, input, sums, &d_logprob_, &d_entropy_));
    logprob_gradients_.assign(d_logprob_.begin(), d_logprob_.end());
    entropy_gradients_.assign(d_entropy_.begin(), d_entropy_.end());
    LEEWAY_RETURN_IF_ERROR(backward());
  }
  return absl::OkStatus();
}

template <typename Real>
absl::Status GradientPass<Real>::Run(const TrainBatch& batch, const UpdateRange& update, absl::Span<const double> prox,
                                     std::vector<double>* theta, ObjectiveSums* sums, absl::Span<Real> gradients) {
  return RunMicroBatches(batch, update, prox, theta, sums,
                         [&] { return model_->Backward(logprob_gradients_, entropy_gradients_, gradients); });
}

template <typename Real>
absl::Status GradientPass<Real>::Run(const TrainBatch& batch, const UpdateRange& update, absl::Span<const double> prox,
                                     std::vector<double>* theta, ObjectiveSums* sums, GradientSink<Real>* sink) {
  return RunMicroBatches(batch, update, prox, theta, sums,
                         [&] { return model_->Backward(logprob_gradients_, entropy_gradients_, sink); });
}

template class GradientPass<float>;
template class GradientPass<double>;

}  // namespace leeway
