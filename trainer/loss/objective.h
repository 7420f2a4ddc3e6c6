#ifndef LEEWAY_TRAINER_LOSS_OBJECTIVE_H_
#define LEEWAY_TRAINER_LOSS_OBJECTIVE_H_

// Policy-gradient objectives: from log-probabilities and advantages to a loss and its derivatives, position by
// position. Pure arithmetic in double: no model, no threads.
//
// Notation (l = loss of a token, A = advantage, mu = recorded, prox = recomputed before the step's first update, theta
// = current):
//   reinforce   l = -A * log theta
//   ppo_clip    l = -min(z*A, clip(z, 1-epsilon_low, 1+epsilon_high)*A)             z = theta/mu
//   cispo       l = -stop(clip(z, 1-epsilon_low, 1+epsilon_high)) * A * log theta   z = theta/mu
//   gspo        l = -min(s*A, clip(s, ...)*A) for every token of a sequence          s = exp(mean over its trained
//   tokens of log z) decoupled   l = -stop(w(prox/mu)) * min(u*A, clip(u, ...)*A)                     u = theta/prox
// and to each: minus entropy_coefficient * entropy. Ratios are formed in log space and clamped to exp(+-20); beyond the
// clamp they are constants. Positions with mask 0 are left out by selection, never by multiplication: whatever they
// hold, their derivatives are 0.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "trainer/config_problem.h"

namespace leeway {

enum class ObjectiveKind { kReinforce, kPpoClip, kCispo, kGspo, kDecoupled };
// The weight of a token by its ratio rho = prox/mu.
enum class CorrectionKind {
  kNone,    // "none"    1
  kTis,     // "tis"     min(rho, tis_cap)
  kIcePop,  // "icepop"  rho where icepop_low <= rho <= icepop_high, else 0
};
// How token losses become one number. N = trained tokens, B = sequences with a trained token, n_i = trained tokens of
// sequence i, all over the whole batch of one optimizer update, however it is split into micro-batches.
enum class AggregationKind {
  kTokenMean,            // "token-mean"               sum l / N
  kSeqMeanTokenSum,      // "seq-mean-token-sum"       1/B sum_i sum_t l
  kSeqMeanTokenMean,     // "seq-mean-token-mean"      1/B sum_i 1/n_i sum_t l
  kSeqMeanTokenSumNorm,  // "seq-mean-token-sum-norm"  1/(B * max_tokens) sum_i sum_t l
};

struct ObjectiveOptions {
  ObjectiveKind kind = ObjectiveKind::kPpoClip;
  CorrectionKind correction = CorrectionKind::kNone;
  AggregationKind aggregation = AggregationKind::kTokenMean;
  double epsilon_low = 0.2;
  double epsilon_high = 0.28;
  double tis_cap = 2.0;
  double icepop_low = 0.5;
  double icepop_high = 5.0;
  double entropy_coefficient = 0.0;
  // Only for seq-mean-token-sum-norm: the most tokens that one episode may sample.
  int64_t max_tokens = 0;
};

// INVALID_ARGUMENT naming the possible values.
absl::StatusOr<ObjectiveKind> ParseObjectiveKind(absl::string_view name);
absl::StatusOr<CorrectionKind> ParseCorrectionKind(absl::string_view name);
absl::StatusOr<AggregationKind> ParseAggregationKind(absl::string_view name);
const std::vector<std::string>& ObjectiveKindNames();
const std::vector<std::string>& CorrectionKindNames();
const std::vector<std::string>& AggregationKindNames();
absl::string_view ObjectiveKindName(ObjectiveKind kind);

// Everything that is impossible: illegal pairs (a correction other than `none` belongs to `decoupled` only), numbers
// out of range, a missing max_tokens. Keys are "objective.<field>". Empty = usable.
std::vector<ConfigProblem> ObjectiveProblems(const ObjectiveOptions& options);

// Counts of the batch of one optimizer update.
struct LossNormaliser {
  int64_t tokens = 0;     // N
  int64_t sequences = 0;  // B
};

// One sequence's share of the position arrays below.
struct SequenceRange {
  int64_t begin = 0;
  int64_t end = 0;
  double advantage = 0;
};

// All spans have the same length: one entry a position.
struct ObjectiveInput {
  absl::Span<const SequenceRange> sequences;  // in order, back to back
  absl::Span<const double> theta;             // log-probabilities, current
  absl::Span<const double> prox;              // log-probabilities, before the first update of the step
  absl::Span<const double> mu;                // log-probabilities, recorded
  absl::Span<const double> entropy;
  absl::Span<const uint8_t> mask;  // 1 = trained
};

// Sums over the positions given; a batch in several micro-batches adds them up.
struct ObjectiveSums {
  double policy_loss = 0;  // normalised; without the entropy term
  double loss = 0;         // normalised; with it
  double entropy = 0;      // plain sum over trained tokens
  double kl_old = 0;       // plain sum of z - 1 - log z, z = the ratio that the objective clips (reinforce: theta/mu)
  int64_t clipped = 0;     // trained tokens whose clip is active (gspo: tokens of clipped sequences)
  int64_t tokens = 0;      // trained tokens
  // Decoupled only: trained tokens whose correction weight was cut (tis) or zeroed (icepop).
  int64_t corrected = 0;
};

// Adds to `sums`; sets d_logprob[i] = d loss / d theta[i] and d_entropy[i] = d loss / d entropy[i] (resized to the
// positions). Lengths are checked before any arithmetic: INVALID_ARGUMENT.
absl::Status EvaluateObjective(const ObjectiveOptions& options, const LossNormaliser& normaliser,
                               const ObjectiveInput& input, ObjectiveSums* sums, std::vector<double>* d_logprob,
                               std::vector<double>* d_entropy);

}  // namespace leeway

#endif  // LEEWAY_TRAINER_LOSS_OBJECTIVE_H_
