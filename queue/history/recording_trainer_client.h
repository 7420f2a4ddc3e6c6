#ifndef LEEWAY_QUEUE_HISTORY_RECORDING_TRAINER_CLIENT_H_
#define LEEWAY_QUEUE_HISTORY_RECORDING_TRAINER_CLIENT_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "queue/history/history_log.h"
#include "queue/queue_client.h"

namespace leeway {

// Writes every call into a history before it goes out, and every answer before it is passed on. The lines, besides what
// HistoryLog adds and `call`, which numbers pairs of lines (a failed call has "error" instead of what it was told):
//
//   allocate                                          allocated  lineage committed
//   restore   lineage step snapshot_bytes             restored   counts
//   lease     lineage step                            leased     lineage step groups cause lag_limit
//   commit    lineage version digest initial tickets  committed  counts
//   settle    lineage step                            settled    counts
//   snapshot  lineage                                 snapshotted  bytes
//   retire    lineage step ticket reason              retired
//   fence     lineage id reason                       fenced
//                                                     status     counts conservation_holds waits answers
//
// A group is {ticket issue zero_advantage members}, a member {key digest outcome versions} (see
// recording_worker_client.h). Thread-safe like the client below.
class RecordingQueueTrainerClient : public QueueTrainerClient {
 public:
  RecordingQueueTrainerClient(std::unique_ptr<QueueTrainerClient> queue, std::unique_ptr<HistoryLog> history);
  ~RecordingQueueTrainerClient() override;

  absl::StatusOr<v1::AllocateLineageResponse> AllocateLineage(absl::Duration timeout) override;
  absl::StatusOr<v1::LedgerCounts> Restore(uint64_t lineage, uint64_t step, const std::string& ledger_snapshot,
                                           absl::Duration timeout) override;
  absl::StatusOr<LeasedBatch> LeaseBatch(uint64_t lineage, uint64_t step, absl::Duration wait) override;
  absl::StatusOr<v1::LedgerCounts> Commit(const v1::CommitRequest& request, absl::Duration timeout) override;
  absl::StatusOr<v1::LedgerCounts> Settle(uint64_t lineage, uint64_t step, absl::Duration timeout) override;
  absl::StatusOr<std::string> LedgerSnapshot(uint64_t lineage, absl::Duration timeout) override;
  absl::Status RetireGroup(uint64_t lineage, uint64_t step, uint64_t ticket, const std::string& reason,
                           absl::Duration timeout) override;
  absl::Status FenceWorker(uint64_t lineage, const v1::WorkerIdentity& identity, const std::string& reason,
                           absl::Duration timeout) override;
  absl::StatusOr<v1::StatusResponse> GetStatus(absl::Duration timeout) override;

 private:
  const std::unique_ptr<QueueTrainerClient> queue_;
  const std::unique_ptr<HistoryLog> history_;
  std::atomic<uint64_t> calls_{0};
};

// `queue` itself where no history is asked for (OpenHistory).
std::unique_ptr<QueueTrainerClient> RecordIfAsked(std::unique_ptr<QueueTrainerClient> queue, const std::string& who);

}  // namespace leeway

#endif  // LEEWAY_QUEUE_HISTORY_RECORDING_TRAINER_CLIENT_H_
