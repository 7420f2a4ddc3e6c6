// leeway-queue: the queue's process. Flags and wiring only.

#include "base/clock.h"
#include "base/logging.h"
#include "base/mutex.h"
#include "launch/roles/queue_role.h"
#include "launch/roles/role_process.h"

int main(int argc, char** argv) {
  using namespace leeway;
  PrepareProcess();
  StopSignals signals;
  absl::StatusOr<RoleContext> context = StartRole(argc, argv, "queue", 0);
  if (!context.ok()) EndRole("queue", context.status());
  QueueOptions options =
      QueueOptionsOf(context->config, context->task.get(), context->tokenizer->vocabulary_size(), context->paths);
  options.security = context->security;
  absl::StatusOr<std::unique_ptr<QueueServer>> queue =
      QueueServer::Start(std::move(options), RealFileSystem(), context->metrics.get());
  if (!queue.ok()) EndRole(context->name, queue.status());
  Mutex mutex;
  CondVar changed;
  bool is_stopped = false;
  signals.OnStop([&] {
    MutexLock lock(&mutex);
    is_stopped = true;
    changed.NotifyAll();
  });
  {
    MutexLock lock(&mutex);
    while (!is_stopped) changed.WaitFor(&mutex, absl::Hours(1));
  }
  signals.OnStop({});
  (*queue)->Shutdown(absl::Seconds(2));
  EndRole(context->name, absl::OkStatus());
}
