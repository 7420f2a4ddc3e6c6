#include "queue/fake_queue_client.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace leeway {
namespace {

absl::Status TakeFailure(std::map<std::string, std::deque<absl::Status>>& failures, const std::string& method) {
  auto it = failures.find(method);
  if (it == failures.end() || it->second.empty()) return absl::OkStatus();
  absl::Status status = std::move(it->second.front());
  it->second.pop_front();
  return status;
}

absl::Status Fenced() { return absl::AbortedError("fenced: register again"); }

}  // namespace

FakeQueueWorkerClient::FakeQueueWorkerClient() {
  handshake_.set_heartbeat_interval_ms(1'000);
  handshake_.set_lease_ms(10'000);
  handshake_.set_max_chunk_bytes(1 << 20);
  handshake_.set_max_trajectory_bytes(64 << 20);
  handler_ = [](const v1::Trajectory&) {
    v1::PushAnswer answer;
    answer.set_result(v1::ACCEPTED);
    return answer;
  };
}

absl::Status FakeQueueWorkerClient::CheckCall(const std::string& method) {
  if (absl::Status status = TakeFailure(failures_, method); !status.ok()) return status;
  return fenced_ ? Fenced() : absl::OkStatus();
}

absl::StatusOr<v1::RegisterResponse> FakeQueueWorkerClient::Register(const std::string&,
                                                                     const std::string& run_fingerprint,
                                                                     absl::Duration) {
  MutexLock lock(&mutex_);
  if (absl::Status status = TakeFailure(failures_, "Register"); !status.ok()) return status;
  fenced_ = false;
  fingerprint_ = run_fingerprint;
  identity_.set_producer_id(1);
  identity_.set_epoch(identity_.epoch() + 1);
  next_sequence_ = 1;
  v1::RegisterResponse response = handshake_;
  *response.mutable_identity() = identity_;
  return response;
}

absl::StatusOr<v1::AcquireTicketsResponse> FakeQueueWorkerClient::AcquireTickets(uint32_t max_members,
                                                                                 const v1::WeightsVersion&,
                                                                                 absl::Duration wait) {
  const Deadline deadline = Deadline::After(wait);
  MutexLock lock(&mutex_);
  while (true) {
    if (absl::Status status = CheckCall("AcquireTickets"); !status.ok()) return status;
    if (run_complete_ || draining_ || !tickets_.empty() || deadline.HasPassed()) break;
    changed_.WaitUntil(&mutex_, deadline);
  }
  v1::AcquireTicketsResponse response;
  *response.mutable_committed() = committed_;
  response.set_committed_digest(committed_digest_);
  response.set_run_complete(run_complete_);
  uint32_t members = 0;
  while (!run_complete_ && !draining_ && !tickets_.empty()) {
    const uint32_t wanted = std::max(1, tickets_.front().members_size());
    if (members > 0 && members + wanted > max_members) break;
    members += wanted;
    *response.add_tickets() = std::move(tickets_.front());
    tickets_.pop_front();
  }
  if (response.tickets_size() == 0) {
    response.set_cause(run_complete_ ? "run_complete" : draining_ ? "draining" : cause_);
  }
  return response;
}

void FakeQueueWorkerClient::Push(v1::Trajectory trajectory, std::function<void(absl::StatusOr<v1::PushAnswer>)> done) {
  absl::StatusOr<v1::PushAnswer> answer = v1::PushAnswer();
  PushHandler handler;
  {
    MutexLock lock(&mutex_);
    pushed_.push_back(trajectory);
    changed_.NotifyAll();
    if (absl::Status status = CheckCall("Push"); !status.ok()) {
      answer = status;
    } else if (holding_) {
      ++unanswered_;
      held_.push_back({std::move(trajectory), std::move(done)});
      return;
    } else {
      handler = handler_;
    }
  }
  if (answer.ok()) answer = handler(trajectory);
  if (answer.ok()) {
    MutexLock lock(&mutex_);
    answer->set_sequence(next_sequence_++);
  }
  done(std::move(answer));
}

int64_t FakeQueueWorkerClient::unanswered_pushes() const {
  MutexLock lock(&mutex_);
  return unanswered_;
}

absl::StatusOr<v1::HeartbeatResponse> FakeQueueWorkerClient::Heartbeat(const v1::HeartbeatRequest& request,
                                                                       absl::Duration) {
  MutexLock lock(&mutex_);
  heartbeats_.push_back(request);
  if (absl::Status status = CheckCall("Heartbeat"); !status.ok()) return status;
  v1::HeartbeatResponse response;
  for (uint64_t ticket : abandon_) response.add_abandon(ticket);
  abandon_.clear();
  *response.mutable_committed() = committed_;
  response.set_committed_digest(committed_digest_);
  response.set_draining(draining_);
  response.set_run_complete(run_complete_);
  return response;
}

void FakeQueueWorkerClient::AddTicket(v1::Ticket ticket) {
  MutexLock lock(&mutex_);
  tickets_.push_back(std::move(ticket));
  changed_.NotifyAll();
}

void FakeQueueWorkerClient::SetCommitted(const v1::WeightsVersion& weights, const std::string& digest) {
  MutexLock lock(&mutex_);
  committed_ = weights;
  committed_digest_ = digest;
}

void FakeQueueWorkerClient::SetCause(const std::string& cause) {
  MutexLock lock(&mutex_);
  cause_ = cause;
}

void FakeQueueWorkerClient::SetRunComplete() {
  MutexLock lock(&mutex_);
  run_complete_ = true;
  changed_.NotifyAll();
}

void FakeQueueWorkerClient::SetDraining(bool draining) {
  MutexLock lock(&mutex_);
  draining_ = draining;
  changed_.NotifyAll();
}

void FakeQueueWorkerClient::Abandon(uint64_t ticket) {
  MutexLock lock(&mutex_);
  abandon_.push_back(ticket);
}

void FakeQueueWorkerClient::Fence() {
  std::deque<HeldPush> held;
  {
    MutexLock lock(&mutex_);
    fenced_ = true;
    held.swap(held_);
    unanswered_ = 0;
    changed_.NotifyAll();
  }
  for (HeldPush& push : held) push.done(Fenced());
}

void FakeQueueWorkerClient::FailNext(const std::string& method, absl::Status status) {
  MutexLock lock(&mutex_);
  failures_[method].push_back(std::move(status));
  changed_.NotifyAll();
}

void FakeQueueWorkerClient::SetPushHandler(PushHandler handler) {
  MutexLock lock(&mutex_);
  handler_ = std::move(handler);
}

void FakeQueueWorkerClient::HoldAnswers() {
  MutexLock lock(&mutex_);
  holding_ = true;
}

void FakeQueueWorkerClient::ReleaseAnswers() {
  while (true) {
    HeldPush push;
    PushHandler handler;
    {
      MutexLock lock(&mutex_);
      if (held_.empty()) {
        holding_ = false;
        return;
      }
      push = std::move(held_.front());
      held_.pop_front();
      --unanswered_;
      handler = handler_;
    }
    absl::StatusOr<v1::PushAnswer> answer = handler(push.trajectory);
    if (answer.ok()) {
      MutexLock lock(&mutex_);
      answer->set_sequence(next_sequence_++);
    }
    push.done(std::move(answer));
  }
}

void FakeQueueWorkerClient::SetHandshake(const v1::RegisterResponse& handshake) {
  MutexLock lock(&mutex_);
  handshake_ = handshake;
}

v1::WorkerIdentity FakeQueueWorkerClient::identity() const {
  MutexLock lock(&mutex_);
  return identity_;
}

std::string FakeQueueWorkerClient::fingerprint() const {
  MutexLock lock(&mutex_);
  return fingerprint_;
}

std::vector<v1::Trajectory> FakeQueueWorkerClient::pushed() const {
  MutexLock lock(&mutex_);
  return pushed_;
}

std::vector<v1::HeartbeatRequest> FakeQueueWorkerClient::heartbeats() const {
  MutexLock lock(&mutex_);
  return heartbeats_;
}

int FakeQueueWorkerClient::tickets_left() const {
  MutexLock lock(&mutex_);
  return static_cast<int>(tickets_.size());
}

bool FakeQueueWorkerClient::WaitForPushes(int count, absl::Duration timeout) const {
  const Deadline deadline = Deadline::After(timeout);
  MutexLock lock(&mutex_);
  while (static_cast<int>(pushed_.size()) < count) {
    if (deadline.HasPassed()) return false;
    changed_.WaitUntil(&mutex_, deadline);
  }
  return true;
}

absl::Status FakeQueueTrainerClient::CheckCall(const std::string& method, uint64_t lineage) {
  if (absl::Status status = TakeFailure(failures_, method); !status.ok()) return status;
  if (lineage == lineage_) return absl::OkStatus();
  return absl::AbortedError(absl::StrCat("lineage ", lineage, " is fenced: lineage ", lineage_, " is current"));
}

absl::StatusOr<v1::AllocateLineageResponse> FakeQueueTrainerClient::AllocateLineage(absl::Duration) {
  MutexLock lock(&mutex_);
  if (absl::Status status = TakeFailure(failures_, "AllocateLineage"); !status.ok()) return status;
  v1::AllocateLineageResponse response;
  response.set_lineage(++lineage_);
  if (committed_.version() > 0) *response.mutable_committed() = committed_;
  return response;
}

absl::StatusOr<v1::LedgerCounts> FakeQueueTrainerClient::Restore(uint64_t lineage, uint64_t step,
                                                                 const std::string& ledger_snapshot, absl::Duration) {
  MutexLock lock(&mutex_);
  if (absl::Status status = CheckCall("Restore", lineage); !status.ok()) return status;
  restores_.push_back({lineage, step, ledger_snapshot});
  return counts_;
}

absl::StatusOr<LeasedBatch> FakeQueueTrainerClient::LeaseBatch(uint64_t lineage, uint64_t step, absl::Duration wait) {
  const Deadline deadline = Deadline::After(wait);
  MutexLock lock(&mutex_);
  while (true) {
    if (absl::Status status = CheckCall("LeaseBatch", lineage); !status.ok()) return status;
    if (auto it = batches_.find(step); it != batches_.end()) return it->second;
    if (source_) {
      absl::StatusOr<LeasedBatch> batch = source_(step);
      if (batch.ok() && !batch->groups.empty()) batches_[step] = *batch;
      return batch;
    }
    if (deadline.HasPassed()) {
      LeasedBatch empty;
      empty.cause = "waiting_for_groups";
      return empty;
    }
    changed_.WaitUntil(&mutex_, deadline);
  }
}

absl::StatusOr<v1::LedgerCounts> FakeQueueTrainerClient::Commit(const v1::CommitRequest& request, absl::Duration) {
  MutexLock lock(&mutex_);
  if (absl::Status status = CheckCall("Commit", request.lineage()); !status.ok()) return status;
  const bool repeated =
      committed_.lineage() == request.lineage() && committed_.version() == request.version() && request.version() > 0;
  if (repeated && committed_digest_ != request.digest()) {
    return absl::FailedPreconditionError(absl::StrCat("version ", request.version(), " was committed with digest ",
                                                      committed_digest_, ", not ", request.digest()));
  }
  if (!repeated && !request.initial() && request.version() != committed_.version() + 1) {
    return absl::FailedPreconditionError(
        absl::StrCat("version ", request.version(), " does not follow version ", committed_.version()));
  }
  if (repeated) return counts_;
  committed_.set_lineage(request.lineage());
  committed_.set_version(request.version());
  committed_digest_ = request.digest();
  commits_.push_back(request);
  return counts_;
}

absl::StatusOr<v1::LedgerCounts> FakeQueueTrainerClient::Settle(uint64_t lineage, uint64_t step, absl::Duration) {
  MutexLock lock(&mutex_);
  if (absl::Status status = CheckCall("Settle", lineage); !status.ok()) return status;
  if (step > (settled_.empty() ? 0 : settled_.back())) settled_.push_back(step);
  return counts_;
}

absl::StatusOr<std::string> FakeQueueTrainerClient::LedgerSnapshot(uint64_t lineage, absl::Duration) {
  MutexLock lock(&mutex_);
  if (absl::Status status = CheckCall("LedgerSnapshot", lineage); !status.ok()) return status;
  return snapshot_;
}

absl::Status FakeQueueTrainerClient::RetireGroup(uint64_t lineage, uint64_t step, uint64_t ticket,
                                                 const std::string& reason, absl::Duration) {
  MutexLock lock(&mutex_);
  if (absl::Status status = CheckCall("RetireGroup", lineage); !status.ok()) return status;
  retired_.push_back({step, ticket, reason});
  return absl::OkStatus();
}

absl::Status FakeQueueTrainerClient::FenceWorker(uint64_t lineage, const v1::WorkerIdentity& identity,
                                                 const std::string& reason, absl::Duration) {
  MutexLock lock(&mutex_);
  if (absl::Status status = CheckCall("FenceWorker", lineage); !status.ok()) return status;
  fenced_.push_back({identity, reason});
  return absl::OkStatus();
}

absl::StatusOr<v1::StatusResponse> FakeQueueTrainerClient::GetStatus(absl::Duration) {
  MutexLock lock(&mutex_);
  if (absl::Status status = TakeFailure(failures_, "GetStatus"); !status.ok()) return status;
  v1::StatusResponse status = status_;
  *status.mutable_counts() = counts_;
  *status.mutable_committed() = committed_;
  return status;
}

void FakeQueueTrainerClient::AddBatch(uint64_t step, LeasedBatch batch) {
  MutexLock lock(&mutex_);
  batches_.try_emplace(step, std::move(batch));
  changed_.NotifyAll();
}

void FakeQueueTrainerClient::SetBatchSource(BatchSource source) {
  MutexLock lock(&mutex_);
  source_ = std::move(source);
  changed_.NotifyAll();
}

void FakeQueueTrainerClient::ReplaceBatch(uint64_t step, LeasedBatch batch) {
  MutexLock lock(&mutex_);
  batches_[step] = std::move(batch);
  changed_.NotifyAll();
}

void FakeQueueTrainerClient::SetCounts(const v1::LedgerCounts& counts) {
  MutexLock lock(&mutex_);
  counts_ = counts;
}

void FakeQueueTrainerClient::SetStatus(const v1::StatusResponse& status) {
  MutexLock lock(&mutex_);
  status_ = status;
}

void FakeQueueTrainerClient::SetSnapshot(const std::string& snapshot) {
  MutexLock lock(&mutex_);
  snapshot_ = snapshot;
}

void FakeQueueTrainerClient::FailNext(const std::string& method, absl::Status status) {
  MutexLock lock(&mutex_);
  failures_[method].push_back(std::move(status));
  changed_.NotifyAll();
}

uint64_t FakeQueueTrainerClient::lineage() const {
  MutexLock lock(&mutex_);
  return lineage_;
}

std::vector<v1::CommitRequest> FakeQueueTrainerClient::commits() const {
  MutexLock lock(&mutex_);
  return commits_;
}

std::vector<FakeQueueTrainerClient::RestoreCall> FakeQueueTrainerClient::restores() const {
  MutexLock lock(&mutex_);
  return restores_;
}

std::vector<uint64_t> FakeQueueTrainerClient::settled() const {
  MutexLock lock(&mutex_);
  return settled_;
}

std::vector<FakeQueueTrainerClient::RetireCall> FakeQueueTrainerClient::retired() const {
  MutexLock lock(&mutex_);
  return retired_;
}

std::vector<FakeQueueTrainerClient::FenceCall> FakeQueueTrainerClient::fenced() const {
  MutexLock lock(&mutex_);
  return fenced_;
}

}  // namespace leeway
