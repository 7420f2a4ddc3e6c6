#ifndef LEEWAY_TRAINER_RECORDS_METRICS_LINE_H_
#define LEEWAY_TRAINER_RECORDS_METRICS_LINE_H_

// One line of metrics.jsonl: what a step was, under the fixed names of the design. Values are of this step alone unless
// their name says otherwise (time/wall_s and ledger/* are states, optimizer/skipped_steps and groups/refused count
// since the start of the run).

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "leeway/v1/queue.pb.h"
#include "trainer/learner.h"
#include "trainer/loss/train_batch.h"

namespace leeway {

struct StepFacts {
  uint64_t step = 0;     // t; 0 = before training
  uint64_t version = 0;  // that the step committed: t + 1
  uint64_t lineage = 0;
  double wall_seconds = 0;   // of the run so far
  double step_seconds = 0;   // from the end of the last step to the commit
  double train_seconds = 0;  // of them in the learner

  // What the batch went through, and what all ranks' processors could do a second at most.
  ModelShape model;
  Recompute recompute = Recompute::kNone;
  double peak_flops = 0;

  // Null at step 0.
  const TrainBatch* batch = nullptr;
  const StepReport* report = nullptr;
  uint64_t skipped_steps = 0;   // of the run so far
  uint64_t refused_groups = 0;  // of the run so far

  v1::LedgerCounts counts;  // of the commit's answer
  // The queue's answer after the commit.
  uint64_t queue_groups = 0;
  uint64_t queue_bytes = 0;
  // Since the last line, in trajectories that the queue accepted.
  uint64_t generated_tokens = 0;
  uint64_t generated_trajectories = 0;

  double publish_seconds = 0;
  uint64_t publish_bytes = 0;
  uint64_t publish_members = 0;
  uint64_t publish_fenced = 0;

  // Since the last line: training stood still for checkpoints; the ranks wrote them beside training.
  double checkpoint_wait_seconds = 0;
  double checkpoint_write_seconds = 0;

  // ProcessTimes::Take.
  std::map<std::string, double> times;
};

// Tokens per lag, trained ones only: [0] = lag 0, up to the largest that occurred.
std::vector<int64_t> LagHistogram(const TrainBatch& batch);
// The smallest lag that at least `share` of the tokens do not exceed. 0 for an empty histogram.
int64_t LagPercentile(const std::vector<int64_t>& histogram, double share);

// All numbers of the line by name, in the order in which they are written. Not finite ones are kept.
std::vector<std::pair<std::string, double>> MetricValues(const StepFacts& facts);
// The values and staleness/histogram as one line of JSON, without a newline. Numbers that are not finite become null.
std::string FormatMetricsLine(const StepFacts& facts);

// `line` with the evaluation of its version: eval/reward (absent if every episode failed), eval/episodes, eval/failed,
// and eval/complete (1, or 0 when the wait for it was given up).
std::string WithEvaluation(const std::string& line, const v1::EvaluationResult& result);

}  // namespace leeway

#endif  // LEEWAY_TRAINER_RECORDS_METRICS_LINE_H_
