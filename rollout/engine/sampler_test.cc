#include "rollout/engine/sampler.h"

#include <cmath>
#include <limits>
#include <vector>

#include "base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/transformer/transformer.h"

namespace leeway {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

// softmax(logits / temperature) over `legal` in double, by the definition.
std::vector<double> Softmax(const std::vector<float>& logits, double temperature, std::vector<int32_t> legal) {
  if (legal.empty()) {
    for (size_t i = 0; i < logits.size(); ++i) legal.push_back(static_cast<int32_t>(i));
  }
  std::vector<double> probabilities(logits.size(), 0.0);
  double total = 0;
  for (int32_t id : legal) total += std::exp(logits[id] / temperature);
  for (int32_t id : legal) probabilities[id] = std::exp(logits[id] / temperature) / total;
  return probabilities;
}

SampledToken Draw(std::vector<float> logits, const SamplingParameters& sampling, const std::vector<int32_t>& legal,
                  double uniform) {
  std::vector<float> scratch(logits.size());
  return SampleToken(absl::MakeSpan(logits), sampling, legal, uniform, absl::MakeSpan(scratch));
}

std::vector<float> SomeLogits(int count, uint64_t seed) {
  std::vector<float> logits;
  for (int i = 0; i < count; ++i)
    logits.push_back(static_cast<float>(2.0 * RandomNormal({seed, RandomPurpose::kTask, 1, 0, 0, uint64_t(i)})));
  return logits;
}

// Share of a fine grid of uniforms that gives each id: the distribution, up to 1/N.
std::vector<double> Shares(const std::vector<float>& logits, const SamplingParameters& sampling,
                           const std::vector<int32_t>& legal) {
  constexpr int kGrid = 20'000;
  std::vector<double> shares(logits.size(), 0.0);
  for (int i = 0; i < kGrid; ++i) shares[Draw(logits, sampling, legal, (i + 0.5) / kGrid).id] += 1.0 / kGrid;
  return shares;
}

TEST(SamplerTest, DrawsFromTheTemperedDistribution) {
  const std::vector<float> logits = SomeLogits(64, 1);
  for (float temperature : {0.5f, 1.0f, 2.0f}) {
    SamplingParameters sampling;
    sampling.temperature = temperature;
    const std::vector<double> expected = Softmax(logits, temperature, {});
    const std::vector<double> shares = Shares(logits, sampling, {});
    for (size_t id = 0; id < logits.size(); ++id)
      EXPECT_NEAR(shares[id], expected[id], 2e-4) << "id " << id << " at " << temperature;
  }
}

TEST(SamplerTest, NeverLeavesTheLegalSet) {
  const std::vector<float> logits = SomeLogits(64, 2);
  const std::vector<int32_t> legal = {3, 17, 18, 60};
  const std::vector<double> expected = Softmax(logits, 1.0, legal);
  const std::vector<double> shares = Shares(logits, {}, legal);
  for (size_t id = 0; id < logits.size(); ++id) EXPECT_NEAR(shares[id], expected[id], 2e-4) << "id " << id;
  for (double uniform : {0.0, 0.5, std::nextafter(1.0, 0.0)})
    EXPECT_THAT(Draw(logits, {}, legal, uniform).id, AnyOf(3, 17, 18, 60));
}

TEST(SamplerTest, LogprobIsTheFloatOfTheSharedRoutine) {
  const std::vector<float> logits = SomeLogits(64, 3);
  for (const std::vector<int32_t>& legal : {std::vector<int32_t>{}, std::vector<int32_t>{0, 5, 9, 33}}) {
    for (int i = 0; i < 50; ++i) {
      SamplingParameters sampling;
      sampling.temperature = 0.7f;
      const SampledToken token = Draw(logits, sampling, legal, i / 50.0);
      std::vector<float> row = logits;
      LogSoftmaxRow<float>(absl::MakeSpan(row), 0.7f, legal);
      EXPECT_EQ(token.logprob, row[token.id]);
      EXPECT_NEAR(token.logprob, std::log(Softmax(logits, 0.7, legal)[token.id]), 1e-5);
    }
  }
}

TEST(SamplerTest, SingleLegalIdHasLogprobZero) {
  const SampledToken token = Draw(SomeLogits(64, 4), {}, {42}, 0.99);
  EXPECT_EQ(token.id, 42);
  EXPECT_EQ(token.logprob, 0.0f);
}

TEST(SamplerTest, ImpossibleIdsAreNotDrawnAtTheEdges) {
  // Ids 0 and 3 underflow to probability 0.
  const std::vector<float> logits = {-200.0f, 1.0f, 2.0f, -200.0f};
  EXPECT_EQ(Draw(logits, {}, {}, 0.0).id, 1);
  EXPECT_EQ(Draw(logits, {}, {}, std::nextafter(1.0, 0.0)).id, 2);
}

TEST(SamplerTest, TopKKeepsTheMostLikelyAndRenormalises) {
  const std::vector<float> logits = {0.0f, 3.0f, 1.0f, 2.0f, 2.0f};
  SamplingParameters sampling;
  sampling.top_k = 2;  // ids 1 and 3: of the equal ones the smaller id stays
  const double p1 = std::exp(3.0) / (std::exp(3.0) + std::exp(2.0));
  const std::vector<double> shares = Shares(logits, sampling, {});
  EXPECT_NEAR(shares[1], p1, 2e-4);
  EXPECT_NEAR(shares[3], 1 - p1, 2e-4);
  EXPECT_NEAR(Draw(logits, sampling, {}, 0.0).logprob, std::log(p1), 1e-5);
}

TEST(SamplerTest, TopPKeepsTheSmallestSufficientSet) {
  // Probabilities 0.5, 0.25, 0.125, 0.125.
  const std::vector<float> logits = {std::log(4.0f), std::log(2.0f), 0.0f, 0.0f};
  SamplingParameters sampling;
  sampling.top_p = 0.7f;
  const std::vector<double> shares = Shares(logits, sampling, {});
  EXPECT_NEAR(shares[0], 2.0 / 3, 2e-4);
  EXPECT_NEAR(shares[1], 1.0 / 3, 2e-4);
  sampling.top_p = 1e-6f;  // never empty
  EXPECT_EQ(Draw(logits, sampling, {}, 0.999).id, 0);
}

TEST(SamplerTest, GreedyTakesTheMostLikelyLegalId) {
  const std::vector<float> logits = {5.0f, 1.0f, 4.0f, 4.0f};
  SamplingParameters sampling;
  sampling.greedy = true;
  EXPECT_EQ(Draw(logits, sampling, {}, 0.999).id, 0);
  const SampledToken token = Draw(logits, sampling, {1, 2, 3}, 0.999);
  EXPECT_EQ(token.id, 2);
  EXPECT_NEAR(token.logprob, std::log(std::exp(4.0) / (2 * std::exp(4.0) + std::exp(1.0))), 1e-5);
}

TEST(SamplerTest, BrokenLogitsDrawNothing) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  SamplingParameters greedy;
  greedy.greedy = true;
  for (const SamplingParameters& sampling : {SamplingParameters(), greedy}) {
    for (float broken : {nan, infinity}) {
      const SampledToken token = Draw({1.0f, broken, 2.0f}, sampling, {}, 0.5);
      EXPECT_EQ(token.id, -1) << broken;
      EXPECT_FALSE(std::isfinite(token.logprob));
    }
  }
}

