// leeway-trainer: the trainer's process. Flags and wiring only.

#include "base/cpu_time.h"
#include "base/executor.h"
#include "base/logging.h"
#include "base/state_clock.h"
#include "base/status_macros.h"
#include "launch/roles/role_process.h"
#include "launch/roles/trainer_ranks.h"
#include "launch/roles/trainer_role.h"
#include "queue/history/recording_trainer_client.h"
#include "queue/queue_grpc_client.h"
#include "trainer/learner_ranks.h"
#include "trainer/trainer.h"
#include "weightsync/weight_service.h"

namespace leeway {
namespace {

// Ranks but the first follow it; they end when it says so, not by signals of their own.
absl::Status RunFollower(const TrainerOptions& options, const TrainerRanks& ranks, ParallelFor* parallel) {
  SetThreadClass("compute");
  LEEWAY_ASSIGN_OR_RETURN(const std::unique_ptr<Mesh> mesh, Mesh::Create(options.mesh, ranks.world.get()));
  LEEWAY_ASSIGN_OR_RETURN(const std::unique_ptr<Learner> learner, Learner::Create(options, mesh.get(), parallel));
  LEEWAY_RETURN_IF_ERROR(learner->MeasurePeak().status());
  return FollowLeader(learner.get(), ranks.commands.get(), [](uint64_t step) { LEEWAY_LOG_DEBUG("step {}", step); });
}

absl::Status RunTrainer(RoleContext& context, StopSignals& signals) {
  ParallelFor parallel(static_cast<int>(context.config.GetInteger("trainer.threads")));
  TrainerOptions options =
      TrainerOptionsOf(context.config, *context.task, context.tokenizer->vocabulary_size(), context.paths.root);
  options.name = context.name;
  LEEWAY_ASSIGN_OR_RETURN(const TrainerRanks ranks,
                          JoinTrainerRanks(context.config, context.paths, context.rank_environment));
  if (context.rank > 0) return RunFollower(options, ranks, &parallel);
  StateClock states;
  GrpcWeightPublisher::Options publisher_options;
  publisher_options.address = context.weights_address;
  publisher_options.security = context.security;
  publisher_options.run_name = context.config.GetString("run.name");
  publisher_options.bucket_bytes = static_cast<uint64_t>(context.config.GetInteger("weights.bucket_bytes"));
  LEEWAY_ASSIGN_OR_RETURN(const std::unique_ptr<GrpcWeightPublisher> publisher,
                          GrpcWeightPublisher::Create(publisher_options));
  QueueGrpcClientOptions queue_options;
  queue_options.target = context.queue_address;
  queue_options.name = context.name;
  queue_options.security = context.security;
  LEEWAY_ASSIGN_OR_RETURN(std::unique_ptr<QueueTrainerClient> queue, GrpcQueueTrainerClient::Create(queue_options));
  queue = RecordIfAsked(std::move(queue), context.name);
  TrainerEnvironment environment;
  environment.world = ranks.world.get();
  environment.commands = ranks.commands.get();
  environment.queue = queue.get();
  environment.publisher = publisher.get();
  environment.tokenizer = context.tokenizer.get();
  environment.task = context.task.get();
  environment.parallel = &parallel;
  environment.states = &states;
  environment.metrics = context.metrics.get();
  Trainer trainer(std::move(options), environment);
  signals.OnStop([&trainer] { trainer.RequestStop(); });
  const absl::Status status = trainer.Run();
  signals.OnStop({});
  return status;
}

}  // namespace
}  // namespace leeway

int main(int argc, char** argv) {
  using namespace leeway;
  PrepareProcess();
  StopSignals signals;
  absl::StatusOr<RoleContext> context = StartRole(argc, argv, "trainer", 1);
  if (!context.ok()) EndRole("trainer", context.status());
  EndRole(context->name, RunTrainer(*context, signals));
}
