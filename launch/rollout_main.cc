// leeway-rollout: a rollout worker's process. Flags and wiring only.

#include "base/logging.h"
#include "base/status_macros.h"
#include "launch/roles/role_process.h"
#include "launch/roles/rollout_role.h"
#include "queue/history/recording_worker_client.h"
#include "queue/queue_grpc_client.h"
#include "rollout/worker.h"
#include "weightsync/weight_client.h"

namespace leeway {
namespace {

absl::Status RunRollout(RoleContext& context, StopSignals& signals) {
  const RolloutOptions options = RolloutOptionsOf(context.config, context.tokenizer->vocabulary_size(), context.name);
  LEEWAY_RETURN_IF_ERROR(options.Validate());
  LEEWAY_ASSIGN_OR_RETURN(v1::Manifest expected, ExpectedManifest(options.shape, options.bf16_weights));
  GrpcWeightSubscriber::Options subscriber_options;
  subscriber_options.publisher_address = context.weights_address;
  subscriber_options.security = context.security;
  subscriber_options.name = context.name;
  subscriber_options.expected = std::move(expected);
  subscriber_options.transport = context.config.GetString("weights.transport");
  LEEWAY_ASSIGN_OR_RETURN(const std::unique_ptr<GrpcWeightSubscriber> weights,
                          GrpcWeightSubscriber::Create(subscriber_options));
  QueueGrpcClientOptions queue_options;
  queue_options.target = context.queue_address;
  queue_options.name = context.name;
  queue_options.security = context.security;
  LEEWAY_ASSIGN_OR_RETURN(std::unique_ptr<QueueWorkerClient> queue, GrpcQueueWorkerClient::Create(queue_options));
  queue = RecordIfAsked(std::move(queue), context.name);
  RolloutWorker worker(
      options, {context.task.get(), context.tokenizer.get(), queue.get(), weights.get(), context.metrics.get()});
  signals.OnStop([&worker] { worker.Stop(); });
  LEEWAY_LOG_INFO("{} plays {} on {}", context.name, context.config.GetString("task.name"), context.queue_address);
  const absl::Status status = worker.Run();
  // Environments that hang keep their threads: the process ends without joining them.
  EndRole(context.name, status);
}

}  // namespace
}  // namespace leeway

int main(int argc, char** argv) {
  using namespace leeway;
  PrepareProcess();
  StopSignals signals;
  absl::StatusOr<RoleContext> context = StartRole(argc, argv, "rollout", 2);
  if (!context.ok()) EndRole("rollout", context.status());
  EndRole(context->name, RunRollout(*context, signals));
}
