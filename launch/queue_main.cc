// leeway-queue: the queue's process. Flags and wiring only.

#include <utility>

#include "base/clock.h"
#include "base/logging.h"
#include "base/mutex.h"
#include "fmt/format.h"
#include "launch/roles/queue_role.h"
#include "launch/roles/role_process.h"
#include "launch/run/exit_code.h"
#include "queue/upkeep/store_inspection.h"

namespace leeway {
namespace {

// A line on stderr every two seconds, for stores that take longer.
InspectionProgress SayHowFar() {
  const MonotonicTime begin = RealClock()->Now();
  return [begin, next = begin + absl::Seconds(2)](uint64_t payloads, uint64_t of_payloads, uint64_t bytes) mutable {
    const MonotonicTime now = RealClock()->Now();
    if (now < next) return;
    next = now + absl::Seconds(2);
    fmt::print(stderr, "[{:.0f} s] {} of {} trajectories read, {} MiB\n", absl::ToDoubleSeconds(now - begin), payloads,
               of_payloads, bytes >> 20);
  };
}

// `leeway-queue --inspect DIR`: a store's folder, or that of its run.
ExitCode Inspect(const std::string& folder) {
  const std::string inside = RunPaths(folder).queue_store();
  const absl::StatusOr<StoreContents> contents =
      InspectStore(RealFileSystem()->Exists(inside) ? inside : folder, SayHowFar());
  if (!contents.ok()) {
    fmt::print(stderr, "{}\n", std::string(contents.status().message()));
    return ExitCodeOf(contents.status());
  }
  fmt::print("{}", DescribeContents(*contents));
  return contents->damaged.empty() ? ExitCode::kDone : ExitCode::kDataRefused;
}

}  // namespace
}  // namespace leeway

int main(int argc, char** argv) {
  using namespace leeway;
  if (argc == 3 && std::string(argv[1]) == "--inspect") return static_cast<int>(Inspect(argv[2]));
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
  queue->reset();  // the store gives back the space that it reserved
  EndRole(context->name, absl::OkStatus());
}
