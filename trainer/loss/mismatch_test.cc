#include "trainer/loss/mismatch.h"

#include <cmath>
#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace leeway {
namespace {

using ::testing::HasSubstr;

// Two groups of one sequence with three positions each.
TrainBatch Batch() {
  TrainBatch batch;
  batch.mu = {-1.0, -0.5, -2.0, -0.25, -1.5, -3.0};
  batch.lag = {0, 0, 0, 0, 0, 0};
  batch.mask = {1, 1, 1, 1, 1, 1};
  batch.trained_tokens = 6;
  TrainSequence first;
  first.ticket = 3;
  first.end = 3;
  first.is_exact = true;
  TrainSequence second = first;
  second.ticket = 8;
  second.begin = 3;
  second.end = 6;
  batch.sequences = {first, second};
  return batch;
}

TEST(MismatchTest, EqualLogprobsGiveExactlyTheValuesOfNoMismatch) {
  const TrainBatch batch = Batch();
  const MismatchMetrics metrics = ComputeMismatch(batch, batch.mu);
  EXPECT_EQ(metrics.k1, 0.0);
  EXPECT_FALSE(std::signbit(metrics.k1));
  EXPECT_EQ(metrics.k3, 0.0);
  EXPECT_EQ(metrics.ratio_max, 1.0);
  EXPECT_EQ(metrics.ess, 1.0);
  EXPECT_TRUE(FindMismatches(batch, batch.mu).empty());
}

// Ratios q = 2, 1/2 on two trained tokens, by hand: k1 = 0, k3 = (2 - 1 - ln 2 + 1/2 - 1 + ln 2)/2 = 1/4, ESS = 2.5^2 /
// (2 * 4.25).
TEST(MismatchTest, KnownRatios) {
  TrainBatch batch = Batch();
  batch.mask = {1, 1, 0, 0, 0, 0};
  batch.trained_tokens = 2;
  std::vector<double> prox = batch.mu;
  prox[0] += std::log(2.0);
  prox[1] -= std::log(2.0);
  prox[2] += 5;  // masked
  const MismatchMetrics metrics = ComputeMismatch(batch, prox);
  EXPECT_NEAR(metrics.k1, 0.0, 1e-15);
  EXPECT_NEAR(metrics.k3, 0.25, 1e-15);
  EXPECT_NEAR(metrics.ratio_max, 2.0, 1e-14);
  EXPECT_NEAR(metrics.ess, 6.25 / 8.5, 1e-14);
}

TEST(MismatchTest, NoTrainedTokenIsNoMismatch) {
  TrainBatch batch = Batch();
  batch.mask.assign(6, 0);
  batch.trained_tokens = 0;
  EXPECT_EQ(ComputeMismatch(batch, std::vector<double>(6, -9)).ess, 1.0);
}

TEST(MismatchTest, OneBitAtLagZeroConvictsTheGroup) {
  const TrainBatch batch = Batch();
  std::vector<double> prox = batch.mu;
  prox[4] = std::nextafterf(static_cast<float>(batch.mu[4]), 0.0f);
  const std::vector<RefusedGroup> refused = FindMismatches(batch, prox);
  ASSERT_EQ(refused.size(), 1u);
  EXPECT_EQ(refused[0].ticket, 8u);
  EXPECT_EQ(refused[0].reason, "logprob_mismatch");
  EXPECT_THAT(refused[0].detail, HasSubstr("sampled token 1"));
  prox[4] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(FindMismatches(batch, prox).size(), 1u);
}

TEST(MismatchTest, ZeroFilledAndShiftedLogprobsAreCaught) {
  TrainBatch zeros = Batch();
  const std::vector<double> truth = zeros.mu;
  zeros.mu.assign(6, 0.0);
  EXPECT_EQ(FindMismatches(zeros, truth).size(), 2u);
  TrainBatch shifted = Batch();
  for (int i = 0; i < 3; ++i) shifted.mu[i] = truth[(i + 1) % 3];
  const std::vector<RefusedGroup> refused = FindMismatches(shifted, truth);
  ASSERT_EQ(refused.size(), 1u);
  EXPECT_EQ(refused[0].ticket, 3u);
}

TEST(MismatchTest, WithLagOrAnInconsistentCacheOnlyTheMetricsMove) {
  TrainBatch batch = Batch();
  std::vector<double> prox = batch.mu;
  for (double& value : prox) value -= 0.1;
  batch.lag.assign(6, 1);
  EXPECT_TRUE(FindMismatches(batch, prox).empty());
  EXPECT_NEAR(ComputeMismatch(batch, prox).k1, 0.1, 1e-12);
  batch.lag.assign(6, 0);
  batch.sequences[0].is_exact = batch.sequences[1].is_exact = false;
  EXPECT_TRUE(FindMismatches(batch, prox).empty());
}

}  // namespace
}  // namespace leeway
