// The rows of the schema.

#include "fmt/format.h"
#include "formats/model_family.h"
#include "launch/config/schema.h"

namespace leeway {
namespace {

KeyInfo Boolean(std::string key, bool value) { return KeyInfo(std::move(key), ValueType::kBoolean, value); }
KeyInfo Integer(std::string key, int64_t value) { return KeyInfo(std::move(key), ValueType::kInteger, value); }
KeyInfo Real(std::string key, double value) { return KeyInfo(std::move(key), ValueType::kReal, value); }
KeyInfo String(std::string key, std::string value) {
  return KeyInfo(std::move(key), ValueType::kString, std::move(value));
}

using Table = std::vector<KeyInfo>;
constexpr ResumeRule kFixed = ResumeRule::kFixed;
constexpr int64_t kMiB = 1 << 20;

// clang-format off
void AddRunKeys(Table& t) {
  t.push_back(Integer("seed", 1).AtLeast(0).ReadBy("all").Resume(kFixed)
      .Doc("Every random number of the run derives from it."));
  t.push_back(String("mode", "async").OneOf({"async", "sync"}).ReadBy("queue").Resume(kFixed)
      .Doc("async: tickets are paced by the staleness budget. sync: rollout and training take turns."));
  t.push_back(String("run.directory", "runs").ReadBy("launcher").Doc("Where run directories are made."));
  t.push_back(String("run.name", "").ReadBy("launcher")
      .Doc("Name of the run's directory. Empty: the last configuration file's name without its ending."));
  t.push_back(Real("run.stall_timeout", 120).Above(0).Unit("s").ReadBy("launcher, rollout")
      .Doc("The job ends with exit code 5, naming who waits for whom, when nothing has progressed for so long."));
  t.push_back(Real("run.drain_timeout", 30).Above(0).Unit("s").ReadBy("launcher")
      .Doc("After Ctrl-C or SIGTERM: time for the processes to finish what they hold and checkpoint. Then they are killed."));
  t.push_back(Integer("run.max_restarts", 5).AtLeast(0).ReadBy("launcher")
      .Doc("How often in a row a rollout worker or the trainer is started again without a step of progress in between."));
  t.push_back(Real("run.restart_backoff", 0.2).AtLeast(0).Unit("s").ReadBy("launcher")
      .Doc("Pause before the first restart of a process; doubled at every further one in a row, at most 10 s."));
  t.push_back(Real("run.status_interval", 5).Above(0).Unit("s").ReadBy("launcher")
      .Doc("Distance of the status lines where the output is not a terminal."));
}

void AddTaskKeys(Table& t) {
  t.push_back(String("task.name", "").Required().ReadBy("queue, rollout, trainer").Resume(kFixed)
      .Doc("The environment that is trained on; `leeway doctor` lists them."));
  t.push_back(String("task.latency", "").ReadBy("rollout")
      .Doc("Simulated latency of every environment step: empty, or \"lognormal(median=20ms, sigma=1.0)\"."));
  t.push_back(String("task.faults", "").ReadBy("rollout")
      .Doc("Fault injection: empty, or shares of environment steps such as \"faults(fail=0.01, hang=0.001)\"."));
  t.push_back(String("task.file", "").ReadBy("queue, rollout, trainer").Resume(kFixed)
      .Doc("Task `question_file`: JSON Lines of {\"question\": text, \"answer\": text}. Relative to the configuration file that names it."));
  t.push_back(String("task.file_digest", "").ReadBy("launcher").Resume(kFixed)
      .Doc("Filled in: digest of task.file, so that a resume with other questions is refused."));
  t.push_back(String("task.match", "exact").OneOf({"exact", "regex", "numeric"}).ReadBy("rollout").Resume(kFixed)
      .Doc("Task `question_file`: how an answer is compared with the expected one."));
  t.push_back(Integer("task.max_answer_tokens", 32).AtLeast(1).AtMost(1 << 20).Unit("tokens").ReadBy("rollout").Resume(kFixed)
      .Doc("Task `question_file`: longest answer."));
  t.push_back(Real("task.held_out_share", 0.2).Above(0).AtMost(0.9).ReadBy("queue, rollout").Resume(kFixed)
      .Doc("Task `question_file`: share of the questions that is kept for evaluation and never trained."));
}

void AddModelKeys(Table& t) {
  t.push_back(String("model.init", "").ReadBy("trainer").Resume(kFixed)
      .Doc("Hugging Face folder of a Llama, Qwen2 or Qwen3 model to start from: config.json and safetensors. Gives the other keys of this section "
           "that are not set; those that are must agree with it. Empty: random weights from the seed."));
  t.push_back(String("model.family", "llama").OneOf(ModelFamilyNames()).ReadBy("rollout, trainer").Resume(kFixed)
      .Doc("llama; qwen2: biases on the query, key and value projections; qwen3: RMSNorm over every query and key head."));
  t.push_back(String("model.dtype", "float32").OneOf({"float32", "bfloat16"}).ReadBy("rollout, trainer").Resume(kFixed)
      .Doc("Type of the weights that are computed with and published. bfloat16: half their bytes, under 32-bit arithmetic; the optimizer works on a "
           "32-bit master copy, which checkpoints hold."));
  t.push_back(Integer("model.hidden", 64).AtLeast(1).AtMost(1 << 30).ReadBy("rollout, trainer").Resume(kFixed).Doc("Width of the residual stream."));
  t.push_back(Integer("model.layers", 2).AtLeast(1).AtMost(1 << 30).ReadBy("rollout, trainer").Resume(kFixed).Doc("Number of transformer blocks."));
  t.push_back(Integer("model.heads", 4).AtLeast(1).AtMost(1 << 30).ReadBy("rollout, trainer").Resume(kFixed).Doc("Query heads of an attention layer."));
  t.push_back(Integer("model.key_value_heads", 0).AtLeast(0).ReadBy("rollout, trainer").Resume(kFixed)
      .Doc("Key and value heads (grouped-query attention); 0 = as many as query heads."));
  t.push_back(Integer("model.head_dim", 0).AtLeast(0).AtMost(1 << 30).ReadBy("rollout, trainer").Resume(kFixed)
      .Doc("Width of a head, even; 0 = hidden / heads."));
  t.push_back(Integer("model.intermediate", 0).AtLeast(0).AtMost(1 << 30).ReadBy("rollout, trainer").Resume(kFixed)
      .Doc("Width of the SwiGLU layer; 0 = 8/3 of hidden, rounded up to a multiple of 16."));
  t.push_back(Integer("model.max_positions", 0).AtLeast(0).AtMost(1 << 30).Unit("tokens").ReadBy("rollout, trainer").Resume(kFixed)
      .Doc("Longest sequence; 0 = what the task's longest episode needs."));
  t.push_back(Real("model.rope_theta", 10000).Above(0).ReadBy("rollout, trainer").Resume(kFixed)
      .Doc("Base of the rotary position frequencies."));
  t.push_back(Real("model.rms_epsilon", 1e-5).Above(0).ReadBy("rollout, trainer").Resume(kFixed)
      .Doc("Added to the mean square inside RMSNorm."));
  t.push_back(Boolean("model.tied_head", true).ReadBy("rollout, trainer").Resume(kFixed)
      .Doc("The output layer shares the embedding's weights."));
}

void AddRolloutKeys(Table& t) {
  t.push_back(Integer("rollout.workers", 1).AtLeast(1).AtMost(256).ReadBy("launcher").Doc("Rollout processes on this machine."));
  t.push_back(String("rollout.update_mode", "finish").OneOf({"finish", "keep", "recompute", "restart"}).ReadBy("rollout")
      .Doc("What new weights do to a turn in flight: finish it on the old ones, keep or recompute its KV cache, restart it."));
  t.push_back(Integer("rollout.threads", 1).AtLeast(1).AtMost(1024).ReadBy("rollout").Doc("Threads of the model's kernels in each worker."));
  t.push_back(Integer("rollout.environment_threads", 4).AtLeast(1).AtMost(1024).ReadBy("rollout").Doc("Threads on which environments run."));
  t.push_back(Integer("rollout.slots", 384).AtLeast(1).AtMost(65536).Unit("episodes").ReadBy("rollout")
      .Doc("Episodes that a worker runs at the same time."));
  t.push_back(Integer("rollout.token_budget", 4096).AtLeast(1).Unit("tokens").ReadBy("rollout")
      .Doc("New tokens in one forward pass, prompts and decoded ones together."));
  t.push_back(Real("rollout.temperature", 1.0).Above(0).ReadBy("rollout").Resume(kFixed).Doc("Sampling temperature of training episodes."));
  t.push_back(Real("rollout.reset_timeout", 30).Above(0).Unit("s").ReadBy("rollout")
      .Doc("An environment that does not answer a reset for so long has failed (`reset_timeout`)."));
  t.push_back(Real("rollout.step_timeout", 30).Above(0).Unit("s").ReadBy("rollout")
      .Doc("An environment that does not answer a step for so long has failed (`step_timeout`)."));
  t.push_back(Real("rollout.episode_timeout", 600).Above(0).Unit("s").ReadBy("rollout")
      .Doc("Limit on the environment's time in one episode; waiting for the policy does not count."));
  t.push_back(Integer("rollout.max_attempts", 2).AtLeast(1).AtMost(1000).ReadBy("rollout")
      .Doc("Attempts at an episode whose failure can be retried; after the last one the failure is delivered."));
}

void AddQueueKeys(Table& t) {
  t.push_back(String("queue.store", "rocksdb").OneOf({"rocksdb", "memory"}).ReadBy("queue, launcher").Resume(kFixed)
      .Doc("Where the ledger and the trajectories live: rocksdb = on disk, in the run's folder `queue`: the queue's death interrupts the job "
           "only for a moment; memory = its death ends the job, a resume goes on from the checkpoint."));
  t.push_back(Integer("queue.max_groups", 0).AtLeast(0).Unit("groups").ReadBy("queue")
      .Doc("Bound on groups issued, running, ready and leased; 0 = (S + 2)·B."));
  t.push_back(Integer("queue.max_bytes", 1024 * kMiB).AtLeast(1).Unit("bytes").ReadBy("queue")
      .Doc("Bound on trajectory bytes held (until a checkpoint settles them) and reserved."));
  t.push_back(Integer("queue.max_trajectory_bytes", 0).AtLeast(0).Unit("bytes").ReadBy("queue")
      .Doc("Largest trajectory; so much is reserved for each member when a ticket is issued. 0 = from the task's longest episode."));
  t.push_back(Real("queue.ticket_timeout", 600).Above(0).Unit("s").ReadBy("queue")
      .Doc("Time for a whole ticket; then its missing members fail (`deadline`)."));
  t.push_back(Real("queue.worker_lease", 10).Above(0).Unit("s").ReadBy("queue")
      .Doc("A worker without a sign of life for so long is lost: its unfinished tickets are issued again."));
  t.push_back(Integer("queue.poison_losses", 5).AtLeast(1).AtMost(1000000).ReadBy("queue")
      .Doc("A ticket whose workers died so often in a row while others finished fails as `suspected_poison`."));
  t.push_back(String("queue.filter", "none").OneOf({"none", "zero_variance"}).ReadBy("queue").Resume(kFixed)
      .Doc("zero_variance: groups whose rewards are all equal are set aside and replaced."));
  t.push_back(Real("queue.filter_max_refills", 1).AtLeast(0).ReadBy("queue").Resume(kFixed)
      .Doc("At most so many times B groups are filtered a step; further ones are trained with advantage 0."));
  t.push_back(String("queue.short_group", "refill").OneOf({"refill", "train"}).ReadBy("queue").Resume(kFixed)
      .Doc("A group with failed members: refill = fail it and issue a new ticket; train = train what is left."));
  t.push_back(Integer("queue.short_group_minimum", 2).AtLeast(1).Unit("episodes").ReadBy("queue").Resume(kFixed)
      .Doc("short_group = \"train\": fewest completed members that are trained; with fewer the group is refilled."));
  t.push_back(String("queue.address", "").ReadBy("all").Doc("host:port or unix:/path of the queue. Empty: a unix socket of the run."));
}

void AddSecurityKeys(Table& t) {
  t.push_back(String("security.certificate", "").ReadBy("all")
      .Doc("PEM file: this machine's certificate, for TLS at both ends of a connection. Needed where other machines can reach an address; "
           "certificate, key and authority are set together."));
  t.push_back(String("security.key", "").ReadBy("all").Doc("PEM file: the certificate's private key, readable by its owner alone."));
  t.push_back(String("security.authority", "").ReadBy("all").Doc("PEM file: the authority that has signed the certificates of all machines of the job."));
  t.push_back(String("security.token_file", "").ReadBy("all")
      .Doc("Lines `role token` with the tokens of push (rollout workers), train (the trainer) and admin; a worker's machine needs that of push only. "
           "Readable by its owner alone. Empty: TCP addresses on loopback use tokens of the run."));
}

void AddStalenessKeys(Table& t) {
  t.push_back(Integer("staleness.budget", 2).AtLeast(0).AtMost(1000000).Unit("steps").ReadBy("queue, trainer")
      .Resume(ResumeRule::kMayGrow).Doc("S: the largest lag that may be trained."));
  t.push_back(String("staleness.order", "ticket").OneOf({"ticket", "oldest", "ready"}).ReadBy("queue").Resume(kFixed)
      .Doc("Order in which ready groups are taken: by ticket, oldest version first, or as they complete."));
  t.push_back(String("staleness.breach", "drop").OneOf({"drop", "mask", "wait"}).ReadBy("queue, trainer")
      .Doc("A group beyond the budget: drop it, mask its tokens beyond the budget, or wait (order `ticket` only)."));
}

void AddTrainerKeys(Table& t) {
  t.push_back(Integer("trainer.steps", 100).AtLeast(1).Unit("steps").ReadBy("queue, trainer, launcher").Doc("Train steps of the run."));
  t.push_back(Integer("trainer.groups_per_step", 16).AtLeast(1).AtMost(1 << 20).Unit("groups").ReadBy("queue, trainer").Resume(kFixed)
      .Doc("B: groups in the batch of a step."));
  t.push_back(Integer("trainer.group_size", 8).AtLeast(1).AtMost(65536).Unit("episodes").ReadBy("queue, trainer").Resume(kFixed)
      .Doc("G: episodes of one task instance."));
  t.push_back(Integer("trainer.ranks", 1).AtLeast(1).AtMost(256).ReadBy("launcher, trainer")
      .Doc("Trainer processes: data-parallel replicas times trainer.tensor_parallel."));
  t.push_back(Integer("trainer.tensor_parallel", 1).AtLeast(1).AtMost(4).ReadBy("trainer")
      .Doc("Ranks that share one model, by heads, intermediate size and vocabulary: 1, 2 or 4, which have to divide them."));
  t.push_back(Boolean("trainer.sequence_parallel", false).ReadBy("trainer")
      .Doc("Those ranks share the rows between the products too: less memory for activations."));
  t.push_back(Integer("trainer.zero_stage", 1).AtLeast(0).AtMost(3).ReadBy("trainer")
      .Doc("What data-parallel ranks keep only a part of: nothing (0), optimizer state (1), gradients too (2), parameters too (3)."));
  t.push_back(Boolean("trainer.reduce_once", false).ReadBy("trainer")
      .Doc("zero_stage = 3: gradients are kept whole until all micro-batches of an update are done and summed over the ranks once: less traffic, more memory."));
  t.push_back(String("trainer.gradient_dtype", "float32").OneOf({"float32", "bfloat16"}).ReadBy("trainer")
      .Doc("Type in which gradients are kept between micro-batches. They are formed, summed over the ranks and used in 32 bits; "
           "bfloat16 takes half the bytes and rounds at every addition."));
  t.push_back(String("trainer.frozen", "").ReadBy("trainer").Resume(kFixed)
      .Doc("Parameters that do not change, by their Hugging Face names, separated by commas; `*` at the end of a name stands for any rest "
           "(model.embed_tokens.weight, model.layers.0.*). They have no gradients and no optimizer state."));
  t.push_back(String("trainer.recompute", "none").OneOf({"none", "selective", "full"}).ReadBy("trainer")
      .Doc("Activations that the backward pass computes again instead of keeping them: none, the widest rows, whole layers."));
  t.push_back(Real("trainer.rank_timeout", 60).Above(0).Unit("seconds").ReadBy("trainer")
      .Doc("A rank that does not take part in an operation of the others for so long is lost, and all start again from the newest checkpoint."));
  t.push_back(String("trainer.interface", "").ReadBy("trainer")
      .Doc("Network interface over which ranks on several machines talk (eth0); empty = this machine alone."));
  t.push_back(Integer("trainer.updates_per_step", 1).AtLeast(1).ReadBy("trainer")
      .Doc("Optimizer updates that a step makes of its batch, which is split by groups."));
  t.push_back(Integer("trainer.micro_batch_tokens", 16384).AtLeast(1).Unit("tokens").ReadBy("trainer")
      .Doc("Tokens in one forward and backward pass at most (or one sequence)."));
  t.push_back(Integer("trainer.threads", 1).AtLeast(1).AtMost(1024).ReadBy("trainer").Doc("Threads of the model's kernels."));
  t.push_back(Integer("trainer.warm_start.steps", 0).AtLeast(0).Unit("steps").ReadBy("trainer").Resume(kFixed)
      .Doc("Supervised steps on the task's demonstrations before version 1; 0 = none."));
  t.push_back(Real("trainer.warm_start.learning_rate", 2e-3).Above(0).ReadBy("trainer").Resume(kFixed)
      .Doc("Learning rate of the warm start."));
  t.push_back(Integer("trainer.warm_start.batch", 128).AtLeast(1).Unit("episodes").ReadBy("trainer").Resume(kFixed)
      .Doc("Demonstrations in a warm-start step."));
}

void AddObjectiveKeys(Table& t) {
  t.push_back(String("objective.name", "ppo_clip").OneOf({"reinforce", "ppo_clip", "cispo", "gspo", "decoupled"}).ReadBy("trainer")
      .Doc("Policy-gradient objective. All but `decoupled` take the ratio against the recorded log-probabilities."));
  t.push_back(String("objective.correction", "none").OneOf({"none", "tis", "icepop"}).ReadBy("trainer")
      .Doc("Weight on recomputed / recorded probability (`decoupled` only)."));
  t.push_back(String("objective.aggregation", "token-mean")
      .OneOf({"token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"}).ReadBy("trainer")
      .Doc("How token losses become one loss, over the whole batch."));
  t.push_back(String("objective.advantage", "grpo").OneOf({"grpo", "dr_grpo", "rloo", "reinforce_pp_baseline"}).ReadBy("trainer")
      .Doc("grpo: group mean and standard deviation; dr_grpo: group mean; rloo: mean of the others; "
           "reinforce_pp_baseline: group mean, then the batch's mean and standard deviation."));
  t.push_back(Real("objective.epsilon_low", 0.2).AtLeast(0).ReadBy("trainer").Doc("Ratios are clipped below 1 - epsilon_low."));
  t.push_back(Real("objective.epsilon_high", 0.28).AtLeast(0).ReadBy("trainer").Doc("Ratios are clipped above 1 + epsilon_high."));
  t.push_back(Real("objective.tis_cap", 2).Above(0).ReadBy("trainer").Doc("C of correction `tis`: weights are min(ratio, C)."));
  t.push_back(Real("objective.icepop_low", 0.5).Above(0).ReadBy("trainer").Doc("Correction `icepop`: smaller ratios weigh 0."));
  t.push_back(Real("objective.icepop_high", 5).Above(0).ReadBy("trainer").Doc("Correction `icepop`: larger ratios weigh 0."));
  t.push_back(Real("objective.entropy_coefficient", 0).AtLeast(0).ReadBy("trainer").Doc("Weight of the entropy bonus."));
}

void AddOptimizerKeys(Table& t) {
  t.push_back(String("optimizer.name", "adamw").OneOf({"adamw", "muon", "sgd"}).ReadBy("trainer").Resume(kFixed)
      .Doc("adamw; muon: orthogonalised momentum for the layers' matrices, AdamW for the rest; sgd: plain descent."));
  t.push_back(Real("optimizer.learning_rate", 1e-3).Above(0).ReadBy("trainer").Doc("Step size."));
  t.push_back(Real("optimizer.momentum", 0.95).AtLeast(0).AtMost(0.999999).ReadBy("trainer").Doc("Of Muon's matrices."));
  t.push_back(Real("optimizer.beta1", 0.9).AtLeast(0).AtMost(0.999999).ReadBy("trainer").Doc("Decay of the first moment."));
  t.push_back(Real("optimizer.beta2", 0.999).AtLeast(0).AtMost(0.999999).ReadBy("trainer").Doc("Decay of the second moment."));
  t.push_back(Real("optimizer.epsilon", 1e-8).Above(0).ReadBy("trainer").Doc("Added to the root of the second moment."));
  t.push_back(Real("optimizer.weight_decay", 0).AtLeast(0).ReadBy("trainer").Doc("Decoupled weight decay, on matrices only."));
  t.push_back(Real("optimizer.max_grad_norm", 1.0).AtLeast(0).ReadBy("trainer")
      .Doc("Gradients of a larger norm are scaled down to it; 0 = never."));
  t.push_back(String("optimizer.schedule", "constant").OneOf({"constant", "linear", "cosine"}).ReadBy("trainer")
      .Doc("How the learning rate falls over trainer.steps."));
  t.push_back(Integer("optimizer.warmup_steps", 0).AtLeast(0).Unit("steps").ReadBy("trainer").Doc("Steps of linear rise of the learning rate."));
  t.push_back(Real("optimizer.final_fraction", 0).AtLeast(0).AtMost(1).ReadBy("trainer")
      .Doc("Schedules `linear` and `cosine` end at this share of the learning rate."));
}

void AddOutputKeys(Table& t) {
  t.push_back(Integer("checkpoint.every", 100).AtLeast(0).Unit("steps").ReadBy("trainer")
      .Doc("Distance of checkpoints; 0 = only at the end. The last step has one anyway."));
  t.push_back(Integer("checkpoint.keep", 2).AtLeast(2).AtMost(1000000).ReadBy("trainer")
      .Doc("Newest checkpoints kept. A step settles only when a second checkpoint covers it, so at least 2."));
  t.push_back(Integer("eval.every", 50).AtLeast(0).Unit("steps").ReadBy("queue, trainer")
      .Doc("Distance of evaluations, version 1 and the last one included; 0 = none."));
  t.push_back(Integer("eval.episodes", 1024).AtLeast(1).AtMost(100000000).Unit("episodes").ReadBy("queue")
      .Doc("Held-out episodes of an evaluation."));
  t.push_back(Real("eval.temperature", 1).Above(0).ReadBy("rollout").Doc("Sampling temperature of evaluation episodes."));
  t.push_back(Integer("eval.top_k", 0).AtLeast(0).AtMost(1 << 24).ReadBy("rollout").Doc("Sample from the k most likely tokens only; 0 = off."));
  t.push_back(Real("eval.top_p", 1).Above(0).AtMost(1).ReadBy("rollout")
      .Doc("Sample from the most likely tokens that together reach this probability; 1 = off."));
  t.push_back(Boolean("eval.greedy", false).ReadBy("rollout").Doc("Take the most likely token instead of sampling."));
  t.push_back(Real("eval.timeout", 600).Above(0).Unit("s").ReadBy("queue, trainer")
      .Doc("From the commit of an evaluated version; then its missing episodes count as failed."));
  t.push_back(String("weights.transport", "shared_memory").OneOf({"shared_memory", "grpc"}).ReadBy("rollout")
      .Doc("How weights travel: shared memory of one machine, or gRPC."));
  t.push_back(Real("weights.timeout", 30).Above(0).Unit("s").ReadBy("trainer")
      .Doc("A receiver that has not proved its bytes within this time is fenced."));
  t.push_back(Integer("weights.bucket_bytes", kMiB).AtLeast(4096).AtMost(1024 * kMiB).Unit("bytes").ReadBy("trainer").Doc("Largest piece that travels at once."));
  t.push_back(String("weights.address", "").ReadBy("rollout, trainer")
      .Doc("host:port or unix:/path of the trainer's weights service. Empty: a unix socket of the run."));
  t.push_back(Integer("trajectories.every", 50).AtLeast(0).Unit("steps").ReadBy("trainer")
      .Doc("Distance of steps whose trajectories are kept for people (`leeway inspect RUN --trajectory STEP`); 0 = none."));
  t.push_back(Integer("trajectories.groups", 1).AtLeast(1).Unit("groups").ReadBy("trainer").Doc("Groups kept of such a step."));
  t.push_back(Integer("metrics.port", 0).AtLeast(0).AtMost(65000).ReadBy("queue, rollout, trainer")
      .Doc("Prometheus: the queue serves /metrics here, the trainer one above, rollout worker i at + 2 + i. 0 = off."));
}
// clang-format on

}  // namespace

namespace internal {

std::vector<KeyInfo> MakeSchema() {
  Table table;
  AddRunKeys(table);
  AddTaskKeys(table);
  AddModelKeys(table);
  AddRolloutKeys(table);
  AddQueueKeys(table);
  AddSecurityKeys(table);
  AddStalenessKeys(table);
  AddTrainerKeys(table);
  AddObjectiveKeys(table);
  AddOptimizerKeys(table);
  AddOutputKeys(table);
  return table;
}

}  // namespace internal
}  // namespace leeway
