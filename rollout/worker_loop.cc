#include "rollout/worker_loop.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/failpoint.h"
#include "base/logging.h"
#include "base/status_macros.h"

namespace leeway {
namespace {

EngineOptions EngineOptionsOf(const RolloutOptions& options, const Tokenizer& tokenizer) {
  EngineOptions engine;
  engine.seed = options.seed;
  engine.end_of_text = tokenizer.end_of_text_id();
  engine.update_mode = options.update_mode;
  engine.token_budget = options.token_budget;
  return engine;
}

EpisodeRunnerOptions RunnerOptionsOf(const RolloutOptions& options) {
  EpisodeRunnerOptions runner;
  runner.seed = options.seed;
  runner.limits = options.limits;
  runner.training_sampling.temperature = options.temperature;
  runner.evaluation_sampling = options.evaluation_sampling;
  return runner;
}

WeightsId IdOf(const v1::WeightsVersion& weights) { return {weights.lineage(), weights.version()}; }
bool IsOlder(WeightsId a, WeightsId b) {
  return a.lineage != b.lineage ? a.lineage < b.lineage : a.version < b.version;
}
std::string NameOf(WeightsId weights) { return absl::StrCat("(", weights.lineage, ", ", weights.version, ")"); }

// Whether every sampled token came from these weights.
bool IsOf(const v1::Trajectory& trajectory, const v1::WeightsVersion& weights) {
  for (const v1::Span& span : trajectory.spans()) {
    for (const v1::VersionRun& run : span.versions()) {
      if (!(IdOf(run.weights()) == IdOf(weights))) return false;
    }
  }
  return true;
}

}  // namespace

WorkerLoop::WorkerLoop(const RolloutOptions& options, const Dependencies& dependencies)
    : options_(options),
      dependencies_(dependencies),
      engine_(EngineOptionsOf(options, *dependencies.tokenizer), dependencies.transformer, dependencies.parallel),
      runner_(RunnerOptionsOf(options), dependencies.task, dependencies.tokenizer, &engine_, dependencies.executor,
              dependencies.clock),
      queue_cause_since_(dependencies.clock->Now()) {}

void WorkerLoop::AddTickets(const v1::AcquireTicketsResponse& response, WeightsId asked_holding) {
  const MonotonicTime now = dependencies_.clock->Now();
  const bool has_evaluation = std::any_of(
      response.tickets().begin(), response.tickets().end(),
      [&](const v1::Ticket& ticket) { return ticket.evaluation() && IdOf(ticket.weights()) == engine_.weights(); });
  if (asked_holding == engine_.weights()) evaluations_are_out_ = !has_evaluation;
  if (response.tickets_size() == 0) {
    if (queue_cause_ != response.cause()) queue_cause_since_ = now;
    queue_cause_ = response.cause();
    return;
  }
  queue_cause_.clear();
  queue_cause_since_ = now;
  for (const v1::Ticket& ticket : response.tickets()) {
    TicketRecord& record = tickets_[KeyOf(ticket)];
    if (record.ticket != nullptr) continue;  // the same issue twice
    record.ticket = std::make_shared<const v1::Ticket>(ticket);
    record.received = now;
    record.deadline = ticket.deadline_ms() == 0 ? MonotonicTime::InfiniteFuture()
                                                : now + absl::Milliseconds(static_cast<int64_t>(ticket.deadline_ms()));
    record.unstarted.assign(ticket.members().rbegin(), ticket.members().rend());
    unstarted_ += static_cast<int>(record.unstarted.size());
    next_deadline_ = std::min(next_deadline_, record.deadline);
    EraseIfDone(tickets_.find(KeyOf(ticket)));
  }
}

void WorkerLoop::ClearUnstarted(TicketRecord* record) {
  unstarted_ -= static_cast<int>(record->unstarted.size());
  record->unstarted.clear();
}

void WorkerLoop::EraseIfDone(TicketMap::iterator it) {
  if (it->second.unstarted.empty() && it->second.running == 0 && it->second.unanswered == 0) tickets_.erase(it);
}

void WorkerLoop::OnPushAnswered(const v1::EpisodeKey& key, bool evaluation, const v1::PushAnswer& answer) {
  ++answers_[absl::AsciiStrToLower(v1::PushResult_Name(answer.result()))];
  if (answer.result() == v1::REJECTED) {
    LEEWAY_LOG_WARNING("the queue rejected {} {} member {}: {}", evaluation ? "evaluation" : "ticket", key.ticket(),
                       key.member(), answer.reason());
  }
  const auto it = tickets_.find(TicketKey{!evaluation, key.ticket(), key.issue()});
  if (it == tickets_.end()) return;
  TicketRecord& record = it->second;
  --record.unanswered;
  --unanswered_;
  oldest_unanswered_ = unanswered_ == 0 ? MonotonicTime::InfiniteFuture() : dependencies_.clock->Now();
  if (answer.result() == v1::GROUP_CLOSED || answer.result() == v1::TOO_STALE) {
    // What the queue will not take is not worth generating.
    runner_.AbandonTicket(*record.ticket);
    record.running = 0;
    ClearUnstarted(&record);
  }
  EraseIfDone(it);
}

void WorkerLoop::AbandonTickets(absl::Span<const uint64_t> tickets, MonotonicTime as_of) {
  for (const uint64_t id : tickets) {
    auto it = tickets_.lower_bound(TicketKey{true, id, 0});
    while (it != tickets_.end() && std::get<0>(it->first) && std::get<1>(it->first) == id) {
      const auto current = it++;
      TicketRecord& record = current->second;
      if (record.received > as_of) continue;
      const size_t unfinished = record.unstarted.size() + static_cast<size_t>(record.running);
      if (unfinished > 0) {
        LEEWAY_LOG_INFO("abandoning {} episodes of ticket {}: the queue does not want them from this worker",
                        unfinished, id);
      }
      runner_.AbandonTicket(*record.ticket);
      record.running = 0;
      ClearUnstarted(&record);
      EraseIfDone(current);
    }
  }
}

void WorkerLoop::DropEverything() {
  runner_.AbandonAll();
  tickets_.clear();
  unstarted_ = 0;
  unanswered_ = 0;
  oldest_unanswered_ = MonotonicTime::InfiniteFuture();
  next_deadline_ = MonotonicTime::InfiniteFuture();
  queue_cause_.clear();
  queue_cause_since_ = dependencies_.clock->Now();
}

WorkerLoop::Startable WorkerLoop::CanStart(const v1::Ticket& ticket) const {
  const WeightsId holds = engine_.weights();
  const WeightsId wanted = IdOf(ticket.weights());
  if (holds.version == 0) return Startable::kLater;
  if (ticket.evaluation()) {
    if (holds == wanted) return Startable::kNow;
    return IsOlder(holds, wanted) ? Startable::kLater : Startable::kNever;
  }
  return holds.lineage >= wanted.lineage && holds.version >= wanted.version ? Startable::kNow : Startable::kLater;
}

bool WorkerLoop::IsPinned() const {
  if (may_have_evaluations()) return true;
  for (const auto& [key, record] : tickets_) {
    if (!record.ticket->evaluation()) return false;  // evaluation tickets come first
    if (record.unstarted.empty() && record.running == 0) continue;
    if (IdOf(record.ticket->weights()) == engine_.weights()) return true;
  }
  return false;
}

absl::StatusOr<bool> WorkerLoop::TakeAndSwapWeights() {
  if (std::optional<CommittedWeights> newer = dependencies_.weights->TakeNewer(); newer.has_value()) {
    LEEWAY_FAILPOINT("rollout_receiving_weights");
    ++weights_taken_;
    pending_ = std::move(newer);
  }
  const bool may_swap = pending_.has_value() && !IsPinned();
  engine_.SetSwapRequested(may_swap);
  if (!may_swap || !engine_.ready_to_swap()) return false;
  const WeightsId id = IdOf(pending_->weights);
  const CommittedWeights weights = *std::move(pending_);
  pending_.reset();
  if (IsOlder(id, engine_.weights())) {
    LEEWAY_LOG_ERROR("ignoring weights {}: {} are held, and a lower version needs a higher lineage", NameOf(id),
                     NameOf(engine_.weights()));
    engine_.SetSwapRequested(false);
    return false;
  }
  LEEWAY_RETURN_IF_ERROR(Swap(weights));
  return true;
}

absl::Status WorkerLoop::Swap(const CommittedWeights& weights) {
  const ScopedState state(dependencies_.state_clock, "busy:swap");
  const MonotonicTime begin = dependencies_.clock->Now();
  const WeightsId id = IdOf(weights.weights);
  const bool is_relabel = engine_.weights().version != 0 && !weights.digest.empty() && weights.digest == digest_;
  if (is_relabel) {
    LEEWAY_RETURN_IF_ERROR(engine_.Swap(id, {}, /*same_bytes=*/true));
  } else {
    const size_t width = options_.bf16_weights ? sizeof(uint16_t) : sizeof(float);
    if (weights.total_bytes % width != 0) {
      return absl::InvalidArgumentError(absl::StrCat("weights ", NameOf(id), " have ", weights.total_bytes,
                                                     " bytes: not a whole number of values of ", width, " bytes"));
    }
    const size_t count = weights.total_bytes / width;
    std::vector<float> aligned;
    const void* values = weights.bytes.get();
    if (reinterpret_cast<uintptr_t>(values) % width != 0) {
      aligned.resize(weights.total_bytes / sizeof(float) + 1);
      std::memcpy(aligned.data(), values, weights.total_bytes);
      values = aligned.data();
    }
    WeightSpan<float> parameters = absl::MakeConstSpan(static_cast<const float*>(values), count);
    if (options_.bf16_weights) parameters = absl::MakeConstSpan(static_cast<const uint16_t*>(values), count);
    LEEWAY_RETURN_IF_ERROR(engine_.Swap(id, parameters, /*same_bytes=*/false));
  }
  digest_ = weights.digest;
  evaluations_are_out_ = false;
  const absl::Duration took = dependencies_.clock->Now() - begin;
  swap_seconds_ += absl::ToDoubleSeconds(took);
  dependencies_.weights->ReportSwapped(weights.weights, took);
  LEEWAY_LOG_DEBUG("generating from weights {} now ({}, {:.2f} ms)", NameOf(id), is_relabel ? "same bytes" : "swapped",
                   absl::ToDoubleMilliseconds(took));
  return absl::OkStatus();
}

bool WorkerLoop::StartMembers() {
  bool started = false;
  int free = options_.max_episodes - runner_.running_episodes();
  for (auto it = tickets_.begin(); it != tickets_.end() && unstarted_ > 0;) {
    const auto current = it++;
    TicketRecord& record = current->second;
    if (record.unstarted.empty()) continue;
    const Startable startable = CanStart(*record.ticket);
    if (startable == Startable::kLater) continue;
    const bool holds_back = unanswered_ >= options_.max_unanswered_pushes && !record.ticket->evaluation();
    while (!record.unstarted.empty() && (startable == Startable::kNever || (free > 0 && !holds_back))) {
      const uint32_t member = record.unstarted.back();
      record.unstarted.pop_back();
      --unstarted_;
      ++record.running;
      started = true;
      if (startable == Startable::kNever) {
        runner_.Refuse(*record.ticket, member, v1::Failure::POLICY_SERVER, "version_gone",
                       absl::StrCat("the evaluation is of weights ", NameOf(IdOf(record.ticket->weights())),
                                    ", this worker holds ", NameOf(engine_.weights()), " already"));
      } else {
        --free;
        runner_.Start(record.ticket, member);
      }
    }
  }
  return started;
}

void WorkerLoop::EnforceDeadlines() {
  const MonotonicTime now = dependencies_.clock->Now();
  if (now < next_deadline_) return;
  next_deadline_ = MonotonicTime::InfiniteFuture();
  for (auto& [key, record] : tickets_) {
    if (record.unstarted.empty() && record.running == 0) continue;
    if (now < record.deadline) {
      next_deadline_ = std::min(next_deadline_, record.deadline);
      continue;
    }
    const std::string message =
        absl::StrCat("the ticket's ", absl::FormatDuration(record.deadline - record.received), " are over");
    runner_.FailTicket(*record.ticket, "deadline", message);
    record.running += static_cast<int>(record.unstarted.size());
    for (const uint32_t member : record.unstarted)
      runner_.Refuse(*record.ticket, member, v1::Failure::TIMEOUT, "deadline", message);
    ClearUnstarted(&record);
  }
}

bool WorkerLoop::PushFinished() {
  trajectories_.clear();
  runner_.TakeFinished(&trajectories_);
  for (v1::Trajectory& trajectory : trajectories_) {
    const auto it =
        tickets_.find(TicketKey{!trajectory.evaluation(), trajectory.key().ticket(), trajectory.key().issue()});
    LEEWAY_CHECK(it != tickets_.end()) << "ticket " << trajectory.key().ticket() << " has an episode but no record";
    LEEWAY_CHECK(!trajectory.evaluation() || IsOf(trajectory, it->second.ticket->weights()))
        << "evaluation " << trajectory.key().ticket() << " was played on other weights than its own";
    --it->second.running;
    ++it->second.unanswered;
    if (unanswered_++ == 0) oldest_unanswered_ = dependencies_.clock->Now();
    LEEWAY_FAILPOINT("rollout_before_push");
    dependencies_.push(std::move(trajectory));
    LEEWAY_FAILPOINT("rollout_after_push");
  }
  return !trajectories_.empty();
}

absl::StatusOr<bool> WorkerLoop::Iterate() {
  dependencies_.state_clock->Enter("busy:generate");
  LEEWAY_ASSIGN_OR_RETURN(bool worked, TakeAndSwapWeights());
  EnforceDeadlines();
  worked = StartMembers() || worked;
  worked = runner_.Poll() || worked;
  if (engine_.runnable()) {
    LEEWAY_FAILPOINT("rollout_generating");
    LEEWAY_RETURN_IF_ERROR(engine_.Step(&turns_));
    runner_.HandleFinishedTurns(turns_);
    worked = true;
  }
  return PushFinished() || worked;
}

WorkerLoop::Wait WorkerLoop::wait() const {
  Wait wait;
  wait.cause = queue_cause_.empty() ? "waiting_for_tickets" : queue_cause_;
  wait.detail =
      queue_cause_.empty() ? "an answer of the queue" : absl::StrCat("the queue has no tickets: ", queue_cause_);
  wait.since = queue_cause_since_;
  wait.wake_at = std::min(runner_.NextTimer(), next_deadline_);
  bool is_busy_with_tickets = false;
  const auto consider = [&](MonotonicTime since, const std::string& cause, const std::string& detail) {
    // Once there is work at all, an empty queue is not what is waited for.
    if (is_busy_with_tickets && wait.since <= since) return;
    is_busy_with_tickets = true;
    wait.since = since;
    wait.cause = cause;
    wait.detail = detail;
  };
  if (const EpisodeRunner::EnvironmentWait environment = runner_.OldestEnvironmentWait();
      environment.since < MonotonicTime::InfiniteFuture()) {
    consider(environment.since, "env_step", environment.description);
  }
  if (unanswered_ >= options_.max_unanswered_pushes) {
    consider(oldest_unanswered_, "queue_full", absl::StrCat("answers to ", unanswered_, " pushed trajectories"));
  }
  for (const auto& [key, record] : tickets_) {
    if (record.unstarted.empty() || CanStart(*record.ticket) != Startable::kLater) continue;
    consider(
        record.received, "waiting_for_version",
        absl::StrCat(record.ticket->evaluation() ? "evaluation " : "ticket ", record.ticket->id(), " needs weights ",
                     NameOf(IdOf(record.ticket->weights())), ", held are ", NameOf(engine_.weights())));
    break;
  }
  return wait;
}

int WorkerLoop::wanted_members() const {
  const int least = pending_.has_value() && may_have_evaluations() ? 1 : 0;
  if (unanswered_ >= options_.max_unanswered_pushes) return least;
  return std::max(least, options_.max_episodes - runner_.running_episodes() - unstarted_);
}

std::vector<uint64_t> WorkerLoop::training_tickets() const {
  std::vector<uint64_t> ids;
  for (const auto& [key, record] : tickets_) {
    if (std::get<0>(key)) ids.push_back(std::get<1>(key));
  }
  return ids;
}

std::map<std::string, double> WorkerLoop::Gauges() const {
  const EngineCounters& engine = engine_.counters();
  const EpisodeRunner::Counters& runner = runner_.counters();
  std::map<std::string, double> gauges = {
      {"rollout/steps", static_cast<double>(engine.steps)},
      {"rollout/tokens_generated", static_cast<double>(engine.tokens_generated)},
      {"rollout/tokens_processed", static_cast<double>(engine.tokens_processed)},
      {"rollout/tokens_recomputed", static_cast<double>(engine.tokens_recomputed)},
      {"rollout/tokens_discarded", static_cast<double>(engine.tokens_discarded)},
      {"rollout/flops", engine.flops},
      {"rollout/swaps", static_cast<double>(engine.swaps)},
      {"rollout/swap_s", swap_seconds_},
      {"rollout/turns", static_cast<double>(runner.turns)},
      {"rollout/episodes_completed", static_cast<double>(runner.completed)},
      {"rollout/episodes_failed", static_cast<double>(runner.failed)},
      {"rollout/episode_retries", static_cast<double>(runner.retries)},
      {"rollout/environment_s", runner.environment_seconds},
      {"rollout/environment_threads_abandoned", static_cast<double>(dependencies_.executor->abandoned_threads())},
      {"rollout/running_episodes", static_cast<double>(runner_.running_episodes())},
      {"rollout/running_turns", static_cast<double>(engine_.running_turns())},
      {"rollout/unstarted_members", static_cast<double>(unstarted_)},
      {"rollout/unanswered_pushes", static_cast<double>(unanswered_)},
      {"rollout/lineage", static_cast<double>(engine_.weights().lineage)},
      {"rollout/version", static_cast<double>(engine_.weights().version)},
  };
  for (const auto& [code, count] : runner.failures)
    gauges[absl::StrCat("rollout/failures/", code)] = static_cast<double>(count);
  for (const auto& [answer, count] : answers_)
    gauges[absl::StrCat("rollout/answers/", answer)] = static_cast<double>(count);
  return gauges;
}

}  // namespace leeway
