#include "trainer/loss/mismatch.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_format.h"
#include "base/status_macros.h"

namespace leeway {
namespace {

constexpr double kMaxLogRatio = 20.0;

}  // namespace

MismatchMetrics ComputeMismatch(const TrainBatch& batch, absl::Span<const double> prox) {
  LEEWAY_CHECK(prox.size() == batch.mu.size()) << prox.size() << " of " << batch.mu.size();
  MismatchMetrics metrics;
  if (batch.trained_tokens == 0) return metrics;
  double sum_log = 0;
  double sum_k3 = 0;
  double sum = 0;
  double sum_squares = 0;
  double largest = 0;
  for (size_t i = 0; i < batch.mu.size(); ++i) {
    if (!batch.mask[i]) continue;
    const double log_ratio = std::clamp(prox[i] - batch.mu[i], -kMaxLogRatio, kMaxLogRatio);
    const double ratio = std::exp(log_ratio);
    sum_log += log_ratio;
    sum_k3 += std::expm1(log_ratio) - log_ratio;
    sum += ratio;
    sum_squares += ratio * ratio;
    largest = std::max(largest, ratio);
  }
  const double count = static_cast<double>(batch.trained_tokens);
  metrics.k1 = sum_log == 0 ? 0.0 : -sum_log / count;
  metrics.k3 = sum_k3 / count;
  metrics.ratio_max = largest;
  metrics.ess = sum * sum / (count * sum_squares);
  return metrics;
}

std::vector<RefusedGroup> FindMismatches(const TrainBatch& batch, absl::Span<const double> prox) {
  LEEWAY_CHECK(prox.size() == batch.mu.size()) << prox.size() << " of " << batch.mu.size();
  std::vector<RefusedGroup> refused;
  for (const TrainSequence& sequence : batch.sequences) {
    if (!sequence.is_exact) continue;
    if (!refused.empty() && refused.back().ticket == sequence.ticket) continue;
    for (int64_t i = sequence.begin; i < sequence.end; ++i) {
      // Written so that a NaN counts as different.
      if (batch.lag[i] != 0 || prox[i] == batch.mu[i]) continue;
      refused.push_back({sequence.ticket, "logprob_mismatch",
                         absl::StrFormat("member %u, sampled token %d: recorded log-probability %.9g, recomputed %.9g",
                                         sequence.member, i - sequence.begin, batch.mu[i], prox[i])});
      break;
    }
  }
  return refused;
}

}  // namespace leeway
