#include "queue/queue_server.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/cpu_time.h"
#include "base/failpoint.h"
#include "base/logging.h"
#include "base/mutex.h"
#include "base/state_clock.h"
#include "base/status_macros.h"
#include "queue/door/quarantine.h"
#include "queue/queue_frontend.h"
#include "queue/queue_service.h"
#include "queue/store/memory_store.h"
#include "queue/store/rocksdb_store.h"
#include "queue/wire/connection.h"
#include "rpc/listener/listening_socket.h"
#include "rpc/security/connection_security.h"
#include "rpc/server.h"

namespace leeway {
namespace {

// Between two looks at the clock at least so long: an event that stays due must not make a spinning thread.
constexpr absl::Duration kShortestSleep = absl::Milliseconds(5);

constexpr absl::Duration kMetricsInterval = absl::Seconds(1);

// Before anything is made or changed on disk: a second queue has no business there. Whoever takes the address in
// between is met when this queue starts to listen.
absl::Status CheckAddressIsFree(const std::string& address, const ConnectionSecurity& security) {
  LEEWAY_ASSIGN_OR_RETURN(const RpcAddress parsed, ParseRpcAddress(address));
  LEEWAY_RETURN_IF_ERROR(CheckServerSecurity(parsed, security));
  return ListeningSocket::Open(parsed).status();
}

// Nobody can write there, whatever the disk does: told apart from a disk that fails at this moment, which only a write
// can do.
bool IsFolderUnusable(const std::string& directory, FileSystem* file_system) {
  const std::string path = directory + "/writable";
  const absl::Status written = file_system->WriteFileAtomically(path, "");
  if (written.ok()) file_system->RemoveAll(path).IgnoreError();
  return absl::IsPermissionDenied(written) || absl::IsNotFound(written);
}

// Names the folder and what to do about it. Codes that end the job at once (launch/run/exit_code.h) are for what
// starting the queue again does not mend.
absl::Status NameUnusableStore(const std::string& directory, FileSystem* file_system, const absl::Status& status) {
  const std::string what = absl::StrCat("the queue's store in ", directory, " cannot be used: ", status.message());
  // Some errors of the store know a better way out.
  const bool has_remedy = absl::StrContains(status.message(), " move ");
  switch (status.code()) {
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kDataLoss:
      if (has_remedy) return absl::DataLossError(what);
      return absl::DataLossError(absl::StrCat(what, "; bring it back as it was, or move ", directory,
                                              " away: the queue then goes on from the newest checkpoint"));
    case absl::StatusCode::kInternal: {
      const std::string remedy =
          absl::StrCat(what, "; it has to be a folder of a disk that can be read and written: mend that, or move ",
                       directory, " away: the queue then goes on from the newest checkpoint");
      return IsFolderUnusable(directory, file_system) ? absl::PermissionDeniedError(remedy)
                                                      : absl::InternalError(remedy);
    }
    case absl::StatusCode::kFailedPrecondition:
      return absl::FailedPreconditionError(absl::StrCat(what, "; go on with the program that wrote it, or move ",
                                                        directory,
                                                        " away: the queue then goes on from the newest checkpoint"));
    default:
      return status;
  }
}

absl::StatusOr<std::unique_ptr<QueueStore>> OpenStore(const std::string& directory, FileSystem* file_system,
                                                      const Clock* clock) {
  if (directory.empty()) return std::make_unique<MemoryStore>();
  if (absl::Status made = file_system->CreateDirectory(directory); !made.ok()) {
    if (absl::IsResourceExhausted(made)) return made;
    return NameUnusableStore(directory, file_system, absl::InternalError(made.message()));
  }
  RocksDbStoreOptions options;
  options.directory = directory;
  options.clock = clock;
  absl::StatusOr<std::unique_ptr<RocksDbStore>> store = RocksDbStore::Open(options);
  if (!store.ok()) return NameUnusableStore(directory, file_system, store.status());
  return store;
}

void FillStoreGauges(const StoreStatistics& statistics, v1::ProcessReport* report) {
  auto& gauges = *report->mutable_gauges();
  gauges["store/syncs"] = statistics.log_syncs + statistics.segment_syncs;
  gauges["store/sync_p50_seconds"] = absl::ToDoubleSeconds(statistics.sync_p50);
  gauges["store/sync_p99_seconds"] = absl::ToDoubleSeconds(statistics.sync_p99);
  gauges["store/failures"] = statistics.failures;
  gauges["store/waiting_bytes"] = statistics.waiting_bytes;
  gauges["store/log_bytes_written"] = statistics.log_bytes_written;
  gauges["store/segment_bytes_written"] = statistics.segment_bytes_written;
  gauges["store/rewritten_bytes"] = statistics.rewritten_bytes;
  gauges["store/rewritten_bundle_bytes"] = statistics.rewritten_bundle_bytes;
  gauges["store/segment_file_bytes"] = statistics.segment_file_bytes;
  gauges["store/live_segment_bytes"] = statistics.live_segment_bytes;
  gauges["store/bundle_bytes"] = statistics.bundle_bytes;
  gauges["store/live_bundle_bytes"] = statistics.live_bundle_bytes;
}

Histogram HistogramOf(const v1::HistogramCounts& saved) {
  return Histogram({saved.upper_bounds().begin(), saved.upper_bounds().end()},
                   {saved.counts().begin(), saved.counts().end()}, saved.sum());
}

void KeepMetrics(const v1::StatusResponse& status, Metrics* metrics) {
  const v1::LedgerCounts& counts = status.counts();
  metrics->SetGauge("ledger/issued_total", counts.issued_total());
  metrics->SetGauge("ledger/issued", counts.issued());
  metrics->SetGauge("ledger/running", counts.running());
  metrics->SetGauge("ledger/ready", counts.ready());
  metrics->SetGauge("ledger/leased", counts.leased());
  metrics->SetGauge("ledger/trained", counts.trained());
  metrics->SetGauge("ledger/settled", counts.settled());
  metrics->SetGauge("ledger/filtered", counts.filtered());
  metrics->SetGauge("ledger/stale", counts.stale());
  metrics->SetGauge("ledger/failed", counts.failed());
  metrics->SetGauge("ledger/cancelled", counts.cancelled());
  metrics->SetGauge("ledger/rewound", counts.rewound());
  metrics->SetGauge("queue/groups", status.groups());
  metrics->SetGauge("queue/bytes", status.bytes());
  metrics->SetGauge("version", status.committed().version());
  metrics->SetGauge("lineage", status.committed().lineage());
  metrics->SetGauge("tokens/generated", status.generated_tokens());
  for (const auto& [name, value] : status.report().gauges()) metrics->SetGauge(name, value);
  for (const auto& [name, counts] : status.histograms()) metrics->SetHistogram(name, HistogramOf(counts));
  for (const auto& [answer, count] : status.answers()) metrics->SetGauge(absl::StrCat("answers/", answer), count);
  for (const auto& [code, count] : status.episode_failures()) {
    metrics->SetGauge(absl::StrCat("episode_failures/", code), count);
  }
}

}  // namespace

struct QueueServer::State {
  // In the order in which they need each other; destroyed the other way round.
  FileSystem* file_system = nullptr;
  Metrics* metrics = nullptr;
  const Clock* clock = nullptr;
  absl::Duration heartbeat_interval;
  MonotonicTime started;
  StateClock states;
  std::unique_ptr<Quarantine> quarantine;
  // The frontend's store, when it is on disk.
  const RocksDbStore* disk = nullptr;
  std::unique_ptr<QueueFrontend> frontend;
  std::unique_ptr<grpc::Service> service;
  std::unique_ptr<RpcServer> server;
  std::thread timer;

