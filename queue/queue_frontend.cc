#include "queue/queue_frontend.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/failpoint.h"
#include "base/logging.h"
#include "base/status_macros.h"
#include "queue/door/inspection.h"

namespace leeway {
namespace {

// Gives `answer`, or why it can not be given.
template <typename Response>
DurableReplies::Reply ReplyWith(std::function<void(absl::StatusOr<Response>)> done, absl::StatusOr<Response> answer) {
  return [done = std::move(done), answer = std::move(answer)](const absl::Status& status) mutable {
    status.ok() ? done(std::move(answer)) : done(status);
  };
}

// The counts as a response of type `Response`.
template <typename Response>
Response WithCounts(const QueueCore& core) {
  Response response;
  *response.mutable_counts() = core.counts();
  return response;
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
      core_(std::move(core)),
      store_(core_->store()),
      replies_(std::make_shared<DurableReplies>()) {
  MutexLock lock(&mutex_);
  announced_due_ = NextDueLocked();
}

// ---- the lock, and what follows it ---------------------------------------------------------------------------------

template <typename Result, typename Section>
void QueueFrontend::WithCore(Section section, Done<Result> done) {
  Outcome outcome;
  {
    MutexLock lock(&mutex_);
    // Read under the lock: the core's time must not go backwards.
    const MonotonicTime now = clock_->Now();
    outcome.replies.push_back(ReplyWith<Result>(std::move(done), section(core_.get(), now)));
    Settled(now, &outcome);
  }
  Release(std::move(outcome));
}

void QueueFrontend::Settled(MonotonicTime now, Outcome* outcome) {
  if (core_->changes() != attempted_changes_) AttemptAll(now, outcome);
  const MonotonicTime due = NextDueLocked();
  if (due < announced_due_) {
    announced_due_ = due;
    outcome->is_due_earlier = true;
  }
  LEEWAY_FAILPOINT("queue_before_write");
  outcome->number = core_->WriteChanges();
  LEEWAY_FAILPOINT("queue_after_write");
}

void QueueFrontend::Release(Outcome outcome) {
  if (outcome.is_due_earlier) on_due_earlier_();
  if (outcome.replies.empty()) return;
  if (!store_->is_durable()) {
    for (DurableReplies::Reply& reply : outcome.replies) reply(absl::OkStatus());
    return;
  }
  const uint64_t number = outcome.number;
  for (DurableReplies::Reply& reply : outcome.replies) replies_->Add(number, std::move(reply));
  store_->WhenDurable(number, [replies = replies_, number] {
    LEEWAY_FAILPOINT("queue_before_answer");
    replies->OnDurable(number);
    LEEWAY_FAILPOINT("queue_after_answer");
  });
}

void QueueFrontend::AttemptAll(MonotonicTime now, Outcome* outcome) {
  // What one wait is given (or asks for: a sync step admits its groups) can help or hurt another: until nothing moves.
  // Every further round needs a wait answered or a step asked for the first time, so there are few.
  const size_t max_rounds = waits_.size() + 2;
  for (size_t round = 0; round < max_rounds; ++round) {
    const uint64_t changes = core_->changes();
    for (auto it = waits_.begin(); it != waits_.end();) {
      it = Attempt(&*it, it->deadline <= now, now, outcome) ? waits_.erase(it) : std::next(it);
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
  Outcome outcome;
  std::vector<std::string> events;
  {
    MutexLock lock(&mutex_);
    const MonotonicTime now = clock_->Now();
    events = core_->Tick(now);
    AttemptAll(now, &outcome);
    Settled(now, &outcome);
    announced_due_ = NextDueLocked();
  }
  for (const std::string& event : events) LEEWAY_LOG_INFO("{}", event);
  Release(std::move(outcome));
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
  replies_->Shutdown();
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
  Outcome outcome;
  WaitId id = 0;
  {
    MutexLock lock(&mutex_);
    const MonotonicTime now = clock_->Now();
    id = wait.id = next_wait_++;
    wait.deadline = now + limit;
    absl::Status begun;
    if (wait.tickets_done && !shut_down_) begun = core_->BeginAcquire(wait.tickets, now);
    // Those that came before are served first.
    if (core_->changes() != attempted_changes_) AttemptAll(now, &outcome);
    if (!begun.ok()) {
      outcome.replies.push_back(ReplyWith<v1::AcquireTicketsResponse>(std::move(wait.tickets_done), begun));
    } else if (!Attempt(&wait, wait.deadline <= now, now, &outcome)) {
      waits_.push_back(std::move(wait));
    }
    Settled(now, &outcome);
  }
  Release(std::move(outcome));
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

bool QueueFrontend::Attempt(Wait* wait, bool is_last, MonotonicTime now, Outcome* outcome) {
  if (wait->tickets_done) {
    absl::StatusOr<v1::AcquireTicketsResponse> answer = ShuttingDown();
    if (!shut_down_) {
      answer = core_->AcquireTickets(wait->tickets.identity(), wait->tickets.sequence(), now);
    }
    if (answer.ok() && answer->tickets_size() == 0 && !is_last && !IsFinal(answer->cause())) return false;
    if (answer.ok() && answer->tickets_size() > 0) LEEWAY_FAILPOINT("queue_after_issue");
    outcome->replies.push_back(ReplyWith(std::move(wait->tickets_done), std::move(answer)));
    return true;
  }
  absl::StatusOr<LeaseResult> answer = ShuttingDown();
  if (!shut_down_) answer = core_->Lease(wait->lease.lineage(), wait->lease.step(), now);
  if (answer.ok() && answer->groups.empty() && !is_last && !IsFinal(answer->cause)) return false;
  if (answer.ok() && !answer->groups.empty()) LEEWAY_FAILPOINT("queue_after_lease");
  outcome->replies.push_back(ReplyWith(std::move(wait->lease_done), std::move(answer)));
  return true;
}

// ---- calls that answer as soon as they are durable -----------------------------------------------------------------

void QueueFrontend::Register(const v1::RegisterRequest& request, Done<v1::RegisterResponse> done) {
  if (!IsWorkerName(request.name())) {
    return done(absl::InvalidArgumentError(
        absl::StrCat("name: \"", CutText(request.name()), "\" is not 1 to 64 letters, digits, '-', '_', '.', ':'")));
  }
  if (request.run_fingerprint() != options_.run_fingerprint) {
    return done(absl::FailedPreconditionError(
        absl::StrCat("worker ", request.name(), " was started with another configuration: its fingerprint is \"",
                     CutText(request.run_fingerprint()), "\", the queue's is \"", options_.run_fingerprint, "\"")));
  }
  const auto section = [&](QueueCore* core, MonotonicTime now) {
    v1::RegisterResponse response;
    *response.mutable_identity() = core->RegisterWorker(request.name(), now);
    LEEWAY_FAILPOINT("queue_after_register");
    response.set_heartbeat_interval_ms(absl::ToInt64Milliseconds(options_.heartbeat_interval));
    response.set_lease_ms(absl::ToInt64Milliseconds(options_.worker_lease));
    response.set_max_chunk_bytes(options_.max_chunk_bytes);
    response.set_max_trajectory_bytes(options_.max_trajectory_bytes);
    response.set_max_unanswered_pushes(options_.max_unanswered_pushes);
    response.set_max_unanswered_bytes(options_.max_unanswered_bytes);
    LEEWAY_LOG_INFO("worker {} registered as producer {} epoch {}", request.name(), response.identity().producer_id(),
                    response.identity().epoch());
    return response;
  };
  WithCore<v1::RegisterResponse>(section, std::move(done));
}

void QueueFrontend::Heartbeat(const v1::HeartbeatRequest& request, Done<v1::HeartbeatResponse> done) {
  // As a sign of life it promises nothing. So it waits for the commit that it tells of, and for the rest only when it
  // tells a worker to give something up: a disk that fails for a while must not look like a dead queue.
  Outcome outcome;
  absl::StatusOr<v1::HeartbeatResponse> response = absl::UnknownError("");
  uint64_t commit_write = 0;
  {
    MutexLock lock(&mutex_);
    const MonotonicTime now = clock_->Now();
    response = core_->Heartbeat(request, now);
    Settled(now, &outcome);
    commit_write = core_->commit_write();
  }
  const bool gives_up =
      response.ok() && (response->abandon_size() > 0 || response->run_complete() || response->draining());
  const bool may_go = !store_->is_durable() || replies_->IsDurable(gives_up ? outcome.number : commit_write);
  if (!may_go) outcome.replies.push_back(ReplyWith<v1::HeartbeatResponse>(std::move(done), std::move(response)));
  Release(std::move(outcome));
  if (may_go) done(std::move(response));
}

void QueueFrontend::AllocateLineage(const v1::AllocateLineageRequest& request, Done<v1::AllocateLineageResponse> done) {
  MutexLock lineage_lock(&lineage_mutex_);
  v1::AllocateLineageResponse response;
  Outcome outcome;
  {
    MutexLock lock(&mutex_);
    v1::WeightsVersion committed;
    response.set_lineage(core_->AllocateLineage(&committed));
    LEEWAY_FAILPOINT("queue_after_allocate");
    if (committed.version() != 0) *response.mutable_committed() = committed;
    Settled(clock_->Now(), &outcome);
  }
  // In a file as well: the lineage must survive the loss of the store.
  absl::Status written;
  if (!options_.lineage_path.empty()) {
    written = file_system_->WriteFileAtomically(options_.lineage_path, absl::StrCat(response.lineage(), "\n"));
  }
  LEEWAY_LOG_INFO("trainer {} has lineage {}", CutText(request.trainer()), response.lineage());
  absl::StatusOr<v1::AllocateLineageResponse> answer = response;
  if (!written.ok()) answer = written;
  outcome.replies.push_back(ReplyWith(std::move(done), std::move(answer)));
  Release(std::move(outcome));
}

void QueueFrontend::Restore(const v1::RestoreRequest& request, Done<v1::RestoreResponse> done) {
  const auto section = [&](QueueCore* core, MonotonicTime now) -> absl::StatusOr<v1::RestoreResponse> {
    const uint64_t settled = core->settled_step();
    LEEWAY_RETURN_IF_ERROR(core->Restore(request.lineage(), request.step(), request.ledger_snapshot(), now));
    if (request.step() < settled) {
      LEEWAY_LOG_ERROR(
          "the trainer goes back to the end of step {}, although checkpoints had settled steps to {}: "
          "checkpoints are missing, and those steps are trained again",
          request.step(), settled);
    }
    return WithCounts<v1::RestoreResponse>(*core);
  };
  WithCore<v1::RestoreResponse>(section, std::move(done));
}

void QueueFrontend::Commit(const v1::CommitRequest& request, Done<v1::CommitResponse> done) {
  const auto section = [&](QueueCore* core, MonotonicTime now) -> absl::StatusOr<v1::CommitResponse> {
    LEEWAY_RETURN_IF_ERROR(core->Commit(request, now));
    LEEWAY_FAILPOINT("queue_after_commit");
    return WithCounts<v1::CommitResponse>(*core);
  };
  WithCore<v1::CommitResponse>(section, std::move(done));
}

void QueueFrontend::Settle(const v1::SettleRequest& request, Done<v1::SettleResponse> done) {
  const auto section = [&](QueueCore* core, MonotonicTime) -> absl::StatusOr<v1::SettleResponse> {
    LEEWAY_RETURN_IF_ERROR(core->Settle(request.lineage(), request.step()));
    LEEWAY_FAILPOINT("queue_after_settle");
    return WithCounts<v1::SettleResponse>(*core);
  };
  WithCore<v1::SettleResponse>(section, std::move(done));
}

void QueueFrontend::LedgerSnapshot(const v1::LedgerSnapshotRequest& request, Done<v1::LedgerSnapshotResponse> done) {
  const auto section = [&](QueueCore* core, MonotonicTime) -> absl::StatusOr<v1::LedgerSnapshotResponse> {
    v1::LedgerSnapshotResponse response;
    LEEWAY_ASSIGN_OR_RETURN(*response.mutable_snapshot(), core->Snapshot(request.lineage()));
    return response;
  };
  WithCore<v1::LedgerSnapshotResponse>(section, std::move(done));
}

void QueueFrontend::RetireGroup(const v1::RetireGroupRequest& request, Done<v1::RetireGroupResponse> done) {
  if (!IsFailureCode(request.reason())) {
    return done(absl::InvalidArgumentError(
        absl::StrCat("reason: \"", CutText(request.reason()), "\" is not 1 to 64 of a-z, 0-9 and '_'")));
  }
  using Payloads = std::vector<std::shared_ptr<const StoredPayload>>;
  const auto section = [&](QueueCore* core, MonotonicTime) {
    return core->RetireGroup(request.lineage(), request.step(), request.ticket(), request.reason());
  };
  WithCore<Payloads>(section, [this, request, done = std::move(done)](absl::StatusOr<Payloads> payloads) {
    if (!payloads.ok()) return done(payloads.status());
    for (const auto& payload : *payloads) {
      const absl::StatusOr<Payload> bytes = payload->Load();
      quarantine_->Keep(absl::StrCat("group retired: ", request.reason()), "trainer",
                        bytes.ok() ? **bytes : bytes.status().ToString());
    }
    LEEWAY_LOG_WARNING("group {} was retired in step {}: {}", request.ticket(), request.step(), request.reason());
    done(v1::RetireGroupResponse());
  });
}

void QueueFrontend::FenceWorker(const v1::FenceWorkerRequest& request, Done<v1::FenceWorkerResponse> done) {
  const std::string reason = CutText(request.reason());
  const auto section = [&](QueueCore* core, MonotonicTime now) -> absl::StatusOr<v1::FenceWorkerResponse> {
    LEEWAY_RETURN_IF_ERROR(core->FenceWorker(request.lineage(), request.identity(), reason, now));
    LEEWAY_LOG_WARNING("producer {} epoch {} was fenced by the trainer: {}", request.identity().producer_id(),
                       request.identity().epoch(), reason);
    return v1::FenceWorkerResponse();
  };
  WithCore<v1::FenceWorkerResponse>(section, std::move(done));
}

void QueueFrontend::OnDamagedGroup(uint64_t ticket, uint32_t issue, const absl::Status& why) {
  LEEWAY_LOG_ERROR("group {} is issued again: {}", ticket, std::string(why.message()));
  Outcome outcome;
  {
    MutexLock lock(&mutex_);
    core_->RewindDamaged(ticket, issue);
    Settled(clock_->Now(), &outcome);
  }
  Release(std::move(outcome));
}

v1::StatusResponse QueueFrontend::Status() {
  v1::StatusResponse response;
  {
    MutexLock lock(&latency_mutex_);
    SaveHistogram(push_answer_, &(*response.mutable_histograms())["queue/push_answer_seconds"]);
  }
  MutexLock lock(&mutex_);
  core_->FillStatus(clock_->Now(), &response);
  return response;
}

void QueueFrontend::OnPushesAnswered(MonotonicTime arrived, int count) {
  const double seconds = absl::ToDoubleSeconds(clock_->Now() - arrived);
  MutexLock lock(&latency_mutex_);
  push_answer_.Add(seconds, static_cast<uint64_t>(count));
}

void QueueFrontend::Drain(Done<v1::DrainResponse> done) {
  const auto section = [](QueueCore* core, MonotonicTime now) {
    core->Drain(now);
    return WithCounts<v1::DrainResponse>(*core);
  };
  WithCore<v1::DrainResponse>(section, std::move(done));
}

void QueueFrontend::AfterAnswers(std::function<void()> done) {
  Outcome outcome;
  outcome.replies.push_back([done = std::move(done)](const absl::Status&) { done(); });
  {
    MutexLock lock(&mutex_);
    outcome.number = core_->WriteChanges();
  }
  Release(std::move(outcome));
}

// ---- pushes --------------------------------------------------------------------------------------------------------

QueueFrontend::PushSession::PushSession(QueueFrontend* frontend)
    : frontend_(frontend), assembler_(frontend->options_.max_trajectory_bytes, frontend->options_.max_chunk_bytes) {}

std::unique_ptr<QueueFrontend::PushSession> QueueFrontend::NewPushSession() {
  return std::unique_ptr<PushSession>(new PushSession(this));
}

void QueueFrontend::PushSession::Handle(v1::PushRequest* request, Answered done) {
  if (absl::Status known = CheckIdentity(request->identity()); !known.ok()) {
    // Behind the answers to what came before.
    frontend_->AfterAnswers([done = std::move(done), known] { done(v1::PushResponse(), known); });
    return;
  }
  const MonotonicTime begin = frontend_->clock_->Now();
  std::vector<Arrived> arrived;
  // What arrived whole before a broken chunk is still delivered and answered.
  absl::Status status = Collect(request, &arrived);

  if (arrived.empty() && status.ok()) return done(v1::PushResponse(), status);

  v1::PushResponse response;
  std::vector<Refused> refused;
  Outcome outcome;
  {
    MutexLock lock(&frontend_->mutex_);
    if (absl::Status delivered = Deliver(&arrived, &response, &refused); !delivered.ok()) status = delivered;
    frontend_->Settled(frontend_->clock_->Now(), &outcome);
  }
  // In quarantine before the worker hears of it.
  for (const Refused& one : refused) frontend_->quarantine_->Keep(one.reason, name_, one.bytes);
  outcome.replies.insert(outcome.replies.begin(),
                         [frontend = frontend_, begin, done = std::move(done), response = std::move(response),
                          status = std::move(status)](const absl::Status& durable) mutable {
                           if (!durable.ok()) return done(v1::PushResponse(), durable);
                           frontend->OnPushesAnswered(begin, response.answers_size());
                           done(std::move(response), status);
                         });
  frontend_->Release(std::move(outcome));
}

absl::Status QueueFrontend::PushSession::CheckIdentity(const v1::WorkerIdentity& identity) {
  if (identity_.producer_id() == 0) {
    identity_ = identity;
    MutexLock lock(&frontend_->mutex_);
    LEEWAY_RETURN_IF_ERROR(frontend_->core_->CheckIdentity(identity));
    name_ = frontend_->core_->WorkerName(identity.producer_id());
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
  Inspection inspection = InspectTrajectory(payload, frontend_->options_.limits);
  pushed.summary = std::move(inspection.summary);
  pushed.reject_reason = std::move(inspection.reject_reason);
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
