#include "queue/queue_frontend.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/logging.h"
#include "base/status_macros.h"

namespace leeway {
namespace {

void CallAll(std::vector<std::function<void()>>* callbacks) {
  for (std::function<void()>& callback : *callbacks) callback();
}

absl::Status ShuttingDown() { return absl::UnavailableError("the queue is shutting down"); }

// An empty answer that will not get better by waiting: the caller has to do something else first.
bool IsFinal(const std::string& cause) {
  return cause == "draining" || cause == "run_complete" || cause == "queue_needs_checkpoint";
}

}  // namespace

absl::StatusOr<uint64_t> ReadLastLineage(FileSystem* file_system, const std::string& lineage_path) {
  if (!file_system->Exists(lineage_path)) return 0;
  LEEWAY_ASSIGN_OR_RETURN(const std::string text, file_system->ReadFile(lineage_path));
  uint64_t lineage = 0;
  if (!absl::SimpleAtoi(text, &lineage)) {
    return absl::DataLossError(absl::StrCat(lineage_path, ": expected the number of the newest lineage, found \"",
                                            text.substr(0, 40), "\"; a new run directory starts at 1"));
  }
  return lineage;
}

QueueFrontend::QueueFrontend(QueueFrontendOptions options, std::unique_ptr<QueueCore> core, Quarantine* quarantine,
                             FileSystem* file_system, const Clock* clock, std::function<void()> on_due_earlier)
    : options_(std::move(options)),
      quarantine_(quarantine),
      file_system_(file_system),
      clock_(clock),
      on_due_earlier_(std::move(on_due_earlier)),
      core_(std::move(core)) {
  MutexLock lock(&mutex_);
  announced_due_ = NextDueLocked();
}

// ---- the lock, and what follows it ---------------------------------------------------------------------------------

template <typename Section>
auto QueueFrontend::WithCore(Section section) {
  Callbacks callbacks;
  auto result = [&] {
    MutexLock lock(&mutex_);
    // Read under the lock: the core's time must not go backwards.
    const MonotonicTime now = clock_->Now();
    auto value = section(core_.get(), now);
    Settled(now, &callbacks);
    return value;
  }();
  CallAll(&callbacks);
  return result;
}

void QueueFrontend::Settled(MonotonicTime now, Callbacks* callbacks) {
  if (core_->changes() != attempted_changes_) AttemptAll(now, callbacks);
  const MonotonicTime due = NextDueLocked();
  if (due < announced_due_) {
    announced_due_ = due;
    callbacks->push_back(on_due_earlier_);
  }
}

void QueueFrontend::AttemptAll(MonotonicTime now, Callbacks* callbacks) {
  // What one wait is given (or asks for: a sync step admits its groups) can help or hurt another: until nothing moves.
  // Every further round needs a wait answered or a step asked for the first time, so there are few.
  const size_t max_rounds = waits_.size() + 2;
  for (size_t round = 0; round < max_rounds; ++round) {
    const uint64_t changes = core_->changes();
    for (auto it = waits_.begin(); it != waits_.end();) {
      it = Attempt(&*it, it->deadline <= now, now, callbacks) ? waits_.erase(it) : std::next(it);
    }
    attempted_changes_ = changes;
    if (core_->changes() == changes) return;
  }
}

MonotonicTime QueueFrontend::NextDueLocked() const {
  MonotonicTime due = core_->NextEvent();
  for (const Wait& wait : waits_) due = std::min(due, wait.deadline);
  return due;
}

MonotonicTime QueueFrontend::NextDue() {
  MutexLock lock(&mutex_);
  announced_due_ = NextDueLocked();
  return announced_due_;
}

void QueueFrontend::RunDue() {
  Callbacks callbacks;
  std::vector<std::string> events;
  {
    MutexLock lock(&mutex_);
    const MonotonicTime now = clock_->Now();
    events = core_->Tick(now);
    AttemptAll(now, &callbacks);
    announced_due_ = NextDueLocked();
  }
  for (const std::string& event : events) LEEWAY_LOG_INFO("{}", event);
  CallAll(&callbacks);
}

void QueueFrontend::ForgiveSilence(absl::Duration pause) {
  MutexLock lock(&mutex_);
  core_->ForgiveSilence(pause, clock_->Now());
}

void QueueFrontend::Shutdown() {
  std::list<Wait> waits;
  absl::flat_hash_map<uint64_t, std::function<void()>> hooks;
  {
    MutexLock lock(&mutex_);
    shut_down_ = true;
    waits.swap(waits_);
    hooks.swap(shutdown_hooks_);
  }
  for (Wait& wait : waits) {
    wait.tickets_done ? wait.tickets_done(ShuttingDown()) : wait.lease_done(ShuttingDown());
  }
  for (const auto& [id, end] : hooks) end();
}

uint64_t QueueFrontend::AddShutdownHook(std::function<void()> end) {
  {
    MutexLock lock(&mutex_);
    if (!shut_down_) {
      shutdown_hooks_[next_shutdown_hook_] = std::move(end);
      return next_shutdown_hook_++;
    }
  }
  end();
  return 0;
}

void QueueFrontend::RemoveShutdownHook(uint64_t id) {
  MutexLock lock(&mutex_);
  shutdown_hooks_.erase(id);
}

// ---- long polls ----------------------------------------------------------------------------------------------------

QueueFrontend::WaitId QueueFrontend::AcquireTickets(const v1::AcquireTicketsRequest& request, TicketsDone done) {
  Wait wait;
  wait.tickets = request;
  wait.tickets_done = std::move(done);
  return StartWait(std::move(wait), request.wait_ms());
}

QueueFrontend::WaitId QueueFrontend::LeaseBatch(const v1::LeaseBatchRequest& request, LeaseDone done) {
  Wait wait;
  wait.lease = request;
  wait.lease_done = std::move(done);
  return StartWait(std::move(wait), request.wait_ms());
}

QueueFrontend::WaitId QueueFrontend::StartWait(Wait wait, uint64_t wait_ms) {
  const absl::Duration limit =
      std::min(absl::Milliseconds(static_cast<int64_t>(std::min<uint64_t>(wait_ms, INT32_MAX))), options_.max_wait);
  Callbacks callbacks;
  WaitId id = 0;
  {
    MutexLock lock(&mutex_);
    const MonotonicTime now = clock_->Now();
    id = wait.id = next_wait_++;
    wait.deadline = now + limit;
    absl::Status begun;
    if (wait.tickets_done && !shut_down_) begun = core_->BeginAcquire(wait.tickets, now);
    // Those that came before are served first.
    if (core_->changes() != attempted_changes_) AttemptAll(now, &callbacks);
    if (!begun.ok()) {
      callbacks.push_back([done = std::move(wait.tickets_done), begun] { done(begun); });
    } else if (!Attempt(&wait, wait.deadline <= now, now, &callbacks))
      waits_.push_back(std::move(wait));
    Settled(now, &callbacks);
  }
  CallAll(&callbacks);
  return id;
}

bool QueueFrontend::Cancel(WaitId id) {
  std::list<Wait> cancelled;
  MutexLock lock(&mutex_);
  for (auto it = waits_.begin(); it != waits_.end(); ++it) {
    if (it->id != id) continue;
    cancelled.splice(cancelled.begin(), waits_, it);
    return true;
  }
  return false;
}

bool QueueFrontend::Attempt(Wait* wait, bool is_last, MonotonicTime now, Callbacks* callbacks) {
  if (wait->tickets_done) {
    absl::StatusOr<v1::AcquireTicketsResponse> answer = ShuttingDown();
    if (!shut_down_) {
      answer = core_->AcquireTickets(wait->tickets.identity(), wait->tickets.sequence(), now);
    }
    if (answer.ok() && answer->tickets_size() == 0 && !is_last && !IsFinal(answer->cause())) return false;
    callbacks->push_back([done = std::move(wait->tickets_done), answer = std::move(answer)] { done(answer); });
    return true;
  }
  absl::StatusOr<LeaseResult> answer = ShuttingDown();
  if (!shut_down_) answer = core_->Lease(wait->lease.lineage(), wait->lease.step(), now);
  if (answer.ok() && answer->groups.empty() && !is_last && !IsFinal(answer->cause)) return false;
  callbacks->push_back([done = std::move(wait->lease_done), answer = std::move(answer)] { done(answer); });
  return true;
}

// ---- calls that answer at once -------------------------------------------------------------------------------------

absl::StatusOr<v1::RegisterResponse> QueueFrontend::Register(const v1::RegisterRequest& request) {
  if (!IsWorkerName(request.name())) {
    return absl::InvalidArgumentError(
        absl::StrCat("name: \"", CutText(request.name()), "\" is not 1 to 64 letters, digits, '-', '_', '.', ':'"));
  }
  if (request.run_fingerprint() != options_.run_fingerprint) {
    return absl::FailedPreconditionError(
        absl::StrCat("worker ", request.name(), " was started with another configuration: its fingerprint is \"",
                     CutText(request.run_fingerprint()), "\", the queue's is \"", options_.run_fingerprint, "\""));
  }
  v1::RegisterResponse response;
  *response.mutable_identity() = WithCore([&](QueueCore* core, MonotonicTime now) LEEWAY_NO_THREAD_SAFETY_ANALYSIS {
    const v1::WorkerIdentity identity = core->RegisterWorker(request.name(), now);
    names_[identity.producer_id()] = request.name();
    return identity;
  });
  response.set_heartbeat_interval_ms(absl::ToInt64Milliseconds(options_.heartbeat_interval));
  response.set_lease_ms(absl::ToInt64Milliseconds(options_.worker_lease));
  response.set_max_chunk_bytes(options_.max_chunk_bytes);
  response.set_max_trajectory_bytes(options_.max_trajectory_bytes);
  LEEWAY_LOG_INFO("worker {} registered as producer {} epoch {}", request.name(), response.identity().producer_id(),
                  response.identity().epoch());
  return response;
}

absl::StatusOr<v1::HeartbeatResponse> QueueFrontend::Heartbeat(const v1::HeartbeatRequest& request) {
  return WithCore([&](QueueCore* core, MonotonicTime now) { return core->Heartbeat(request, now); });
}

absl::StatusOr<v1::AllocateLineageResponse> QueueFrontend::AllocateLineage(const v1::AllocateLineageRequest& request) {
  MutexLock lineage_lock(&lineage_mutex_);
  v1::AllocateLineageResponse response = WithCore([&](QueueCore* core, MonotonicTime) {
    v1::AllocateLineageResponse allocated;
    v1::WeightsVersion committed;
    allocated.set_lineage(core->AllocateLineage(&committed));
    if (committed.version() != 0) *allocated.mutable_committed() = committed;
    return allocated;
  });
  if (!options_.lineage_path.empty()) {
    LEEWAY_RETURN_IF_ERROR(
        file_system_->WriteFileAtomically(options_.lineage_path, absl::StrCat(response.lineage(), "\n")));
  }
  LEEWAY_LOG_INFO("trainer {} has lineage {}", CutText(request.trainer()), response.lineage());
  return response;
}

absl::StatusOr<v1::RestoreResponse> QueueFrontend::Restore(const v1::RestoreRequest& request) {
  return WithCore([&](QueueCore* core, MonotonicTime now) -> absl::StatusOr<v1::RestoreResponse> {
    LEEWAY_RETURN_IF_ERROR(core->Restore(request.lineage(), request.step(), request.ledger_snapshot(), now));
    v1::RestoreResponse response;
    *response.mutable_counts() = core->counts();
    return response;
  });
}

absl::StatusOr<v1::CommitResponse> QueueFrontend::Commit(const v1::CommitRequest& request) {
  return WithCore([&](QueueCore* core, MonotonicTime now) -> absl::StatusOr<v1::CommitResponse> {
    LEEWAY_RETURN_IF_ERROR(core->Commit(request, now));
    v1::CommitResponse response;
    *response.mutable_counts() = core->counts();
    return response;
  });
}

absl::StatusOr<v1::SettleResponse> QueueFrontend::Settle(const v1::SettleRequest& request) {
  return WithCore([&](QueueCore* core, MonotonicTime) -> absl::StatusOr<v1::SettleResponse> {
    LEEWAY_RETURN_IF_ERROR(core->Settle(request.lineage(), request.step()));
    v1::SettleResponse response;
    *response.mutable_counts() = core->counts();
    return response;
  });
}

absl::StatusOr<v1::LedgerSnapshotResponse> QueueFrontend::LedgerSnapshot(const v1::LedgerSnapshotRequest& request) {
  return WithCore([&](QueueCore* core, MonotonicTime) -> absl::StatusOr<v1::LedgerSnapshotResponse> {
    v1::LedgerSnapshotResponse response;
    LEEWAY_ASSIGN_OR_RETURN(*response.mutable_snapshot(), core->Snapshot(request.lineage()));
    return response;
  });
}

absl::StatusOr<v1::RetireGroupResponse> QueueFrontend::RetireGroup(const v1::RetireGroupRequest& request) {
  if (!IsFailureCode(request.reason())) {
    return absl::InvalidArgumentError(
        absl::StrCat("reason: \"", CutText(request.reason()), "\" is not 1 to 64 of a-z, 0-9 and '_'"));
  }
  LEEWAY_ASSIGN_OR_RETURN(const std::vector<Payload> payloads, WithCore([&](QueueCore* core, MonotonicTime) {
                            return core->RetireGroup(request.lineage(), request.step(), request.ticket(),
                                                     request.reason());
                          }));
  for (const Payload& payload : payloads) {
    quarantine_->Keep(absl::StrCat("group retired: ", request.reason()), "trainer", *payload);
  }
  LEEWAY_LOG_WARNING("group {} was retired in step {}: {}", request.ticket(), request.step(), request.reason());
  return v1::RetireGroupResponse();
}

absl::StatusOr<v1::FenceWorkerResponse> QueueFrontend::FenceWorker(const v1::FenceWorkerRequest& request) {
  const std::string reason = CutText(request.reason());
  LEEWAY_RETURN_IF_ERROR(WithCore([&](QueueCore* core, MonotonicTime now) {
    return core->FenceWorker(request.lineage(), request.identity(), reason, now);
  }));
  LEEWAY_LOG_WARNING("producer {} epoch {} was fenced by the trainer: {}", request.identity().producer_id(),
                     request.identity().epoch(), reason);
  return v1::FenceWorkerResponse();
}

v1::StatusResponse QueueFrontend::Status() {
  v1::StatusResponse response;
  MutexLock lock(&mutex_);
  core_->FillStatus(clock_->Now(), &response);
  return response;
}

v1::DrainResponse QueueFrontend::Drain() {
  return WithCore([&](QueueCore* core, MonotonicTime now) {
    core->Drain(now);
    v1::DrainResponse response;
    *response.mutable_counts() = core->counts();
    return response;
  });
}

// ---- pushes --------------------------------------------------------------------------------------------------------

QueueFrontend::PushSession::PushSession(QueueFrontend* frontend)
    : frontend_(frontend), assembler_(frontend->options_.max_trajectory_bytes, frontend->options_.max_chunk_bytes) {}

std::unique_ptr<QueueFrontend::PushSession> QueueFrontend::NewPushSession() {
  return std::unique_ptr<PushSession>(new PushSession(this));
}

absl::Status QueueFrontend::PushSession::Handle(v1::PushRequest* request, v1::PushResponse* response) {
  LEEWAY_RETURN_IF_ERROR(CheckIdentity(request->identity()));
  std::vector<Arrived> arrived;
  // What arrived whole before a broken chunk is still delivered and answered.
  absl::Status status = Collect(request, &arrived);

  std::vector<Refused> refused;
  Callbacks callbacks;
  if (!arrived.empty()) {
    MutexLock lock(&frontend_->mutex_);
    if (absl::Status delivered = Deliver(&arrived, response, &refused); !delivered.ok()) status = delivered;
    frontend_->Settled(frontend_->clock_->Now(), &callbacks);
  }
  CallAll(&callbacks);
  for (const Refused& one : refused) frontend_->quarantine_->Keep(one.reason, name_, one.bytes);
  return status;
}

absl::Status QueueFrontend::PushSession::CheckIdentity(const v1::WorkerIdentity& identity) {
  if (identity_.producer_id() == 0) {
    identity_ = identity;
    MutexLock lock(&frontend_->mutex_);
    LEEWAY_RETURN_IF_ERROR(frontend_->core_->CheckIdentity(identity));
    name_ = frontend_->names_[identity.producer_id()];
    return absl::OkStatus();
  }
  if (identity.producer_id() == identity_.producer_id() && identity.epoch() == identity_.epoch()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("identity changed on the way from producer ", identity_.producer_id(),
                                                 " epoch ", identity_.epoch(), " to ", identity.producer_id(),
                                                 " epoch ", identity.epoch(), "; a new identity opens a new stream"));
}

absl::Status QueueFrontend::PushSession::Collect(v1::PushRequest* request, std::vector<Arrived>* arrived) {
  arrived->reserve(request->chunks_size());
  for (v1::PushChunk& chunk : *request->mutable_chunks()) {
    LEEWAY_ASSIGN_OR_RETURN(const bool complete,
                            assembler_.Add(chunk.sequence(), chunk.total_bytes(), chunk.data(), chunk.last()));
    if (complete) arrived->push_back({chunk.sequence(), Inspect(assembler_.Take(chunk.mutable_data()))});
  }
  return absl::OkStatus();
}

PushedTrajectory QueueFrontend::PushSession::Inspect(std::string payload) const {
  PushedTrajectory pushed;
  v1::Trajectory trajectory;
  if (trajectory.ParseFromString(payload)) {
    const std::optional<Rejection> rejection = ValidateTrajectory(trajectory, frontend_->options_.limits);
    if (rejection.has_value()) pushed.reject_reason = rejection->ToString();
    pushed.summary = Summarize(trajectory);
  } else {
    pushed.reject_reason = "malformed: the bytes are no Trajectory";
  }
  pushed.payload = std::move(payload);
  return pushed;
}

absl::Status QueueFrontend::PushSession::Deliver(std::vector<Arrived>* arrived, v1::PushResponse* response,
                                                 std::vector<Refused>* refused) {
  QueueCore* const core = frontend_->core_.get();
  const MonotonicTime now = frontend_->clock_->Now();
  for (Arrived& one : *arrived) {
    if (full_sequence_ != 0 && one.sequence > full_sequence_) {
      v1::PushAnswer* answer = response->add_answers();
      answer->set_sequence(one.sequence);
      answer->set_result(v1::FULL);
      answer->set_reason(absl::StrCat("sequence ", full_sequence_, " comes first"));
      answer->set_retry_after_ms(full_retry_after_ms_);
      continue;
    }
    if (std::optional<v1::PushAnswer> answer = core->RememberedAnswer(identity_, one.sequence)) {
      *response->add_answers() = *std::move(answer);
      continue;
    }
    LEEWAY_ASSIGN_OR_RETURN(v1::PushAnswer answer, core->Push(identity_, one.sequence, &one.trajectory, now));
    full_sequence_ = answer.result() == v1::FULL ? one.sequence : 0;
    full_retry_after_ms_ = answer.retry_after_ms();
    if (answer.result() == v1::REJECTED) {
      refused->push_back({answer.reason(), std::move(one.trajectory.payload)});
    }
    *response->add_answers() = std::move(answer);
  }
  return absl::OkStatus();
}

}  // namespace leeway
