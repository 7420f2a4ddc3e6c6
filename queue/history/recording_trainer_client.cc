#include "queue/history/recording_trainer_client.h"

#include <map>
#include <utility>
#include <vector>

#include "queue/history/history_fields.h"

namespace leeway {
namespace {

using Json = nlohmann::ordered_json;

Json GroupsOf(const LeasedBatch& batch) {
  Json groups = Json::array();
  for (const BatchGroup& group : batch.groups) {
    Json members = Json::array();
    for (const v1::Trajectory& member : group.members) {
      members.push_back({{"key", FieldOf(member.key())},
                         {"digest", DigestOf(member)},
                         {"outcome", v1::Outcome_Name(member.outcome())},
                         {"versions", VersionsOf(member)}});
    }
    groups.push_back({{"ticket", group.ticket},
                      {"issue", group.issue},
                      {"zero_advantage", group.zero_advantage},
                      {"members", std::move(members)}});
  }
  return groups;
}

Json WaitsOf(const v1::StatusResponse& status) {
  Json waits = Json::array();
  for (const v1::OpenWait& wait : status.waits()) {
    waits.push_back(
        {{"who", wait.who()}, {"cause", wait.cause()}, {"seconds", wait.seconds()}, {"detail", wait.detail()}});
  }
  return waits;
}

// The line of an answer: `call` and what was told, or the error.
template <typename Told>
void AddAnswer(HistoryLog* history, const char* event, Json call, const absl::Status& status, const Told& told) {
  if (status.ok()) {
    told(&call);
  } else {
    call["error"] = FieldOf(status);
  }
  history->Add(event, call);
}

}  // namespace

RecordingQueueTrainerClient::RecordingQueueTrainerClient(std::unique_ptr<QueueTrainerClient> queue,
                                                         std::unique_ptr<HistoryLog> history)
    : queue_(std::move(queue)), history_(std::move(history)) {}

RecordingQueueTrainerClient::~RecordingQueueTrainerClient() = default;

absl::StatusOr<v1::AllocateLineageResponse> RecordingQueueTrainerClient::AllocateLineage(absl::Duration timeout) {
  const Json call = {{"call", ++calls_}};
  history_->Add("allocate", call);
  absl::StatusOr<v1::AllocateLineageResponse> response = queue_->AllocateLineage(timeout);
  AddAnswer(history_.get(), "allocated", call, response.status(), [&](Json* line) {
    (*line)["lineage"] = response->lineage();
    (*line)["committed"] = FieldOf(response->committed());
  });
  return response;
}

absl::StatusOr<v1::LedgerCounts> RecordingQueueTrainerClient::Restore(uint64_t lineage, uint64_t step,
                                                                      const std::string& ledger_snapshot,
                                                                      absl::Duration timeout) {
  const Json call = {
      {"call", ++calls_}, {"lineage", lineage}, {"step", step}, {"snapshot_bytes", ledger_snapshot.size()}};
  history_->Add("restore", call);
  absl::StatusOr<v1::LedgerCounts> counts = queue_->Restore(lineage, step, ledger_snapshot, timeout);
  AddAnswer(history_.get(), "restored", call, counts.status(),
            [&](Json* line) { (*line)["counts"] = FieldOf(*counts); });
  return counts;
}

absl::StatusOr<LeasedBatch> RecordingQueueTrainerClient::LeaseBatch(uint64_t lineage, uint64_t step,
                                                                    absl::Duration wait) {
  const Json call = {{"call", ++calls_}, {"lineage", lineage}, {"step", step}};
  history_->Add("lease", call);
  absl::StatusOr<LeasedBatch> batch = queue_->LeaseBatch(lineage, step, wait);
  AddAnswer(history_.get(), "leased", call, batch.status(), [&](Json* line) {
    (*line)["cause"] = batch->cause;
    (*line)["lag_limit"] = batch->lag_limit;
    (*line)["groups"] = GroupsOf(*batch);
  });
  return batch;
}

absl::StatusOr<v1::LedgerCounts> RecordingQueueTrainerClient::Commit(const v1::CommitRequest& request,
                                                                     absl::Duration timeout) {
  Json call = {{"call", ++calls_},
               {"lineage", request.lineage()},
               {"version", request.version()},
               {"digest", request.digest()},
               {"initial", request.initial()},
               {"tickets", std::vector<uint64_t>(request.tickets().begin(), request.tickets().end())}};
  history_->Add("commit", call);
  absl::StatusOr<v1::LedgerCounts> counts = queue_->Commit(request, timeout);
  AddAnswer(history_.get(), "committed", call, counts.status(),
            [&](Json* line) { (*line)["counts"] = FieldOf(*counts); });
  return counts;
}

absl::StatusOr<v1::LedgerCounts> RecordingQueueTrainerClient::Settle(uint64_t lineage, uint64_t step,
                                                                     absl::Duration timeout) {
  const Json call = {{"call", ++calls_}, {"lineage", lineage}, {"step", step}};
  history_->Add("settle", call);
  absl::StatusOr<v1::LedgerCounts> counts = queue_->Settle(lineage, step, timeout);
  AddAnswer(history_.get(), "settled", call, counts.status(),
            [&](Json* line) { (*line)["counts"] = FieldOf(*counts); });
  return counts;
}

absl::StatusOr<std::string> RecordingQueueTrainerClient::LedgerSnapshot(uint64_t lineage, absl::Duration timeout) {
  const Json call = {{"call", ++calls_}, {"lineage", lineage}};
  history_->Add("snapshot", call);
  absl::StatusOr<std::string> snapshot = queue_->LedgerSnapshot(lineage, timeout);
  AddAnswer(history_.get(), "snapshotted", call, snapshot.status(),
            [&](Json* line) { (*line)["bytes"] = snapshot->size(); });
  return snapshot;
}

absl::Status RecordingQueueTrainerClient::RetireGroup(uint64_t lineage, uint64_t step, uint64_t ticket,
                                                      const std::string& reason, absl::Duration timeout) {
  const Json call = {{"call", ++calls_}, {"lineage", lineage}, {"step", step}, {"ticket", ticket}, {"reason", reason}};
  history_->Add("retire", call);
  const absl::Status status = queue_->RetireGroup(lineage, step, ticket, reason, timeout);
  AddAnswer(history_.get(), "retired", call, status, [](Json*) {});
  return status;
}

absl::Status RecordingQueueTrainerClient::FenceWorker(uint64_t lineage, const v1::WorkerIdentity& identity,
                                                      const std::string& reason, absl::Duration timeout) {
  const Json call = {{"call", ++calls_}, {"lineage", lineage}, {"id", FieldOf(identity)}, {"reason", reason}};
  history_->Add("fence", call);
  const absl::Status status = queue_->FenceWorker(lineage, identity, reason, timeout);
  AddAnswer(history_.get(), "fenced", call, status, [](Json*) {});
  return status;
}

absl::StatusOr<v1::StatusResponse> RecordingQueueTrainerClient::GetStatus(absl::Duration timeout) {
  const Json call = {{"call", ++calls_}};
  absl::StatusOr<v1::StatusResponse> status = queue_->GetStatus(timeout);
  AddAnswer(history_.get(), "status", call, status.status(), [&](Json* line) {
    (*line)["counts"] = FieldOf(status->counts());
    (*line)["conservation_holds"] = status->conservation_holds();
    (*line)["waits"] = WaitsOf(*status);
    (*line)["answers"] = std::map<std::string, uint64_t>(status->answers().begin(), status->answers().end());
  });
  return status;
}

std::unique_ptr<QueueTrainerClient> RecordIfAsked(std::unique_ptr<QueueTrainerClient> queue, const std::string& who) {
  std::unique_ptr<HistoryLog> history = OpenHistory(who);
  if (history == nullptr) return queue;
  return std::make_unique<RecordingQueueTrainerClient>(std::move(queue), std::move(history));
}

}  // namespace leeway