TEST(SamplerTest, ValidateListsEveryFault) {
  SamplingParameters sampling;
  sampling.temperature = 0.0f;
  sampling.top_k = -1;
  sampling.top_p = 1.5f;
  const absl::Status status = sampling.Validate(/*training=*/true);
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  for (const char* part : {"temperature", "top_k must be", "top_p must be", "evaluation only"}) {
    EXPECT_THAT(std::string(status.message()), HasSubstr(part));
  }
  EXPECT_TRUE(SamplingParameters().Validate(true).ok());
  SamplingParameters nucleus;
  nucleus.top_p = 0.9f;
  EXPECT_TRUE(nucleus.Validate(/*training=*/false).ok());
  EXPECT_FALSE(nucleus.Validate(/*training=*/true).ok());
}

TEST(FixedExpTest, IsAccurate) {
  double worst = 0;
  for (int i = 0; i <= 86'000; ++i) {
    const float x = -static_cast<float>(i) / 1000.0f;
    worst = std::max(worst, std::abs(internal::FixedExp(x) / std::exp(static_cast<double>(x)) - 1.0));
  }
  EXPECT_LT(worst, 3e-7);
  EXPECT_EQ(internal::FixedExp(0.0f), 1.0f);
  EXPECT_EQ(internal::FixedExp(-88.0f), 0.0f);
  EXPECT_EQ(internal::FixedExp(-std::numeric_limits<float>::infinity()), 0.0f);
}

}  // namespace
}  // namespace leeway
