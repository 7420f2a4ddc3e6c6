#ifndef LEEWAY_TRAINER_TRAINER_OPTIONS_H_
#define LEEWAY_TRAINER_TRAINER_OPTIONS_H_

// What a trainer is told, as plain values: launch fills them from the resolved configuration and asks TrainerProblems,
// the trainer asks it again before it starts. Names in comments are configuration keys; a key that is not named is the
// trainer's own default.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "model/recompute.h"
#include "model/shape.h"
#include "trainer/config_problem.h"
#include "trainer/loss/advantages.h"
#include "trainer/loss/objective.h"
#include "trainer/optimizer/optimizer_options.h"
#include "trainer/parallel/mesh.h"
#include "trainer/parallel/sharding_options.h"

namespace leeway {

// Supervised training on the task's demonstrations before version 1. Its optimizer is its own and is thrown away.
struct WarmStartOptions {
  int64_t steps = 0;  // 0 = no warm start
  double learning_rate = 2e-3;
  // Demonstrations a step.
  int64_t examples_per_step = 128;
};

// What the trainer writes for people beside the metrics: trajectories/step-N.jsonl.
struct TrajectorySampleOptions {
  int64_t every = 50;  // steps; 0 = never
  int64_t groups = 1;  // the first so many of the batch
};

// Everything the trainer is told; launch fills it from the resolved configuration (keys in the comments).
struct TrainerOptions {
  std::string run_directory;  // run.directory/run.name; exists
  // The resolved configuration as text, kept in each checkpoint's run_state.json.
  std::string resolved_config;
  std::string name = "trainer-0";  // in logs
  uint64_t seed = 0;               // seed

  ModelShape model;  // model.*
  std::string
      model_directory;  // model.init: initial weights (safetensors); empty = random initialisation from the seed

  int64_t steps = 0;            // trainer.steps
  int64_t groups_per_step = 0;  // trainer.groups_per_step
  int64_t group_size = 0;       // trainer.group_size: no leased group may have more members
  int64_t updates_per_step =
      1;  // trainer.updates_per_step: the batch in so many minibatches of whole groups, one update each
  // trainer.micro_batch_tokens: a micro-batch holds at most so many tokens, or one sequence.
  int64_t micro_batch_tokens = 16'384;
  WarmStartOptions warm_start;  // trainer.warm_start.*

  // On how many ranks, and how they share the work.
  int ranks = 1;                           // trainer.ranks
  MeshShape mesh;                          // trainer.tensor_parallel; data-parallel: what is left of the ranks
  bool sequence_parallel = false;          // trainer.sequence_parallel
  Recompute recompute = Recompute::kNone;  // trainer.recompute
  ShardingOptions sharding;                // trainer.zero_stage, ...

  uint64_t staleness_budget = 0;                   // staleness.budget: no lease may allow more
  bool breach_masks = false;                       // staleness.breach = "mask"
  AdvantageKind advantage = AdvantageKind::kGrpo;  // objective.advantage
  ObjectiveOptions objective;                      // objective.*
  OptimizerOptions optimizer;                      // optimizer.*
  // Groups that the trainer may refuse (logprob_mismatch, malformed) within one step before it gives up with DATA_LOSS.
  int64_t max_refused_groups = 0;  // 0 = 4 * groups_per_step

  int64_t checkpoint_every = 50;  // checkpoint.every: steps; 0 = only at the end
  int64_t checkpoints_kept = 2;   // checkpoint.keep: >= 2, so that a damaged one has a predecessor
  int64_t eval_every = 0;         // eval.every: 0 = no evaluations
  TrajectorySampleOptions trajectories;

  // Time limits of single calls and waits.
  absl::Duration queue_timeout = absl::Seconds(30);     // one call
  absl::Duration queue_patience = absl::Seconds(120);   // so long an absent or silent queue is asked again
  absl::Duration lease_wait = absl::Seconds(1);         // one long poll; a stop request is seen between two
  absl::Duration publish_timeout = absl::Seconds(30);   // announce + transfer + verify
  absl::Duration evaluation_wait = absl::Seconds(120);  // a metrics line waits so long for its evaluation
};

// Everything impossible in the options, the objective's and the optimizer's included, all at once. Empty = usable.
std::vector<ConfigProblem> TrainerProblems(const TrainerOptions& options);

}  // namespace leeway

#endif  // LEEWAY_TRAINER_TRAINER_OPTIONS_H_
