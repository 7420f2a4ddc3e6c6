#include "launch/roles/role_process.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "CLI/CLI.hpp"
#include "absl/strings/ascii.h"
#include "base/allocator.h"
#include "base/file_system.h"
#include "base/logging.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "fmt/format.h"
#include "launch/config/check.h"
#include "launch/config/config_loader.h"
#include "launch/config/resolve.h"
#include "launch/roles/security_options.h"
#include "launch/roles/trainer_ranks.h"
#include "launch/run/exit_code.h"

namespace leeway {
namespace {

constexpr rlim_t kOpenFiles = 8192;

sigset_t StopSet() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  return set;
}

// A role that was started by hand is the first in its run directory, or finds the run that others have begun.
absl::Status JoinRunDirectory(const RunPaths& paths, const Config& config) {
  FileSystem* files = RealFileSystem();
  LEEWAY_RETURN_IF_ERROR(files->CreateDirectory(paths.logs()));
  LEEWAY_RETURN_IF_ERROR(MakePrivateFolder(paths.sockets()));
  const absl::StatusOr<Config> existing = ReadRunConfig(paths);
  if (absl::IsNotFound(existing.status())) return files->WriteFileAtomically(paths.config(), config.ToToml());
  LEEWAY_RETURN_IF_ERROR(existing.status());
  const std::vector<Diagnostic> errors = CheckResume(*existing, config);
  return errors.empty() ? absl::OkStatus() : absl::InvalidArgumentError(FormatDiagnostics(errors));
}

// Where this process reaches a service. A fault test may put a proxy in between for one process or for all of a role:
// LEEWAY_QUEUE_VIA_ROLLOUT_1, LEEWAY_QUEUE_VIA_ROLLOUT.
std::string ReachedVia(const std::string& service, const std::string& role, int rank, std::string address) {
#ifdef LEEWAY_FAILPOINTS
  const std::string of_role = absl::AsciiStrToUpper(fmt::format("LEEWAY_{}_VIA_{}", service, role));
  for (const std::string& variable : {fmt::format("{}_{}", of_role, rank), of_role}) {
    if (const char* via = getenv(variable.c_str()); via != nullptr && *via != '\0') return via;
  }
#endif
  return address;
}

}  // namespace

void PrepareProcess() {
  PrepareAllocator();
  signal(SIGPIPE, SIG_IGN);
  // Connections take at most half of the open files (rpc/listener); the usual 1024 would be few.
  rlimit files = {};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < kOpenFiles) {
    files.rlim_cur = std::min<rlim_t>(kOpenFiles, files.rlim_max);
    setrlimit(RLIMIT_NOFILE, &files);
  }
  // A channel whose calls fail at once is polled in the background only: at gRPC's own 5 s a process that was started a
  // moment before its peer would find it 5 s late. gRPC reads this when it starts.
  setenv("GRPC_CLIENT_CHANNEL_BACKUP_POLL_INTERVAL_MS", "100", /*replace=*/0);
}

struct StopSignals::State {
  Mutex mutex;
  std::function<void()> stop LEEWAY_GUARDED_BY(mutex);
  bool was_signalled LEEWAY_GUARDED_BY(mutex) = false;
  bool is_over LEEWAY_GUARDED_BY(mutex) = false;
};

StopSignals::StopSignals() : state_(std::make_unique<State>()) {
  const sigset_t set = StopSet();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  thread_ = std::thread([state = state_.get()] {
    const sigset_t waited = StopSet();
    while (true) {
      int signal = 0;
      sigwait(&waited, &signal);
      MutexLock lock(&state->mutex);
      if (state->is_over) return;
      state->was_signalled = true;
      if (state->stop) state->stop();
    }
  });
}

StopSignals::~StopSignals() {
  {
    MutexLock lock(&state_->mutex);
    state_->is_over = true;
  }
  pthread_kill(thread_.native_handle(), SIGTERM);
  thread_.join();
}

void StopSignals::OnStop(std::function<void()> stop) {
  MutexLock lock(&state_->mutex);
  state_->stop = std::move(stop);
  if (state_->was_signalled && state_->stop) state_->stop();
}

absl::StatusOr<RoleContext> StartRole(int argc, char** argv, const std::string& role, int port_offset) {
  RoleContext context;
  std::vector<std::string> arguments;
  CLI::App app{fmt::format("leeway {}: one role of a run", role), fmt::format("leeway-{}", role)};
  app.add_option("config", arguments, "TOML files, merged in order, and section.key=value overrides")->required();
  app.add_option("--rank", context.rank, "which of the processes of this role it is")->check(CLI::Range(0, 255));
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    // Help is no error; CLI11 prints both.
    exit(app.exit(error) == 0 ? 0 : static_cast<int>(ExitCode::kConfiguration));
  }
  const ConfigSources sources = SplitArguments(arguments);
  const LoadedConfig loaded = LoadConfig(sources);
  if (!loaded.errors.empty()) return absl::InvalidArgumentError(FormatDiagnostics(loaded.errors));
  ResolvedConfig resolved = ResolveConfig(loaded.config, RunNameOf(sources.files));
  if (!resolved.errors.empty()) return absl::InvalidArgumentError(FormatDiagnostics(resolved.errors));
  context.config = std::move(resolved.config);
  context.task = std::move(resolved.task);
  context.tokenizer = std::move(resolved.tokenizer);
  if (role == "trainer") {
    LEEWAY_ASSIGN_OR_RETURN(context.rank_environment, FindTrainerRank(context.config));
    context.rank = context.rank_environment.rank;
  }
  context.name = fmt::format("{}-{}", role, context.rank);
  context.paths = RunPaths(JoinPath(context.config.GetString("run.directory"), context.config.GetString("run.name")));
  LogInit(context.name, "");
  LEEWAY_RETURN_IF_ERROR(JoinRunDirectory(context.paths, context.config));
  LEEWAY_ASSIGN_OR_RETURN(context.security,
                          SecurityOf(context.config, context.paths, role == "trainer" ? Role::kTrain : Role::kPush));
  context.queue_address = ReachedVia("QUEUE", role, context.rank, QueueAddressOf(context.config, context.paths));
  context.weights_address = ReachedVia("WEIGHTS", role, context.rank, WeightsAddressOf(context.config, context.paths));
  context.metrics = std::make_unique<Metrics>();
  const bool has_metrics = role != "trainer" || context.rank == 0;
  if (const int64_t base = context.config.GetInteger("metrics.port"); base != 0 && has_metrics) {
    LEEWAY_RETURN_IF_ERROR(context.metrics->Serve(static_cast<int>(base) + port_offset + context.rank).status());
  }
  return context;
}

void EndRole(const std::string& name, const absl::Status& status) {
  const ExitCode code = ExitCodeOf(status);
  if (status.ok()) {
    LEEWAY_LOG_INFO("{} is done", name);
  } else {
    LEEWAY_LOG_ERROR("{} ends: {}", name, status.ToString());
    if (code == ExitCode::kConfiguration) fmt::print(stderr, "{}\n", std::string(status.message()));
  }
  spdlog::shutdown();
  fflush(nullptr);
  _exit(static_cast<int>(code));
}

std::string QueueAddressOf(const Config& config, const RunPaths& paths) {
  const std::string& address = config.GetString("queue.address");
  return address.empty() ? "unix:" + paths.sockets() + "/queue.sock" : address;
}

std::string WeightsAddressOf(const Config& config, const RunPaths& paths) {
  const std::string& address = config.GetString("weights.address");
  return address.empty() ? "unix:" + paths.sockets() + "/weights.sock" : address;
}

}  // namespace leeway
