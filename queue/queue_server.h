#ifndef LEEWAY_QUEUE_QUEUE_SERVER_H_
#define LEEWAY_QUEUE_QUEUE_SERVER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/file_system.h"
#include "base/metrics.h"
#include "queue/core/queue_core.h"
#include "rpc/security/connection_security.h"

namespace leeway {

// Everything that the queue's role is configured with; launch fills it from the run's configuration.
struct QueueOptions {
  // Where to listen: rpc/address.h.
  std::string address;
  // Who may call over TCP.
  ConnectionSecurity security;
  // Ledger, staleness, bounds, leases. `last_lineage` is set by the server, from its file.
  QueueCoreOptions core;
  // Ids of trajectories are below this.
  int32_t vocabulary_size = 0;
  // Workers must name the same one.
  std::string run_fingerprint;

  // Folder (made if missing) of what the queue keeps: `lineage`, and `quarantine.jsonl` with refused trajectories.
  // Empty: nothing is kept.
  std::string state_directory;
  uint64_t quarantine_max_bytes = 64 << 20;
  // Folder (made if missing) of the durable store, from which a restarted queue goes on. Empty: everything is kept in
  // memory.
  std::string store_directory;

  // Pieces in which trajectories travel.
  uint64_t max_chunk_bytes = 1 << 20;
  // Longest long poll.
  absl::Duration max_wait = absl::Seconds(60);
};

// Role: the queue as a process runs it: core, service, gRPC server, and one thread that does what time demands (lost
// workers, deadlines, ends of long polls) and keeps the metrics. What the role's main calls:
//
//   LEEWAY_ASSIGN_OR_RETURN(std::unique_ptr<QueueServer> queue, QueueServer::Start(options, RealFileSystem(),
//   &metrics));
//   ... wait for a signal ...
//   queue->Shutdown(absl::Seconds(2));
//
// Thread-safe.
class QueueServer {
 public:
  // Listens when it returns. `file_system` and `clock` must outlive the server, `metrics` too (null: none are kept;
  // they move once a second). Errors: INVALID_ARGUMENT lists what is wrong with the options, or in what the store's run
  // differs; ALREADY_EXISTS / UNAVAILABLE: the address, or the store is in use; DATA_LOSS: the lineage file, the store.
  static absl::StatusOr<std::unique_ptr<QueueServer>> Start(QueueOptions options,
                                                            FileSystem* file_system = RealFileSystem(),
                                                            Metrics* metrics = nullptr,
                                                            const Clock* clock = RealClock());
  ~QueueServer();
  QueueServer(const QueueServer&) = delete;
  QueueServer& operator=(const QueueServer&) = delete;

  // What clients connect to (the real port where 0 was asked for).
  const std::string& address() const;
  // As a client's Status call answers.
  v1::StatusResponse Status() const;
  // Waits, at most `grace`, until what was done is durable and answered; answers open long polls, lets other calls end
  // for `grace`, then cancels them. Calling it again does nothing, after the first call is over.
  void Shutdown(absl::Duration grace);

 private:
  struct State;
  explicit QueueServer(std::unique_ptr<State> state);

  const std::unique_ptr<State> state_;
};

}  // namespace leeway

#endif  // LEEWAY_QUEUE_QUEUE_SERVER_H_
