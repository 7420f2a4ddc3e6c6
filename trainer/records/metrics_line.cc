#include "trainer/records/metrics_line.h"

#include <algorithm>
#include <cmath>

#include "nlohmann/json.hpp"

namespace leeway {
namespace {

using nlohmann::ordered_json;
using Values = std::vector<std::pair<std::string, double>>;

double Ratio(double part, double whole) { return whole > 0 ? part / whole : 0.0; }

void AddRewards(const std::vector<double>& rewards, Values* values) {
  double sum = 0;
  for (double reward : rewards) sum += reward;
  const double mean = Ratio(sum, static_cast<double>(rewards.size()));
  double squares = 0;
  for (double reward : rewards) squares += (reward - mean) * (reward - mean);
  const double variance = rewards.size() > 1 ? squares / static_cast<double>(rewards.size() - 1) : 0.0;
  values->emplace_back("reward/mean", mean);
  values->emplace_back("reward/std", std::sqrt(variance));
}

void AddStaleness(const TrainBatch& batch, Values* values) {
  const std::vector<int64_t> histogram = LagHistogram(batch);
  double sum = 0;
  double count = 0;
  for (size_t lag = 0; lag < histogram.size(); ++lag) {
    sum += static_cast<double>(lag) * static_cast<double>(histogram[lag]);
    count += static_cast<double>(histogram[lag]);
  }
  values->emplace_back("staleness/mean", Ratio(sum, count));
  values->emplace_back("staleness/p50", static_cast<double>(LagPercentile(histogram, 0.5)));
  values->emplace_back("staleness/p95", static_cast<double>(LagPercentile(histogram, 0.95)));
  values->emplace_back("staleness/max", histogram.empty() ? 0.0 : static_cast<double>(histogram.size() - 1));
}

// Utilisation is of the time in the learner. A batch that several updates share is scored once more than it is trained.
void AddFlops(const StepFacts& facts, Values* values) {
  const auto passes = [&](double trained, AttentionCount convention) {
    const double scored =
        facts.batch->updates.size() > 1 ? CountForward(facts.model, facts.batch->work, convention).total() : 0;
    return trained + scored;
  };
  const SequenceWork& work = facts.batch->work;
  const double causal = passes(ModelFlops(facts.model, work, AttentionCount::kCausal), AttentionCount::kCausal);
  const double full = passes(ModelFlops(facts.model, work, AttentionCount::kFull), AttentionCount::kFull);
  const double hardware =
      passes(HardwareFlops(facts.model, work, AttentionCount::kCausal, facts.recompute), AttentionCount::kCausal);
  values->emplace_back("flops/model_causal", causal);
  values->emplace_back("flops/model_full", full);
  values->emplace_back("flops/hardware", hardware);
  values->emplace_back("flops/peak_per_s", facts.peak_flops);
  const double possible = facts.peak_flops * facts.train_seconds;
  values->emplace_back("throughput/mfu_causal", Ratio(causal, possible));
  values->emplace_back("throughput/mfu_full", Ratio(full, possible));
  values->emplace_back("throughput/hfu", Ratio(hardware, possible));
}

void AddTraining(const StepFacts& facts, Values* values) {
  const TrainBatch& batch = *facts.batch;
  const StepReport& report = *facts.report;
  AddRewards(batch.rewards, values);
  values->emplace_back("reward/unscored", static_cast<double>(batch.unscored));
  AddStaleness(batch, values);
  const ObjectiveSums& sums = report.sums;
  const double tokens = static_cast<double>(sums.tokens);
  // Every update's loss is normalised over its own batch: the step's is their mean.
  values->emplace_back("policy/loss",
                       sums.policy_loss / static_cast<double>(std::max<size_t>(1, batch.updates.size())));
  values->emplace_back("policy/entropy", Ratio(sums.entropy, tokens));
  values->emplace_back("policy/clip_fraction", Ratio(static_cast<double>(sums.clipped), tokens));
  values->emplace_back("policy/kl_old", Ratio(sums.kl_old, tokens));
  values->emplace_back("policy/corrected_fraction", Ratio(static_cast<double>(sums.corrected), tokens));
  values->emplace_back("mismatch/k1", report.mismatch.k1);
  values->emplace_back("mismatch/k3", report.mismatch.k3);
  values->emplace_back("mismatch/ratio_max", report.mismatch.ratio_max);
  values->emplace_back("mismatch/ess", report.mismatch.ess);
  values->emplace_back("optimizer/grad_norm", report.grad_norm);
  values->emplace_back("optimizer/lr", report.learning_rate);
  values->emplace_back("optimizer/updates", static_cast<double>(report.updates));
  values->emplace_back("optimizer/skipped_steps", static_cast<double>(facts.skipped_steps));
  values->emplace_back("groups/refused", static_cast<double>(facts.refused_groups));
  const double trained = static_cast<double>(batch.trained_tokens);
  values->emplace_back("tokens/trained", trained);
  values->emplace_back("tokens/masked", static_cast<double>(batch.masked_tokens));
  values->emplace_back("length/trained_mean", Ratio(trained, static_cast<double>(batch.sequences.size())));
  values->emplace_back("throughput/train_tokens_per_s", Ratio(trained, facts.step_seconds));
  AddFlops(facts, values);
}

void AddLedger(const v1::LedgerCounts& counts, Values* values) {
  const std::pair<const char*, uint64_t> entries[] = {{"issued_total", counts.issued_total()},
                                                      {"issued", counts.issued()},
                                                      {"running", counts.running()},
                                                      {"ready", counts.ready()},
                                                      {"leased", counts.leased()},
                                                      {"trained", counts.trained()},
                                                      {"settled", counts.settled()},
                                                      {"filtered", counts.filtered()},
                                                      {"stale", counts.stale()},
                                                      {"failed", counts.failed()},
                                                      {"cancelled", counts.cancelled()},
                                                      {"rewound", counts.rewound()}};
  for (const auto& [name, value] : entries) {
    values->emplace_back(std::string("ledger/") + name, static_cast<double>(value));
  }
}

// Whole numbers without a fraction, others in the shortest form that reads back the same; null where not finite.
ordered_json Number(double value) {
  if (!std::isfinite(value)) return nullptr;
  if (value == std::floor(value) && std::abs(value) < 9e15) return static_cast<int64_t>(value);
  return value;
}

}  // namespace

std::vector<int64_t> LagHistogram(const TrainBatch& batch) {
  std::vector<int64_t> histogram;
  for (size_t i = 0; i < batch.lag.size(); ++i) {
    if (!batch.mask[i]) continue;
    if (batch.lag[i] >= histogram.size()) histogram.resize(batch.lag[i] + 1);
    ++histogram[batch.lag[i]];
  }
  return histogram;
}

int64_t LagPercentile(const std::vector<int64_t>& histogram, double share) {
  int64_t total = 0;
  for (int64_t count : histogram) total += count;
  int64_t below = 0;
  for (size_t lag = 0; lag < histogram.size(); ++lag) {
    below += histogram[lag];
    if (static_cast<double>(below) >= share * static_cast<double>(total)) return static_cast<int64_t>(lag);
  }
  return 0;
}

std::vector<std::pair<std::string, double>> MetricValues(const StepFacts& facts) {
  Values values;
  values.emplace_back("step", static_cast<double>(facts.step));
  values.emplace_back("version", static_cast<double>(facts.version));
  values.emplace_back("lineage", static_cast<double>(facts.lineage));
  values.emplace_back("time/wall_s", facts.wall_seconds);
  values.emplace_back("time/step_s", facts.step_seconds);
  values.emplace_back("time/train_s", facts.train_seconds);
  if (facts.batch != nullptr) AddTraining(facts, &values);
  values.emplace_back("tokens/generated", static_cast<double>(facts.generated_tokens));
  values.emplace_back("throughput/generate_tokens_per_s",
                      Ratio(static_cast<double>(facts.generated_tokens), facts.step_seconds));
  values.emplace_back("length/generated_mean", Ratio(static_cast<double>(facts.generated_tokens),
                                                     static_cast<double>(facts.generated_trajectories)));
  AddLedger(facts.counts, &values);
  values.emplace_back("queue/groups", static_cast<double>(facts.queue_groups));
  values.emplace_back("queue/bytes", static_cast<double>(facts.queue_bytes));
  values.emplace_back("weights/publish_s", facts.publish_seconds);
  values.emplace_back("weights/bytes", static_cast<double>(facts.publish_bytes));
  values.emplace_back("weights/members", static_cast<double>(facts.publish_members));
  values.emplace_back("weights/fenced", static_cast<double>(facts.publish_fenced));
  values.emplace_back("checkpoint/wait_s", facts.checkpoint_wait_seconds);
  values.emplace_back("checkpoint/write_s", facts.checkpoint_write_seconds);
  for (const auto& [name, value] : facts.times) values.emplace_back(name, value);
  return values;
}

std::string FormatMetricsLine(const StepFacts& facts) {
  ordered_json line = ordered_json::object();
  for (const auto& [name, value] : MetricValues(facts)) {
    line[name] = Number(value);
    if (name == "staleness/max") line["staleness/histogram"] = LagHistogram(*facts.batch);
  }
  return line.dump();
}

std::string WithEvaluation(const std::string& line, const v1::EvaluationResult& result) {
  ordered_json value = ordered_json::parse(line);
  if (result.episodes() > result.failed()) value["eval/reward"] = Number(result.reward_mean());
  value["eval/episodes"] = result.episodes();
  value["eval/failed"] = result.failed();
  value["eval/complete"] = result.complete() ? 1 : 0;
  return value.dump();
}

}  // namespace leeway
