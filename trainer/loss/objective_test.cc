#include "trainer/loss/objective.h"

#include <cmath>
#include <limits>
#include <tuple>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace leeway {
namespace {

using ::testing::HasSubstr;

// A batch of three sequences with 3, 1 and 4 positions (one of them masked), ratios on both sides of every clip and
// both signs of A.
struct Fixture {
  std::vector<SequenceRange> sequences = {{0, 3, 1.3}, {3, 4, -0.7}, {4, 8, -2.1}};
  std::vector<double> theta = {-0.9, -1.4, -0.2, -0.6, -2.3, -0.8, -1.9, -0.31};
  std::vector<double> prox = {-1.0, -1.1, -0.7, -0.55, -1.6, -0.9, -1.3, -0.3};
  std::vector<double> mu = {-0.8, -2.9, -0.6, -0.7, -1.0, -1.1, -0.1, -1.5};
  std::vector<double> entropy = {0.5, 1.5, 0.1, 0.9, 2.0, 0.4, 1.1, 0.7};
  std::vector<uint8_t> mask = {1, 1, 1, 1, 1, 0, 1, 1};

  ObjectiveInput Input() const { return {sequences, theta, prox, mu, entropy, mask}; }
  LossNormaliser Normaliser() const { return {7, 3}; }
};

double Clip(double x, double low, double high) { return x < low ? low : x > high ? high : x; }

// The loss straight from the formulas, one sequence and one token after the other, with what is under a stop-gradient
// taken from `fixed`.
double ReferenceLoss(const ObjectiveOptions& o, const Fixture& f, const Fixture& fixed) {
  double total = 0;
  const double low = 1 - o.epsilon_low, high = 1 + o.epsilon_high;
  for (const SequenceRange& s : f.sequences) {
    double n = 0, mean_log = 0;
    for (int64_t i = s.begin; i < s.end; ++i) {
      if (f.mask[i] == 0) continue;
      n += 1;
      mean_log += f.theta[i] - f.mu[i];
    }
    mean_log /= n;
    const double a = s.advantage;
    for (int64_t i = s.begin; i < s.end; ++i) {
      if (f.mask[i] == 0) continue;
      const double z = std::exp(f.theta[i] - f.mu[i]);
      const double z_fixed = std::exp(fixed.theta[i] - fixed.mu[i]);
      const double u = std::exp(f.theta[i] - f.prox[i]);
      const double rho = std::exp(f.prox[i] - f.mu[i]);
      double l = 0;
      if (o.kind == ObjectiveKind::kReinforce) l = -a * f.theta[i];
      if (o.kind == ObjectiveKind::kPpoClip) l = -std::min(z * a, Clip(z, low, high) * a);
      if (o.kind == ObjectiveKind::kCispo) l = -Clip(z_fixed, low, high) * a * f.theta[i];
      if (o.kind == ObjectiveKind::kGspo) {
        l = -std::min(std::exp(mean_log) * a, Clip(std::exp(mean_log), low, high) * a);
      }
      if (o.kind == ObjectiveKind::kDecoupled) {
        double w = 1;
        if (o.correction == CorrectionKind::kTis) w = std::min(rho, o.tis_cap);
        if (o.correction == CorrectionKind::kIcePop) w = rho >= o.icepop_low && rho <= o.icepop_high ? rho : 0;
        l = -w * std::min(u * a, Clip(u, low, high) * a);
      }
      l -= o.entropy_coefficient * f.entropy[i];
      if (o.aggregation == AggregationKind::kTokenMean) total += l / 7.0;
      if (o.aggregation == AggregationKind::kSeqMeanTokenSum) total += l / 3.0;
      if (o.aggregation == AggregationKind::kSeqMeanTokenMean) total += l / (3.0 * n);
      if (o.aggregation == AggregationKind::kSeqMeanTokenSumNorm) total += l / (3.0 * 11.0);
    }
  }
  return total;
}

using Case = std::tuple<ObjectiveKind, CorrectionKind, AggregationKind>;

class ObjectiveFormulaTest : public ::testing::TestWithParam<Case> {
 protected:
  ObjectiveOptions Options() const {
    ObjectiveOptions options;
    std::tie(options.kind, options.correction, options.aggregation) = GetParam();
    options.epsilon_low = 0.2;
    options.epsilon_high = 0.28;
    options.entropy_coefficient = 0.01;
    options.max_tokens = 11;
    return options;
  }
};

TEST_P(ObjectiveFormulaTest, LossAndDerivativesAreThoseOfTheFormula) {
  const ObjectiveOptions options = Options();
  ASSERT_TRUE(ObjectiveProblems(options).empty());
  const Fixture fixture;
  ObjectiveSums sums;
  std::vector<double> d_logprob, d_entropy;
  ASSERT_TRUE(EvaluateObjective(options, fixture.Normaliser(), fixture.Input(), &sums, &d_logprob, &d_entropy).ok());
  EXPECT_NEAR(sums.loss, ReferenceLoss(options, fixture, fixture), 1e-12);
  EXPECT_EQ(sums.tokens, 7);
  ObjectiveOptions without_entropy = options;
  without_entropy.entropy_coefficient = 0;
  EXPECT_NEAR(sums.policy_loss, ReferenceLoss(without_entropy, fixture, fixture), 1e-12);
  const double h = 1e-6;
  for (size_t i = 0; i < fixture.theta.size(); ++i) {
    Fixture up = fixture, down = fixture;
    up.theta[i] += h;
    down.theta[i] -= h;
    const double by_theta = (ReferenceLoss(options, up, fixture) - ReferenceLoss(options, down, fixture)) / (2 * h);
    EXPECT_NEAR(d_logprob[i], by_theta, 1e-8) << "theta " << i;
    up = down = fixture;
    up.entropy[i] += h;
    down.entropy[i] -= h;
    const double by_entropy = (ReferenceLoss(options, up, fixture) - ReferenceLoss(options, down, fixture)) / (2 * h);
    EXPECT_NEAR(d_entropy[i], by_entropy, 1e-8) << "entropy " << i;
  }
}

// Two halves with the counts of the whole give the whole's loss and derivatives.
TEST_P(ObjectiveFormulaTest, MicroBatchesAddUp) {
  const ObjectiveOptions options = Options();
  const Fixture fixture;
  ObjectiveSums whole, parts;
  std::vector<double> d_whole, d_entropy, d_first, d_second;
  ASSERT_TRUE(EvaluateObjective(options, fixture.Normaliser(), fixture.Input(), &whole, &d_whole, &d_entropy).ok());
  const std::vector<SequenceRange> second_range = {{0, 4, fixture.sequences[2].advantage}};
  const auto slice = [](const auto& values, size_t begin, size_t count) {
    return absl::MakeConstSpan(values).subspan(begin, count);
  };
  const ObjectiveInput first = {slice(fixture.sequences, 0, 2), slice(fixture.theta, 0, 4),
                                slice(fixture.prox, 0, 4),      slice(fixture.mu, 0, 4),
                                slice(fixture.entropy, 0, 4),   slice(fixture.mask, 0, 4)};
  const ObjectiveInput second = {second_range,
                                 slice(fixture.theta, 4, 4),
                                 slice(fixture.prox, 4, 4),
                                 slice(fixture.mu, 4, 4),
                                 slice(fixture.entropy, 4, 4),
                                 slice(fixture.mask, 4, 4)};
  ASSERT_TRUE(EvaluateObjective(options, fixture.Normaliser(), first, &parts, &d_first, &d_entropy).ok());
  ASSERT_TRUE(EvaluateObjective(options, fixture.Normaliser(), second, &parts, &d_second, &d_entropy).ok());
  EXPECT_NEAR(whole.loss, parts.loss, 1e-14);
  d_first.insert(d_first.end(), d_second.begin(), d_second.end());
  EXPECT_EQ(d_whole, d_first);
  EXPECT_EQ(whole.clipped, parts.clipped);
}

std::vector<Case> LegalCases() {
  std::vector<Case> cases;
  for (const std::string& aggregation : AggregationKindNames()) {
    const AggregationKind mode = *ParseAggregationKind(aggregation);
    for (const std::string& name : ObjectiveKindNames()) {
      cases.emplace_back(*ParseObjectiveKind(name), CorrectionKind::kNone, mode);
    }
    cases.emplace_back(ObjectiveKind::kDecoupled, CorrectionKind::kTis, mode);
    cases.emplace_back(ObjectiveKind::kDecoupled, CorrectionKind::kIcePop, mode);
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(All, ObjectiveFormulaTest, ::testing::ValuesIn(LegalCases()));

ObjectiveSums Evaluate(const ObjectiveOptions& options, const Fixture& fixture, std::vector<double>* d_logprob) {
  ObjectiveSums sums;
  std::vector<double> d_entropy;
  EXPECT_TRUE(EvaluateObjective(options, fixture.Normaliser(), fixture.Input(), &sums, d_logprob, &d_entropy).ok());
  for (double value : d_entropy) EXPECT_TRUE(std::isfinite(value));
  return sums;
}

TEST(ObjectiveTest, OnPolicyEveryRatioIsOneAndNothingIsClipped) {
  Fixture fixture;
  fixture.prox = fixture.mu = fixture.theta;
  for (const std::string& name : ObjectiveKindNames()) {
    ObjectiveOptions options;
    options.kind = *ParseObjectiveKind(name);
    std::vector<double> d_logprob;
    const ObjectiveSums sums = Evaluate(options, fixture, &d_logprob);
    EXPECT_EQ(sums.clipped, 0) << name;
    EXPECT_EQ(sums.kl_old, 0.0) << name;
    // At ratio 1 all of them have the policy gradient -A / N.
    EXPECT_DOUBLE_EQ(d_logprob[0], -1.3 / 7) << name;
    EXPECT_DOUBLE_EQ(d_logprob[7], 2.1 / 7) << name;
    EXPECT_EQ(d_logprob[5], 0.0) << name;
  }
}

TEST(ObjectiveTest, HugeLogRatiosStayFiniteAlsoUnderTheMask) {
  for (const std::string& name : ObjectiveKindNames()) {
    for (const std::string& correction : CorrectionKindNames()) {
      ObjectiveOptions options;
      options.kind = *ParseObjectiveKind(name);
      options.correction = *ParseCorrectionKind(correction);
      options.entropy_coefficient = 0.1;
      Fixture fixture;
      fixture.mu[0] = -1e4;
      fixture.theta[4] = -1e4;
      fixture.prox[6] = -1e4;
      // The masked position holds what must never be looked at.
      fixture.mu[5] = -std::numeric_limits<double>::infinity();
      fixture.theta[5] = std::numeric_limits<double>::quiet_NaN();
      fixture.entropy[5] = std::numeric_limits<double>::quiet_NaN();
      std::vector<double> d_logprob;
      const ObjectiveSums sums = Evaluate(options, fixture, &d_logprob);
      EXPECT_TRUE(std::isfinite(sums.loss)) << name;
      EXPECT_TRUE(std::isfinite(sums.kl_old)) << name;
      for (double value : d_logprob) EXPECT_TRUE(std::isfinite(value)) << name;
      EXPECT_EQ(d_logprob[5], 0.0);
    }
  }
}

TEST(ObjectiveTest, ANotANumberInATrainedTokenShowsInTheLoss) {
  for (const std::string& name : ObjectiveKindNames()) {
    ObjectiveOptions options;
    options.kind = *ParseObjectiveKind(name);
    Fixture fixture;
    fixture.theta[1] = std::numeric_limits<double>::quiet_NaN();
    std::vector<double> d_logprob;
    EXPECT_TRUE(std::isnan(Evaluate(options, fixture, &d_logprob).loss)) << name;
  }
}

TEST(ObjectiveTest, AFullyMaskedSequenceContributesNothing) {
  Fixture fixture;
  fixture.mask = {0, 0, 0, 1, 1, 0, 1, 1};
  ObjectiveOptions options;
  options.aggregation = AggregationKind::kSeqMeanTokenMean;
  std::vector<double> d_logprob;
  EXPECT_TRUE(std::isfinite(Evaluate(options, fixture, &d_logprob).loss));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(d_logprob[i], 0.0);
}

TEST(ObjectiveTest, ClippedAndCorrectedTokensAreCounted) {
  const Fixture fixture;
  ObjectiveOptions options;
  std::vector<double> d_logprob;
  // Ratios theta/mu: e^-.1, e^1.5 (A>0: clipped above), e^.4 (clipped above), e^.1, e^-1.3 (A<0: clipped below),
  // masked, e^-1.8 (clipped below), e^1.19 (A<0: not clipped above).
  EXPECT_EQ(Evaluate(options, fixture, &d_logprob).clipped, 4);
  options.kind = ObjectiveKind::kDecoupled;
  options.correction = CorrectionKind::kTis;
  // prox/mu: e^-.2, e^1.8 (> 2), e^-.1, e^.15, e^-.6, masked, e^-1.2, e^1.2 (> 2).
  EXPECT_EQ(Evaluate(options, fixture, &d_logprob).corrected, 2);
  options.correction = CorrectionKind::kIcePop;
  // Outside 0.5 .. 5: e^1.8, e^-1.2; e^-.6 = 0.549 is inside.
  EXPECT_EQ(Evaluate(options, fixture, &d_logprob).corrected, 2);
}

TEST(ObjectiveTest, LengthsAreCheckedBeforeAnyArithmetic) {
  ObjectiveSums sums;
  std::vector<double> d_logprob, d_entropy;
  const auto evaluate = [&](const Fixture& fixture) {
    return EvaluateObjective(ObjectiveOptions(), fixture.Normaliser(), fixture.Input(), &sums, &d_logprob, &d_entropy);
  };
  Fixture short_mu;
  short_mu.mu.pop_back();
  EXPECT_EQ(evaluate(short_mu).code(), absl::StatusCode::kInvalidArgument);
  Fixture gap;
  gap.sequences[1].begin = 2;
  EXPECT_EQ(evaluate(gap).code(), absl::StatusCode::kInvalidArgument);
  Fixture short_cover;
  short_cover.sequences.pop_back();
  EXPECT_EQ(evaluate(short_cover).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(sums.tokens, 0);
}

TEST(ObjectiveProblemsTest, IllegalPairsAreNamedWithTheWayOut) {
  for (const char* name : {"reinforce", "ppo_clip", "cispo", "gspo"}) {
    for (const char* correction : {"tis", "icepop"}) {
      ObjectiveOptions options;
      options.kind = *ParseObjectiveKind(name);
      options.correction = *ParseCorrectionKind(correction);
      const std::vector<ConfigProblem> problems = ObjectiveProblems(options);
      ASSERT_EQ(problems.size(), 1u);
      EXPECT_EQ(problems[0].key, "objective.correction");
      EXPECT_THAT(problems[0].message, AllOf(HasSubstr(name), HasSubstr(correction), HasSubstr("decoupled")));
    }
  }
}

TEST(ObjectiveProblemsTest, AllImpossibleNumbersAreListedAtOnce) {
  ObjectiveOptions options;
  options.epsilon_low = 1.5;
  options.epsilon_high = -1;
  options.entropy_coefficient = std::numeric_limits<double>::quiet_NaN();
  options.tis_cap = 0.5;
  options.icepop_low = 2;
  options.aggregation = AggregationKind::kSeqMeanTokenSumNorm;
  EXPECT_EQ(ObjectiveProblems(options).size(), 6u);
  EXPECT_TRUE(ObjectiveProblems(ObjectiveOptions()).empty());
}

TEST(ObjectiveProblemsTest, UnknownNamesAreAnsweredWithThePossibleOnes) {
  EXPECT_THAT(std::string(ParseObjectiveKind("ppo").status().message()),
              HasSubstr("reinforce, ppo_clip, cispo, gspo, decoupled"));
  EXPECT_THAT(std::string(ParseCorrectionKind("is").status().message()), HasSubstr("none, tis, icepop"));
  EXPECT_THAT(std::string(ParseAggregationKind("mean").status().message()),
              HasSubstr("token-mean, seq-mean-token-sum"));
}

}  // namespace
}  // namespace leeway
