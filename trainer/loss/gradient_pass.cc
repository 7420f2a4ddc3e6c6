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
  for (size_t i = 0; i < scores_.logprobs.size(); ++i) logprobs[micro.position_begin + i] = scores_.logprobs[i];
  return absl::OkStatus();
}

template <typename Real>
absl::Status GradientPass<Real>::Score(const TrainBatch& batch, std::vector<double>* logprobs) {
  logprobs->resize(batch.position_count());
  liveness_.Begin();
  for (const MicroBatch& micro : batch.micro_batches) {
    if (liveness_.IsDue()) LEEWAY_LOG_INFO("scored {} of {} positions", micro.position_begin, batch.position_count());
    LEEWAY_RETURN_IF_ERROR(ScoreMicroBatch(batch, micro, /*keep_activations=*/false, logprobs->data()));
  }
  return absl::OkStatus();
}

template <typename Real>
absl::Status GradientPass<Real>::Run(const TrainBatch& batch, const UpdateRange& update, absl::Span<const double> prox,
                                     std::vector<double>* theta, ObjectiveSums* sums, absl::Span<Real> gradients) {
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
    const int64_t begin = micro.position_begin;
    const size_t count = micro.positions.size();
    ranges_.clear();
    for (int64_t s = micro.sequence_begin; s < micro.sequence_end; ++s) {
      const TrainSequence& sequence = batch.sequences[s];
      ranges_.push_back({sequence.begin - begin, sequence.end - begin, sequence.advantage});
    }
    entropy_.assign(scores_.entropies.begin(), scores_.entropies.end());
    ObjectiveInput input;
    input.sequences = ranges_;
    input.theta = absl::MakeConstSpan(*theta).subspan(begin, count);
    input.prox = prox.empty() ? input.theta : prox.subspan(begin, count);
    input.mu = absl::MakeConstSpan(batch.mu).subspan(begin, count);
    input.entropy = entropy_;
    input.mask = absl::MakeConstSpan(batch.mask).subspan(begin, count);
    LEEWAY_RETURN_IF_ERROR(EvaluateObjective(options_, update.normaliser, input, sums, &d_logprob_, &d_entropy_));
    logprob_gradients_.assign(d_logprob_.begin(), d_logprob_.end());
    entropy_gradients_.assign(d_entropy_.begin(), d_entropy_.end());
    LEEWAY_RETURN_IF_ERROR(model_->Backward(logprob_gradients_, entropy_gradients_, gradients));
  }
  return absl::OkStatus();
}

template class GradientPass<float>;
template class GradientPass<double>;

}  // namespace leeway