  // Held over a whole Shutdown.
  Mutex shutdown_mutex;

  Mutex mutex LEEWAY_ACQUIRED_AFTER(shutdown_mutex);
  CondVar changed;
  // NextDue() moved forward, or the server stops.
  bool nudged LEEWAY_GUARDED_BY(mutex) = false;
  bool stopping LEEWAY_GUARDED_BY(mutex) = false;

  void Nudge() LEEWAY_EXCLUDES(mutex) {
    MutexLock lock(&mutex);
    nudged = true;
    changed.NotifyAll();
  }
  v1::StatusResponse Status() {
    v1::StatusResponse status = frontend->Status();
    FillReport(status.mutable_report());
    return status;
  }
  void FillReport(v1::ProcessReport* report);
  void RunTimer() LEEWAY_EXCLUDES(mutex);
  // Until everything so far is durable and answered, or `limit` has passed.
  void AwaitAnswers(absl::Duration limit) LEEWAY_EXCLUDES(mutex);
};

void QueueServer::State::AwaitAnswers(absl::Duration limit) {
  // Shared: the callback may come after the wait is over.
  struct Gate {
    Mutex mutex;
    CondVar opened;
    bool is_open LEEWAY_GUARDED_BY(mutex) = false;
  };
  const auto gate = std::make_shared<Gate>();
  frontend->AfterAnswers([gate] {
    MutexLock lock(&gate->mutex);
    gate->is_open = true;
    gate->opened.NotifyAll();
  });
  const Deadline deadline = Deadline::After(limit);
  MutexLock lock(&gate->mutex);
  while (!gate->is_open && !deadline.HasPassed()) gate->opened.WaitUntil(&gate->mutex, deadline);
}

void QueueServer::State::FillReport(v1::ProcessReport* report) {
  for (const auto& [state, time] : states.Totals()) {
    (*report->mutable_state_seconds())[state] = absl::ToDoubleSeconds(time);
  }
  for (const auto& [thread_class, seconds] : CpuSecondsByThreadClass()) {
    (*report->mutable_cpu_seconds())[thread_class] = seconds;
  }
  (*report->mutable_gauges())["queue/quarantined"] = quarantine->kept();
  (*report->mutable_gauges())["queue/quarantine_dropped"] = quarantine->dropped();
  if (disk != nullptr) FillStoreGauges(disk->Statistics(), report);
  report->set_wall_seconds(absl::ToDoubleSeconds(clock->Now() - started));
}

void QueueServer::State::RunTimer() {
  SetThreadClass("ledger");
  MonotonicTime next_metrics = clock->Now();
  MonotonicTime last_round = clock->Now();
  while (true) {
    {
      const MonotonicTime now = clock->Now();
      const MonotonicTime wake = std::min({frontend->NextDue(), next_metrics, now + heartbeat_interval});
      const Deadline deadline = Deadline::After(std::max(wake - now, kShortestSleep), clock);
      states.Enter("wait:waiting_for_requests");
      MutexLock lock(&mutex);
      while (!nudged && !stopping && !deadline.HasPassed()) changed.WaitUntil(&mutex, deadline);
      if (stopping) return;
      nudged = false;
    }
    states.Enter("busy:ledger");
    const MonotonicTime now = clock->Now();
    const absl::Duration pause = now - std::exchange(last_round, now);
    if (pause > 3 * heartbeat_interval) {
      LEEWAY_LOG_WARNING("the queue did not run for {}", absl::FormatDuration(pause));
      frontend->ForgiveSilence(pause);
    }
    if (frontend->NextDue() <= clock->Now()) frontend->RunDue();
    if (metrics != nullptr && next_metrics <= clock->Now()) KeepMetrics(Status(), metrics);
    while (next_metrics <= clock->Now()) next_metrics = next_metrics + kMetricsInterval;
  }
}

absl::StatusOr<std::unique_ptr<QueueServer>> QueueServer::Start(QueueOptions options, FileSystem* file_system,
                                                                Metrics* metrics, const Clock* clock) {
  if (options.vocabulary_size <= 0) return absl::InvalidArgumentError("vocabulary_size is not greater than 0");
  ConnectionOptions connection = QueueConnectionOptions();
  connection.security = options.security;
  const uint64_t largest_chunk = connection.max_message_bytes / 4;
  if (options.max_chunk_bytes == 0 || options.max_chunk_bytes > largest_chunk) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_chunk_bytes: ", options.max_chunk_bytes, " is not between 1 and ", largest_chunk));
  }
  auto state = std::make_unique<State>();
  state->file_system = file_system;
  state->metrics = metrics;
  state->clock = clock;
  state->heartbeat_interval = options.core.heartbeat_interval;
  state->started = clock->Now();

