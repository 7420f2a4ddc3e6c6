#include "trainer/loss/objective.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "trainer/enum_names.h"

namespace leeway {
namespace {

// exp(20) is 5e8: far outside every clip, far inside float.
constexpr double kMaxLogRatio = 20.0;

constexpr internal::EnumName<ObjectiveKind> kObjectives[] = {
    {ObjectiveKind::kReinforce, "reinforce"}, {ObjectiveKind::kPpoClip, "ppo_clip"},
    {ObjectiveKind::kCispo, "cispo"},         {ObjectiveKind::kGspo, "gspo"},
    {ObjectiveKind::kDecoupled, "decoupled"},
};
constexpr internal::EnumName<CorrectionKind> kCorrections[] = {
    {CorrectionKind::kNone, "none"},
    {CorrectionKind::kTis, "tis"},
    {CorrectionKind::kIcePop, "icepop"},
};
constexpr internal::EnumName<AggregationKind> kAggregations[] = {
    {AggregationKind::kTokenMean, "token-mean"},
    {AggregationKind::kSeqMeanTokenSum, "seq-mean-token-sum"},
    {AggregationKind::kSeqMeanTokenMean, "seq-mean-token-mean"},
    {AggregationKind::kSeqMeanTokenSumNorm, "seq-mean-token-sum-norm"},
};

// A ratio, formed in log space.
struct Ratio {
  double value = 1;
  // d value / d log numerator = value, or 0 where the clamp holds it.
  double slope = 1;
};

Ratio RatioOf(double log_ratio) {
  const double clamped = std::clamp(log_ratio, -kMaxLogRatio, kMaxLogRatio);
  const double value = std::exp(clamped);
  // A NaN passes through both, so that the step is seen to be not finite.
  return {value, clamped == log_ratio || std::isnan(log_ratio) ? value : 0.0};
}

// -min(ratio * A, clip(ratio) * A) and its derivative by the ratio's log numerator.
struct ClippedTerm {
  double loss = 0;
  double slope = 0;
  bool clipped = false;
};

ClippedTerm Clipped(const ObjectiveOptions& options, const Ratio& ratio, double advantage) {
  const double low = 1.0 - options.epsilon_low;
  const double high = 1.0 + options.epsilon_high;
  const double free_term = ratio.value * advantage;
  const double clip_term = std::clamp(ratio.value, low, high) * advantage;
  // Written so that a NaN takes the first branch and stays visible.
  if (!(clip_term < free_term)) return {-free_term, -ratio.slope * advantage, false};
  return {-clip_term, 0.0, true};
}

double CorrectionWeight(const ObjectiveOptions& options, double rho, bool* corrected) {
  switch (options.correction) {
    case CorrectionKind::kNone:
      return 1.0;
    case CorrectionKind::kTis:
      *corrected = rho > options.tis_cap;
      return *corrected ? options.tis_cap : rho;
    case CorrectionKind::kIcePop:
      *corrected = rho < options.icepop_low || rho > options.icepop_high;
      return *corrected ? 0.0 : rho;
  }
  return 1.0;
}

// What one token's loss is multiplied by before all are added. The same for all tokens of a sequence.
double TokenWeight(const ObjectiveOptions& options, const LossNormaliser& normaliser, int64_t trained_in_sequence) {
  const double sequences = static_cast<double>(normaliser.sequences);
  switch (options.aggregation) {
    case AggregationKind::kTokenMean:
      return 1.0 / static_cast<double>(normaliser.tokens);
    case AggregationKind::kSeqMeanTokenSum:
      return 1.0 / sequences;
    case AggregationKind::kSeqMeanTokenMean:
      return 1.0 / (sequences * static_cast<double>(trained_in_sequence));
    case AggregationKind::kSeqMeanTokenSumNorm:
      return 1.0 / (sequences * static_cast<double>(options.max_tokens));
  }
  return 0.0;
}

absl::Status CheckLengths(const ObjectiveInput& input) {
  const size_t count = input.theta.size();
  for (size_t other : {input.prox.size(), input.mu.size(), input.entropy.size(), input.mask.size()}) {
    if (other != count) {
      return absl::InvalidArgumentError(absl::StrCat("objective: ", count, " current log-probabilities, but prox ",
                                                     input.prox.size(), ", mu ", input.mu.size(), ", entropy ",
                                                     input.entropy.size(), ", mask ", input.mask.size()));
    }
  }
  int64_t position = 0;
  for (const SequenceRange& sequence : input.sequences) {
    if (sequence.begin != position || sequence.end < sequence.begin) {
      return absl::InvalidArgumentError(absl::StrCat("objective: a sequence has positions ", sequence.begin, "..",
                                                     sequence.end, " where ", position, " should begin"));
    }
    position = sequence.end;
  }
  if (position != static_cast<int64_t>(count)) {
    return absl::InvalidArgumentError(
        absl::StrCat("objective: sequences cover ", position, " of ", count, " positions"));
  }
  return absl::OkStatus();
}

// The two families of terms: by token, and by sequence (gspo).
struct TokenTerm {
  double loss = 0;
  double slope = 0;
  bool clipped = false;
  bool corrected = false;
};

TokenTerm TermOfToken(const ObjectiveOptions& options, const ObjectiveInput& input, int64_t i, double advantage) {
  TokenTerm term;
  switch (options.kind) {
    case ObjectiveKind::kReinforce:
      term.loss = -advantage * input.theta[i];
      term.slope = -advantage;
      break;
    case ObjectiveKind::kCispo: {
      const double ratio = RatioOf(input.theta[i] - input.mu[i]).value;
      const double weight = std::clamp(ratio, 1.0 - options.epsilon_low, 1.0 + options.epsilon_high);
      term.loss = -weight * advantage * input.theta[i];
      term.slope = -weight * advantage;
      term.clipped = weight != ratio;
      break;
    }
    case ObjectiveKind::kPpoClip: {
      const ClippedTerm clipped = Clipped(options, RatioOf(input.theta[i] - input.mu[i]), advantage);
      term.loss = clipped.loss;
      term.slope = clipped.slope;
      term.clipped = clipped.clipped;
      break;
    }
    case ObjectiveKind::kDecoupled: {
      const double rho = RatioOf(input.prox[i] - input.mu[i]).value;
      const double weight = CorrectionWeight(options, rho, &term.corrected);
      const ClippedTerm clipped = Clipped(options, RatioOf(input.theta[i] - input.prox[i]), advantage);
      term.loss = weight * clipped.loss;
      term.slope = weight * clipped.slope;
      term.clipped = clipped.clipped;
      break;
    }
    case ObjectiveKind::kGspo:
      break;  // per sequence, below
  }
  return term;
}

// The gspo term, the same for each trained token of the sequence.
TokenTerm TermOfSequence(const ObjectiveOptions& options, const ObjectiveInput& input, const SequenceRange& sequence,
                         int64_t trained) {
  double log_ratio = 0;
  for (int64_t i = sequence.begin; i < sequence.end; ++i) {
    if (input.mask[i]) log_ratio += input.theta[i] - input.mu[i];
  }
  const Ratio ratio = RatioOf(log_ratio / static_cast<double>(trained));
  const ClippedTerm clipped = Clipped(options, ratio, sequence.advantage);
  // d s / d log theta_t = s / n for each of the n tokens; as each of them carries the whole loss, their sum gives s
  // back.
  return {clipped.loss, clipped.slope, clipped.clipped, false};
}

void Check(bool ok, const char* field, std::string message, std::vector<ConfigProblem>* problems) {
  if (!ok) problems->push_back({absl::StrCat("objective.", field), std::move(message)});
}

}  // namespace

absl::StatusOr<ObjectiveKind> ParseObjectiveKind(absl::string_view name) {
  return internal::ParseEnum(kObjectives, "objective", name);
}
absl::StatusOr<CorrectionKind> ParseCorrectionKind(absl::string_view name) {
  return internal::ParseEnum(kCorrections, "correction", name);
}
absl::StatusOr<AggregationKind> ParseAggregationKind(absl::string_view name) {
  return internal::ParseEnum(kAggregations, "aggregation", name);
}

const std::vector<std::string>& ObjectiveKindNames() {
  static const auto* const names = new std::vector<std::string>(internal::EnumNames(kObjectives));
  return *names;
}
const std::vector<std::string>& CorrectionKindNames() {
  static const auto* const names = new std::vector<std::string>(internal::EnumNames(kCorrections));
  return *names;
}
const std::vector<std::string>& AggregationKindNames() {
  static const auto* const names = new std::vector<std::string>(internal::EnumNames(kAggregations));
  return *names;
}

absl::string_view ObjectiveKindName(ObjectiveKind kind) { return internal::NameOfEnum(kObjectives, kind); }

std::vector<ConfigProblem> ObjectiveProblems(const ObjectiveOptions& options) {
  std::vector<ConfigProblem> problems;
  const bool decoupled = options.kind == ObjectiveKind::kDecoupled;
  Check(decoupled || options.correction == CorrectionKind::kNone, "correction",
        absl::StrCat("\"", internal::NameOfEnum(kCorrections, options.correction), "\" corrects prox/mu, which \"",
                     ObjectiveKindName(options.kind),
                     "\" has no use for: its ratio is against mu already; use correction = \"none\", or "
                     "objective.name = \"decoupled\""),
        &problems);
  // epsilon_low = 1 would clip at 0, where no ratio ever is: the bound would be none.
  Check(options.epsilon_low > 0 && options.epsilon_low < 1, "epsilon_low",
        absl::StrCat(options.epsilon_low, " is not between 0 and 1 (the ratio is clipped below at 1 - epsilon_low)"),
        &problems);
  Check(
      options.epsilon_high > 0 && std::isfinite(options.epsilon_high), "epsilon_high",
      absl::StrCat(options.epsilon_high, " is not a positive number (the ratio is clipped above at 1 + epsilon_high)"),
      &problems);
  Check(options.entropy_coefficient >= 0 && std::isfinite(options.entropy_coefficient), "entropy_coefficient",
        absl::StrCat(options.entropy_coefficient, " is not a number >= 0"), &problems);
  Check(options.tis_cap >= 1 && std::isfinite(options.tis_cap), "tis_cap",
        absl::StrCat(options.tis_cap, " is not a number >= 1 (on-policy tokens have weight 1)"), &problems);
  Check(options.icepop_low >= 0 && options.icepop_low <= 1 && options.icepop_high >= 1 &&
            std::isfinite(options.icepop_high),
        "icepop_low",
        absl::StrCat("icepop_low ", options.icepop_low, " .. icepop_high ", options.icepop_high,
                     " does not contain 1 (on-policy tokens have weight 1)"),
        &problems);
  Check(options.aggregation != AggregationKind::kSeqMeanTokenSumNorm || options.max_tokens > 0, "max_tokens",
        absl::StrCat(options.max_tokens,
                     " is not the most tokens that an episode may sample, by which "
                     "\"seq-mean-token-sum-norm\" divides"),
        &problems);
  return problems;
}

absl::Status EvaluateObjective(const ObjectiveOptions& options, const LossNormaliser& normaliser,
                               const ObjectiveInput& input, ObjectiveSums* sums, std::vector<double>* d_logprob,
                               std::vector<double>* d_entropy) {
  if (absl::Status status = CheckLengths(input); !status.ok()) return status;
  d_logprob->assign(input.theta.size(), 0.0);
  d_entropy->assign(input.theta.size(), 0.0);
  const bool by_sequence = options.kind == ObjectiveKind::kGspo;
  for (const SequenceRange& sequence : input.sequences) {
    int64_t trained = 0;
    for (int64_t i = sequence.begin; i < sequence.end; ++i) trained += input.mask[i] ? 1 : 0;
    if (trained == 0) continue;
    const double weight = TokenWeight(options, normaliser, trained);
    const TokenTerm whole = by_sequence ? TermOfSequence(options, input, sequence, trained) : TokenTerm();
    for (int64_t i = sequence.begin; i < sequence.end; ++i) {
      if (!input.mask[i]) continue;
      const TokenTerm term = by_sequence ? whole : TermOfToken(options, input, i, sequence.advantage);
      (*d_logprob)[i] = weight * term.slope;
      (*d_entropy)[i] = -weight * options.entropy_coefficient;
      sums->policy_loss += weight * term.loss;
      sums->loss += weight * (term.loss - options.entropy_coefficient * input.entropy[i]);
      sums->entropy += input.entropy[i];
      const double anchor = options.kind == ObjectiveKind::kDecoupled ? input.prox[i] : input.mu[i];
      const double log_ratio = std::clamp(input.theta[i] - anchor, -kMaxLogRatio, kMaxLogRatio);
      sums->kl_old += std::expm1(log_ratio) - log_ratio;
      sums->clipped += term.clipped ? 1 : 0;
      sums->corrected += term.corrected ? 1 : 0;
    }
    sums->tokens += trained;
  }
  return absl::OkStatus();
}

}  // namespace leeway
