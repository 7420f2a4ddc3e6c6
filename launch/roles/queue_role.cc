#include "launch/roles/queue_role.h"

#include "base/status_macros.h"

namespace leeway {
namespace {

template <typename T>
T Known(absl::StatusOr<T> parsed) {
  LEEWAY_CHECK(parsed.ok()) << parsed.status();
  return *parsed;
}

}  // namespace

QueueOptions QueueOptionsOf(const Config& config, const Task* task, int32_t vocabulary, const RunPaths& paths) {
  const auto unsigned_of = [&config](const char* key) { return static_cast<uint64_t>(config.GetInteger(key)); };
  const uint64_t seed = unsigned_of("seed");
  QueueOptions options;
  options.address = QueueAddressOf(config, paths);
  QueueCoreOptions& core = options.core;
  core.staleness.mode = Known(ParseStalenessMode(config.GetString("mode")));
  core.staleness.order = Known(ParseStalenessOrder(config.GetString("staleness.order")));
  core.staleness.breach = Known(ParseStalenessBreach(config.GetString("staleness.breach")));
  core.staleness.budget = core.staleness.mode == StalenessMode::kSync ? 0 : unsigned_of("staleness.budget");
  core.staleness.groups_per_step = unsigned_of("trainer.groups_per_step");
  core.staleness.steps = unsigned_of("trainer.steps");
  core.group_size = static_cast<uint32_t>(config.GetInteger("trainer.group_size"));
  core.max_groups = unsigned_of("queue.max_groups");
  core.max_bytes = unsigned_of("queue.max_bytes");
  core.max_trajectory_bytes = unsigned_of("queue.max_trajectory_bytes");
  core.short_group =
      config.GetString("queue.short_group") == "train" ? ShortGroupPolicy::kTrainShort : ShortGroupPolicy::kRefill;
  core.min_group_size = static_cast<uint32_t>(config.GetInteger("queue.short_group_minimum"));
  core.filter_zero_variance = config.GetString("queue.filter") == "zero_variance";
  core.filter_max_refills = config.GetReal("queue.filter_max_refills");
  core.worker_lease = absl::Seconds(config.GetReal("queue.worker_lease"));
  // Ten signs of life fit into a lease.
  core.heartbeat_interval = core.worker_lease / 10;
  core.ticket_deadline = absl::Seconds(config.GetReal("queue.ticket_timeout"));
  core.poison_losses = static_cast<uint32_t>(config.GetInteger("queue.poison_losses"));
  core.task = config.GetString("task.name");
  core.train_seed = [task, seed](uint64_t index) { return task->TrainSeed(seed, index); };
  core.evaluation_seed = [task, seed](uint64_t index) { return task->EvaluationSeed(seed, index); };
  core.evaluation.every = unsigned_of("eval.every");
  core.evaluation.episodes = static_cast<uint32_t>(config.GetInteger("eval.episodes"));
  core.evaluation.deadline = absl::Seconds(config.GetReal("eval.timeout"));
  options.vocabulary_size = vocabulary;
  options.run_fingerprint = config.RunFingerprint();
  options.state_directory = paths.root;
  if (config.GetString("queue.store") == "rocksdb") options.store_directory = paths.queue_store();
  return options;
}

}  // namespace leeway