  QueueFrontendOptions frontend;
  frontend.limits = {options.vocabulary_size, options.core.group_size};
  frontend.max_trajectory_bytes = options.core.max_trajectory_bytes;
  frontend.max_chunk_bytes = options.max_chunk_bytes;
  frontend.run_fingerprint = options.run_fingerprint;
  frontend.heartbeat_interval = options.core.heartbeat_interval;
  frontend.worker_lease = options.core.worker_lease;
  frontend.max_wait = options.max_wait;
  // Microseconds: later lives of the queue start above all epochs that this one can give.
  options.core.first_epoch = static_cast<uint64_t>(std::max<int64_t>(1, absl::ToUnixMicros(absl::Now())));
  LEEWAY_RETURN_IF_ERROR(CheckAddressIsFree(options.address, options.security));
  std::string quarantine_path;
  if (!options.state_directory.empty()) {
    LEEWAY_RETURN_IF_ERROR(file_system->CreateDirectory(options.state_directory));
    quarantine_path = JoinPath(options.state_directory, "quarantine.jsonl");
    frontend.lineage_path = JoinPath(options.state_directory, "lineage");
    LEEWAY_ASSIGN_OR_RETURN(options.core.last_lineage, ReadLastLineage(file_system, frontend.lineage_path));
  }
  LEEWAY_ASSIGN_OR_RETURN(std::unique_ptr<QueueStore> store, OpenStore(options.store_directory, file_system, clock));
  const bool is_durable = store->is_durable();
  if (is_durable) state->disk = static_cast<const RocksDbStore*>(store.get());
  absl::StatusOr<std::unique_ptr<QueueCore>> core =
      QueueCore::Create(std::move(options.core), std::move(store), clock->Now());
  if (!core.ok())
    return is_durable ? NameUnusableStore(options.store_directory, file_system, core.status()) : core.status();
  if (is_durable) {
    LEEWAY_LOG_INFO("the queue's store {} was read in {}: {} tickets issued so far, {} groups held, {} bytes",
                    options.store_directory,
                    absl::FormatDuration(absl::Trunc(clock->Now() - state->started, absl::Milliseconds(1))),
                    (*core)->counts().issued_total(), (*core)->groups(), (*core)->bytes());
  }
  LEEWAY_FAILPOINT("queue_after_recovery");

