#include "trainer/records/metrics_line.h"

#include <cmath>
#include <set>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace leeway {
namespace {

using nlohmann::json;

// Ten trained tokens with lags 0 (x4), 1 (x5), 3 (x1), and a masked one with lag 9.
TrainBatch Batch() {
  TrainBatch batch;
  batch.lag = {0, 0, 0, 0, 1, 1, 1, 1, 1, 3, 9};
  batch.mask = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0};
  batch.mu.assign(11, -1.0);
  batch.trained_tokens = 10;
  batch.masked_tokens = 1;
  batch.sequences.resize(4);
  batch.updates.resize(2);
  batch.work.Add(6, 4);
  batch.work.Add(2, 1);
  batch.rewards = {1, 0, 0, 1};
  return batch;
}

StepReport Report() {
  StepReport report;
  report.updates = 2;
  report.sums.policy_loss = 0.5;
  report.sums.entropy = 25;
  report.sums.kl_old = 0.1;
  report.sums.clipped = 3;
  report.sums.tokens = 10;
  report.grad_norm = 1.5;
  report.learning_rate = 1e-3;
  return report;
}

TEST(LagHistogramTest, CountsTrainedTokensOnly) {
  EXPECT_EQ(LagHistogram(Batch()), (std::vector<int64_t>{4, 5, 0, 1}));
  EXPECT_TRUE(LagHistogram(TrainBatch()).empty());
}

TEST(LagPercentileTest, IsTheSmallestLagThatCoversTheShare) {
  const std::vector<int64_t> histogram = {4, 5, 0, 1};
  EXPECT_EQ(LagPercentile(histogram, 0.4), 0);
  EXPECT_EQ(LagPercentile(histogram, 0.5), 1);
  EXPECT_EQ(LagPercentile(histogram, 0.9), 1);
  EXPECT_EQ(LagPercentile(histogram, 0.95), 3);
  EXPECT_EQ(LagPercentile({}, 0.5), 0);
}

TEST(MetricsLineTest, HasEveryFixedNameAndTheRightValues) {
  const TrainBatch batch = Batch();
  const StepReport report = Report();
  StepFacts facts;
  facts.step = 6;
  facts.version = 7;
  facts.lineage = 2;
  facts.wall_seconds = 60.25;
  facts.step_seconds = 0.5;
  facts.train_seconds = 0.25;
  facts.model = {
      .vocabulary = 10, .hidden = 4, .layers = 2, .heads = 2, .key_value_heads = 2, .head_dim = 2, .intermediate = 8};
  facts.peak_flops = 1e6;
  facts.batch = &batch;
  facts.report = &report;
  facts.counts.set_issued_total(30);
  facts.counts.set_trained(30);
  facts.generated_tokens = 40;
  facts.generated_trajectories = 16;
  facts.publish_members = 2;
  facts.times = {{"wait/trainer/waiting_for_groups_s", 0.125}, {"cpu/rollout_s", 0.75}};
  const json line = json::parse(FormatMetricsLine(facts));
  for (const char* name : {"step",
                           "version",
                           "lineage",
                           "time/wall_s",
                           "reward/mean",
                           "reward/std",
                           "staleness/mean",
                           "staleness/p50",
                           "staleness/p95",
                           "staleness/max",
                           "staleness/histogram",
                           "ledger/issued_total",
                           "ledger/issued",
                           "ledger/running",
                           "ledger/ready",
                           "ledger/leased",
                           "ledger/trained",
                           "ledger/settled",
                           "ledger/filtered",
                           "ledger/stale",
                           "ledger/failed",
                           "ledger/cancelled",
                           "ledger/rewound",
                           "queue/groups",
                           "queue/bytes",
                           "policy/loss",
                           "policy/entropy",
                           "policy/clip_fraction",
                           "policy/kl_old",
                           "mismatch/k1",
                           "mismatch/k3",
                           "mismatch/ratio_max",
                           "mismatch/ess",
                           "optimizer/grad_norm",
                           "optimizer/lr",
                           "optimizer/skipped_steps",
                           "tokens/trained",
                           "tokens/generated",
                           "throughput/train_tokens_per_s",
                           "throughput/generate_tokens_per_s",
                           "weights/publish_s",
                           "weights/bytes",
                           "weights/members",
                           "checkpoint/wait_s",
                           "checkpoint/write_s",
                           "length/generated_mean",
                           "length/trained_mean",
                           "wait/trainer/waiting_for_groups_s",
                           "cpu/rollout_s"}) {
    EXPECT_TRUE(line.contains(name)) << name;
  }
  EXPECT_EQ(line["step"], 6);
  EXPECT_EQ(line["version"], 7);
  EXPECT_EQ(line["reward/mean"], 0.5);
  EXPECT_DOUBLE_EQ(line["reward/std"], std::sqrt(1.0 / 3.0));
  EXPECT_DOUBLE_EQ(line["staleness/mean"], 0.8);
  EXPECT_EQ(line["staleness/p50"], 1);
  EXPECT_EQ(line["staleness/p95"], 3);
  EXPECT_EQ(line["staleness/max"], 3);
  EXPECT_EQ(line["staleness/histogram"], (json{4, 5, 0, 1}));
  EXPECT_DOUBLE_EQ(line["policy/loss"], 0.25);
  EXPECT_DOUBLE_EQ(line["policy/entropy"], 2.5);
  EXPECT_DOUBLE_EQ(line["policy/clip_fraction"], 0.3);
  EXPECT_DOUBLE_EQ(line["policy/kl_old"], 0.01);
  EXPECT_EQ(line["tokens/trained"], 10);
  EXPECT_EQ(line["throughput/train_tokens_per_s"], 20);
  EXPECT_EQ(line["throughput/generate_tokens_per_s"], 80);
  EXPECT_EQ(line["length/trained_mean"], 2.5);
  EXPECT_EQ(line["length/generated_mean"], 2.5);
  EXPECT_EQ(line["ledger/issued_total"], 30);
  // Two layers of q, k, v, o of 4 x 4 and three matrices of 4 x 8, a head of 10 x 4; 8 tokens in sequences of 6 and 2,
  // 5 of them scored, in two updates: forward four times.
  const double linear = 2 * 2 * (4 * 16 + 3 * 32) * 8, scores = 2 * 4 * 4 * (36 + 4), head = 2 * 4 * 10 * 5;
  EXPECT_EQ(line["flops/model_full"], 4 * (linear + scores + head));
  EXPECT_EQ(line["flops/model_causal"], 4 * (linear + scores / 2 + head));
  EXPECT_EQ(line["flops/hardware"], 4 * (linear + scores / 2 + head));
  EXPECT_EQ(line["flops/peak_per_s"], 1e6);
  EXPECT_DOUBLE_EQ(line["throughput/mfu_full"], 4 * (linear + scores + head) / 0.25e6);
  EXPECT_DOUBLE_EQ(line["throughput/hfu"], 4 * (linear + scores / 2 + head) / 0.25e6);
  EXPECT_EQ(FormatMetricsLine(facts).find('\n'), std::string::npos);
}

