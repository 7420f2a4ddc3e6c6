#include "rollout/engine/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "model/transformer/transformer.h"

namespace leeway {
namespace {

inline float ExpOf(float x) {
  // exp(x) = 2^n * exp(r), n = nearest integer to x / ln 2, |r| <= ln 2 / 2. Adding and subtracting 1.5 * 2^23 rounds
  // to nearest.
  constexpr float kRound = 12582912.0f;
  const float clamped = x < -87.0f ? -87.0f : x;
  const float shifted = clamped * 1.44269504f + kRound;
  const float n = shifted - kRound;
  const float r = (clamped - n * 0.693145751953125f) - n * 1.42860677e-6f;
  float p = 1.38888889e-3f;
  p = p * r + 8.33333377e-3f;
  p = p * r + 4.16666679e-2f;
  p = p * r + 1.66666672e-1f;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  const int32_t exponent = std::bit_cast<int32_t>(shifted) - std::bit_cast<int32_t>(kRound);
  const float scale = std::bit_cast<float>(static_cast<uint32_t>(exponent + 127) << 23);
  return x < -87.0f ? 0.0f : p * scale;
}

// Sets the weights of everything outside top-k and top-p to 0. Equal weights: the earlier (smaller id) is the more
// likely.
void RestrictWeights(const SamplingParameters& sampling, absl::Span<float> weights) {
  std::vector<int32_t> order(weights.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return weights[a] > weights[b]; });
  size_t kept = order.size();
  if (sampling.top_k > 0) kept = std::min(kept, static_cast<size_t>(sampling.top_k));
  if (sampling.top_p < 1.0f) {
    double reached = 0;
    size_t count = 0;
    while (count < kept && reached < sampling.top_p) reached += weights[order[count++]];
    kept = std::max<size_t>(count, 1);
  }
  for (size_t i = kept; i < order.size(); ++i) weights[order[i]] = 0.0f;
}

}  // namespace

namespace internal {
float FixedExp(float x) { return ExpOf(x); }
}  // namespace internal

absl::Status SamplingParameters::Validate(bool training) const {
  std::string faults;
  if (!(temperature > 0.0f) || !std::isfinite(temperature)) {
    absl::StrAppend(&faults, "temperature must be a finite number > 0, got ", temperature, "; ");
  }
  if (top_k < 0) absl::StrAppend(&faults, "top_k must be >= 0 (0 = off), got ", top_k, "; ");
  if (!(top_p > 0.0f && top_p <= 1.0f)) absl::StrAppend(&faults, "top_p must be in (0, 1], got ", top_p, "; ");
  if (training && restricts()) {
    absl::StrAppend(
        &faults,
        "top_k, top_p and greedy are for evaluation only: the trainer could not apply the same transform to a training "
        "episode; ");
  }
  if (faults.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError("sampling: " + faults.substr(0, faults.size() - 2));
}

SampledToken SampleToken(absl::Span<float> logits, const SamplingParameters& sampling,
                         absl::Span<const int32_t> legal_ids, double uniform, absl::Span<float> scratch) {
  LogSoftmaxRow<float>(logits, sampling.temperature, legal_ids);
  const size_t count = legal_ids.empty() ? logits.size() : legal_ids.size();
  const auto id_at = [&](size_t i) { return legal_ids.empty() ? static_cast<int32_t>(i) : legal_ids[i]; };

  if (sampling.greedy) {
    int32_t best = id_at(0);
    for (size_t i = 1; i < count; ++i) {
      if (logits[id_at(i)] > logits[best]) best = id_at(i);
    }
    if (!std::isfinite(logits[best])) return {-1, logits[best]};
    return {best, logits[best]};
  }

  float* weights = scratch.data();
  if (legal_ids.empty()) {
    for (size_t i = 0; i < count; ++i) weights[i] = ExpOf(logits[i]);
  } else {
    for (size_t i = 0; i < count; ++i) weights[i] = ExpOf(logits[legal_ids[i]]);
  }
  if (sampling.restricts()) RestrictWeights(sampling, absl::MakeSpan(weights, count));
  double total = 0;
  for (size_t i = 0; i < count; ++i) total += weights[i];
  // NaN anywhere shows in the total; all weights together are about 1.
  if (!(total > 0.0) || !std::isfinite(total)) return {-1, std::numeric_limits<float>::quiet_NaN()};

  const double threshold = uniform * total;
  double reached = 0;
  size_t chosen = count;
  for (size_t i = 0; i < count; ++i) {
    if (weights[i] == 0.0f) continue;
    chosen = i;
    reached += weights[i];
    if (reached > threshold) break;
  }
  const int32_t id = id_at(chosen);
  float logprob = logits[id];
  if (sampling.restricts()) logprob = static_cast<float>(std::log(static_cast<double>(weights[chosen]) / total));
  return {id, logprob};
}

}  // namespace leeway