  State* const raw = state.get();
  state->quarantine = std::make_unique<Quarantine>(file_system, quarantine_path, options.quarantine_max_bytes);
  state->frontend = std::make_unique<QueueFrontend>(std::move(frontend), *std::move(core), state->quarantine.get(),
                                                    file_system, state->clock, [raw] { raw->Nudge(); });
  state->service =
      MakeQueueService(state->frontend.get(), [raw](v1::ProcessReport* report) { raw->FillReport(report); });
  LEEWAY_ASSIGN_OR_RETURN(state->server, RpcServer::Start(options.address, {state->service.get()}, connection));
  state->server->SetServing("leeway.v1.Queue", true);
  LEEWAY_LOG_INFO("queue listens on {}", state->server->address());
  state->timer = std::thread([raw] { raw->RunTimer(); });
  return std::unique_ptr<QueueServer>(new QueueServer(std::move(state)));
}

QueueServer::QueueServer(std::unique_ptr<State> state) : state_(std::move(state)) {}

QueueServer::~QueueServer() { Shutdown(absl::ZeroDuration()); }

const std::string& QueueServer::address() const { return state_->server->address(); }

v1::StatusResponse QueueServer::Status() const { return state_->Status(); }

void QueueServer::Shutdown(absl::Duration grace) {
  MutexLock shutdown_lock(&state_->shutdown_mutex);
  {
    MutexLock lock(&state_->mutex);
    if (state_->stopping) return;
    state_->stopping = true;
    state_->changed.NotifyAll();
  }
  state_->timer.join();
  state_->AwaitAnswers(grace);
  state_->frontend->Shutdown();
  state_->server->Shutdown(grace);
}

}  // namespace leeway
