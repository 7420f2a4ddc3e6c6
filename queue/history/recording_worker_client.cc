#include "queue/history/recording_worker_client.h"

#include <utility>

#include "queue/history/history_fields.h"

namespace leeway {

using Json = nlohmann::ordered_json;

RecordingQueueWorkerClient::RecordingQueueWorkerClient(std::unique_ptr<QueueWorkerClient> queue,
                                                       std::unique_ptr<HistoryLog> history)
    : history_(std::move(history)), queue_(std::move(queue)) {}

RecordingQueueWorkerClient::~RecordingQueueWorkerClient() = default;

RecordingQueueWorkerClient::Call RecordingQueueWorkerClient::NextCall() {
  MutexLock lock(&mutex_);
  return {++calls_, identity_};
}

absl::StatusOr<v1::RegisterResponse> RecordingQueueWorkerClient::Register(const std::string& name,
                                                                          const std::string& run_fingerprint,
                                                                          absl::Duration timeout) {
  history_->Add("register", {{"name", name}});
  absl::StatusOr<v1::RegisterResponse> response = queue_->Register(name, run_fingerprint, timeout);
  if (!response.ok()) {
    history_->Add("registered", {{"error", FieldOf(response.status())}});
    return response;
  }
  history_->Add("registered", {{"id", FieldOf(response->identity())}});
  MutexLock lock(&mutex_);
  identity_ = response->identity();
  return response;
}

absl::StatusOr<v1::AcquireTicketsResponse> RecordingQueueWorkerClient::AcquireTickets(uint32_t max_members,
                                                                                      const v1::WeightsVersion& holds,
                                                                                      absl::Duration wait) {
  const Call call = NextCall();
  const Json id = FieldOf(call.identity);
  history_->Add("acquire",
                {{"id", id}, {"call", call.number}, {"max_members", max_members}, {"holds", FieldOf(holds)}});
  absl::StatusOr<v1::AcquireTicketsResponse> response = queue_->AcquireTickets(max_members, holds, wait);
  if (!response.ok()) {
    history_->Add("acquired", {{"id", id}, {"call", call.number}, {"error", FieldOf(response.status())}});
    return response;
  }
  Json tickets = Json::array();
  for (const v1::Ticket& ticket : response->tickets()) tickets.push_back(FieldOf(ticket));
  history_->Add("acquired", {{"id", id},
                             {"call", call.number},
                             {"tickets", std::move(tickets)},
                             {"cause", response->cause()},
                             {"committed", FieldOf(response->committed())},
                             {"digest", response->committed_digest()},
                             {"run_complete", response->run_complete()}});
  return response;
}

void RecordingQueueWorkerClient::Push(v1::Trajectory trajectory,
                                      std::function<void(absl::StatusOr<v1::PushAnswer>)> done) {
  const Call call = NextCall();
  Json id = FieldOf(call.identity);
  history_->Add("push", {{"id", id},
                         {"call", call.number},
                         {"key", FieldOf(trajectory.key())},
                         {"evaluation", trajectory.evaluation()},
                         {"outcome", v1::Outcome_Name(trajectory.outcome())},
                         {"digest", DigestOf(trajectory)},
                         {"versions", VersionsOf(trajectory)}});
  queue_->Push(std::move(trajectory), [this, id = std::move(id), number = call.number,
                                       done = std::move(done)](absl::StatusOr<v1::PushAnswer> answer) {
    if (answer.ok()) {
      history_->Add("pushed", {{"id", id},
                               {"call", number},
                               {"sequence", answer->sequence()},
                               {"result", v1::PushResult_Name(answer->result())},
                               {"reason", answer->reason()}});
    } else {
      history_->Add("pushed", {{"id", id}, {"call", number}, {"error", FieldOf(answer.status())}});
    }
    done(std::move(answer));
  });
}

absl::StatusOr<v1::HeartbeatResponse> RecordingQueueWorkerClient::Heartbeat(const v1::HeartbeatRequest& request,
                                                                            absl::Duration timeout) {
  const Call call = NextCall();
  const Json id = FieldOf(call.identity);
  history_->Add("heartbeat", {{"id", id},
                              {"call", call.number},
                              {"holds", FieldOf(request.holds())},
                              {"tickets", std::vector<uint64_t>(request.tickets().begin(), request.tickets().end())}});
  absl::StatusOr<v1::HeartbeatResponse> response = queue_->Heartbeat(request, timeout);
  if (!response.ok()) {
    history_->Add("heard", {{"id", id}, {"call", call.number}, {"error", FieldOf(response.status())}});
    return response;
  }
  history_->Add("heard", {{"id", id},
                          {"call", call.number},
                          {"committed", FieldOf(response->committed())},
                          {"digest", response->committed_digest()},
                          {"abandon", std::vector<uint64_t>(response->abandon().begin(), response->abandon().end())},
                          {"run_complete", response->run_complete()}});
  return response;
}

std::unique_ptr<QueueWorkerClient> RecordIfAsked(std::unique_ptr<QueueWorkerClient> queue, const std::string& who) {
  std::unique_ptr<HistoryLog> history = OpenHistory(who);
  if (history == nullptr) return queue;
  return std::make_unique<RecordingQueueWorkerClient>(std::move(queue), std::move(history));
}

}  // namespace leeway
