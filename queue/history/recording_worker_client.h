#ifndef LEEWAY_QUEUE_HISTORY_RECORDING_WORKER_CLIENT_H_
#define LEEWAY_QUEUE_HISTORY_RECORDING_WORKER_CLIENT_H_

#include <cstdint>
#include <memory>
#include <string>

#include "base/mutex.h"
#include "queue/history/history_log.h"
#include "queue/queue_client.h"

namespace leeway {

// Writes every call into a history before it goes out, and every answer before it is passed on. The lines, besides what
// HistoryLog adds ("id" = [producer, epoch], a version = [lineage, version]; a failed call has "error" instead of
// what it was told):
//
//   register    name                      registered  id
//   acquire     id call max_members holds acquired    id call tickets cause committed digest run_complete
//   push        id call key evaluation outcome digest versions
//   pushed      id call sequence result reason
//   heartbeat   id call holds tickets     heard       id call committed digest abandon run_complete
//
// A ticket is {id issue seed task_index members version evaluation}; a key is [ticket, issue, member, attempt];
// `versions` are [lineage, version, tokens] in order; `digest` of a push is that of the message's deterministic
// serialisation, the same as in the trainer's history. `call` numbers pairs of lines. Thread-safe like the client
// below.
class RecordingQueueWorkerClient : public QueueWorkerClient {
 public:
  RecordingQueueWorkerClient(std::unique_ptr<QueueWorkerClient> queue, std::unique_ptr<HistoryLog> history);
  ~RecordingQueueWorkerClient() override;

  absl::StatusOr<v1::RegisterResponse> Register(const std::string& name, const std::string& run_fingerprint,
                                                absl::Duration timeout) override LEEWAY_EXCLUDES(mutex_);
  absl::StatusOr<v1::AcquireTicketsResponse> AcquireTickets(uint32_t max_members, const v1::WeightsVersion& holds,
                                                            absl::Duration wait) override LEEWAY_EXCLUDES(mutex_);
  void Push(v1::Trajectory trajectory, std::function<void(absl::StatusOr<v1::PushAnswer>)> done) override
      LEEWAY_EXCLUDES(mutex_);
  int64_t unanswered_pushes() const override { return queue_->unanswered_pushes(); }
  absl::StatusOr<v1::HeartbeatResponse> Heartbeat(const v1::HeartbeatRequest& request, absl::Duration timeout) override
      LEEWAY_EXCLUDES(mutex_);

 private:
  struct Call {
    uint64_t number = 0;
    v1::WorkerIdentity identity;
  };
  Call NextCall() LEEWAY_EXCLUDES(mutex_);

  const std::unique_ptr<HistoryLog> history_;

  Mutex mutex_;
  uint64_t calls_ LEEWAY_GUARDED_BY(mutex_) = 0;
  v1::WorkerIdentity identity_ LEEWAY_GUARDED_BY(mutex_);

  // Destroyed first: it may answer open pushes then.
  const std::unique_ptr<QueueWorkerClient> queue_;
};

// `queue` itself where no history is asked for (OpenHistory).
std::unique_ptr<QueueWorkerClient> RecordIfAsked(std::unique_ptr<QueueWorkerClient> queue, const std::string& who);

}  // namespace leeway

#endif  // LEEWAY_QUEUE_HISTORY_RECORDING_WORKER_CLIENT_H_