TEST(MetricsLineTest, WhatIsNotFiniteIsNullAndTheLineStaysJson) {
  const TrainBatch batch = Batch();
  StepReport report = Report();
  report.grad_norm = INFINITY;
  report.sums.policy_loss = NAN;
  StepFacts facts;
  facts.batch = &batch;
  facts.report = &report;
  const json line = json::parse(FormatMetricsLine(facts));
  EXPECT_TRUE(line["optimizer/grad_norm"].is_null());
  EXPECT_TRUE(line["policy/loss"].is_null());
}

TEST(MetricsLineTest, TheLineOfStepZeroHasNoTraining) {
  const json line = json::parse(FormatMetricsLine(StepFacts()));
  EXPECT_EQ(line["step"], 0);
  EXPECT_TRUE(line.contains("ledger/issued_total"));
  EXPECT_FALSE(line.contains("reward/mean"));
  EXPECT_FALSE(line.contains("staleness/histogram"));
}

TEST(MetricsLineTest, NoNameStandsTwice) {
  const TrainBatch batch = Batch();
  const StepReport report = Report();
  StepFacts facts;
  facts.batch = &batch;
  facts.report = &report;
  std::set<std::string> names;
  for (const auto& [name, value] : MetricValues(facts)) EXPECT_TRUE(names.insert(name).second) << name;
}

TEST(WithEvaluationTest, AFailedEpisodeIsReportedAndNeverAReward) {
  v1::EvaluationResult result;
  result.set_episodes(8);
  result.set_failed(2);
  result.set_reward_mean(0.75);
  result.set_complete(true);
  json line = json::parse(WithEvaluation("{\"step\":4}", result));
  EXPECT_EQ(line["step"], 4);
  EXPECT_EQ(line["eval/reward"], 0.75);
  EXPECT_EQ(line["eval/episodes"], 8);
  EXPECT_EQ(line["eval/failed"], 2);
  EXPECT_EQ(line["eval/complete"], 1);
  result.set_failed(8);
  line = json::parse(WithEvaluation("{\"step\":4}", result));
  EXPECT_FALSE(line.contains("eval/reward"));
}

}  // namespace
}  // namespace leeway
