#include "rollout/episodes/episode_runner.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <optional>
#include <queue>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/logging.h"
#include "base/status_macros.h"

namespace leeway {
namespace {

// A call's id names its episode's slot in the low bits; the high ones never repeat.
constexpr int kSlotBits = 24;
constexpr uint64_t kSlotMask = (1u << kSlotBits) - 1;
// Legal sets remembered as ids. Tasks have few; one that makes a new one every turn must not grow the table for ever.
constexpr size_t kRememberedLegalSets = 4096;

using LegalIdsPointer = std::shared_ptr<const std::vector<int32_t>>;

struct FailureText {
  v1::Failure::Fault fault;
  std::string code;
  std::string message;
  bool is_retryable = false;
};

}  // namespace

struct EpisodeRunner::State {
  struct Episode {
    bool is_open = false;
    std::shared_ptr<const v1::Ticket> ticket;
    uint32_t member = 0;
    uint32_t attempt = 1;
    std::shared_ptr<EnvironmentSlot> slot;
    EpisodeHandle handle = 0;
    v1::Trajectory trajectory;
    std::optional<double> reward;
    absl::Duration environment_time;
    TurnRequest request;
    v1::StopReason last_stop = v1::STOP_REASON_UNSPECIFIED;

    // The environment's call under way, until its answer is delivered; 0 = none (the policy's turn).
    uint64_t call = 0;
    bool call_is_reset = false;
    bool call_is_limited_by_episode = false;
    absl::Duration call_timeout;
    MonotonicTime call_since;
    StepResult delayed;  // while the simulated latency runs
    bool delayed_is_timeout = false;
  };
  struct Timer {
    MonotonicTime due;
    uint64_t call;
    bool operator>(const Timer& other) const { return due > other.due; }
  };

  State(const EpisodeRunnerOptions& options, const Task* task, const Tokenizer* tokenizer, Engine* engine,
        EnvironmentExecutor* executor, const Clock* clock)
      : options(options),
        task(task),
        tokenizer(tokenizer),
        engine(engine),
        executor(executor),
        clock(clock),
        task_name(task->name()) {
    if (tokenizer->vocabulary_size() < engine->shape().vocabulary) {
      // The model's vocabulary is padded: what has no meaning must not be sampled.
      auto all = std::make_shared<std::vector<int32_t>>(static_cast<size_t>(tokenizer->vocabulary_size()));
      for (size_t i = 0; i < all->size(); ++i) (*all)[i] = static_cast<int32_t>(i);
      whole_vocabulary = std::move(all);
    }
  }

  std::string Name(const Episode& episode) const {
    return absl::StrCat(episode.ticket->evaluation() ? "evaluation " : "ticket ", episode.ticket->id(), " member ",
                        episode.member, " (issue ", episode.ticket->issue(), ", attempt ", episode.attempt, ")");
  }

  void BeginAttempt(Episode& episode);
  void PostCall(Episode& episode, const Task* reset_task, std::string answer);
  void HandleAnswer(EnvironmentAnswer& answer);
  void Deliver(Episode& episode, StepResult& result);
  void StartTurn(Episode& episode, const Observation& observation);
  absl::StatusOr<LegalIdsPointer> FindLegalIds(const Observation& observation);
  void HandleTurn(Episode& episode, const FinishedTurn& turn);
  void Complete(Episode& episode, v1::Terminal terminal, v1::StopReason stop);
  void FailAttempt(Episode& episode, const FailureText& failure);
  void TimeOutCall(Episode& episode);
  void PushFailed(const v1::Ticket& ticket, uint32_t member, uint32_t attempt, const FailureText& failure,
                  double environment_seconds);
  void CountFailure(const v1::Ticket& ticket, const std::string& who, const FailureText& failure);
  void FreeEpisode(Episode& episode);
  void LeaveEngine(Episode& episode);

  const EpisodeRunnerOptions options;
  const Task* const task;
  const Tokenizer* const tokenizer;
  Engine* const engine;
  EnvironmentExecutor* const executor;
  const Clock* const clock;
  const std::string task_name;

  std::deque<Episode> slots;  // addresses stay
  std::vector<uint32_t> free_slots;
  uint64_t next_call = 1;
  absl::flat_hash_map<EpisodeHandle, Episode*> by_handle;
  std::priority_queue<Timer, std::vector<Timer>, std::greater<Timer>> timers;
  absl::flat_hash_map<std::string, LegalIdsPointer> legal_sets;
  LegalIdsPointer whole_vocabulary;  // null: the model's vocabulary is the tokenizer's

  std::vector<EnvironmentCall> calls;      // to be posted
  std::vector<EnvironmentAnswer> answers;  // reused
  std::vector<int32_t> new_ids;            // reused
  std::vector<v1::Trajectory> finished;
  Counters counters;
};

void EpisodeRunner::State::BeginAttempt(Episode& episode) {
  EpisodeIdentity identity;
  identity.purpose = episode.ticket->evaluation() ? RandomPurpose::kEvaluationSampling : RandomPurpose::kSampling;
  identity.ticket = episode.ticket->id();
  identity.member = episode.member;
  episode.handle = engine->OpenEpisode(identity);
  by_handle[episode.handle] = &episode;
  episode.slot = std::make_shared<EnvironmentSlot>();
  episode.trajectory.Clear();
  episode.trajectory.set_kv_cache_consistent(true);
  episode.reward.reset();
  episode.environment_time = absl::ZeroDuration();
  episode.last_stop = v1::STOP_REASON_UNSPECIFIED;
  PostCall(episode, task, "");
}

void EpisodeRunner::State::PostCall(Episode& episode, const Task* reset_task, std::string answer) {
  EnvironmentCall call;
  call.id = (next_call++ << kSlotBits) | (episode.call & kSlotMask);
  call.slot = episode.slot;
  call.reset_task = reset_task;
  if (reset_task != nullptr) {
    call.key.run_seed = options.seed;
    call.key.ticket = episode.ticket->id();
    call.key.member = episode.member;
    call.key.attempt = episode.attempt;
    call.seed = episode.ticket->seed();
  }
  call.answer = std::move(answer);
  const absl::Duration limit = reset_task != nullptr ? options.limits.reset_timeout : options.limits.step_timeout;
  const absl::Duration left = options.limits.episode_timeout - episode.environment_time;
  episode.call_is_limited_by_episode = left < limit;
  episode.call_timeout = std::min(left, limit);
  episode.call_is_reset = reset_task != nullptr;
  episode.call_since = clock->Now();
  episode.delayed_is_timeout = false;
  call.timeout = episode.call_timeout;
  episode.call = call.id;
  calls.push_back(std::move(call));
}

void EpisodeRunner::State::LeaveEngine(Episode& episode) {
  if (episode.handle == 0) return;
  by_handle.erase(episode.handle);
  engine->Close(episode.handle);
  episode.handle = 0;
}

void EpisodeRunner::State::FreeEpisode(Episode& episode) {
  LeaveEngine(episode);
  episode.slot.reset();
  episode.ticket.reset();
  episode.request.legal_ids.reset();
  episode.is_open = false;
  // Only the slot number stays: no late answer can name this episode any more.
  episode.call &= kSlotMask;
  free_slots.push_back(static_cast<uint32_t>(episode.call));
}

void EpisodeRunner::State::CountFailure(const v1::Ticket& ticket, const std::string& who, const FailureText& failure) {
  const int64_t count = ++counters.failures[failure.code];
  // A task that always fails must not fill the disk; one that hangs is slow enough to be named every time.
  if (failure.fault != v1::Failure::TIMEOUT && count > 20 && count % 1000 != 0) return;
  LEEWAY_LOG_WARNING("{}: {}: {}: {} ({} so far)", task_name, who, failure.code, failure.message, count);
}

void EpisodeRunner::State::PushFailed(const v1::Ticket& ticket, uint32_t member, uint32_t attempt,
                                      const FailureText& failure, double environment_seconds) {
  v1::Trajectory trajectory;
  trajectory.mutable_key()->set_ticket(ticket.id());
  trajectory.mutable_key()->set_issue(ticket.issue());
  trajectory.mutable_key()->set_member(member);
  trajectory.mutable_key()->set_attempt(attempt);
  trajectory.set_evaluation(ticket.evaluation());
  trajectory.set_outcome(v1::FAILED);
  trajectory.mutable_score()->set_status(failure.fault == v1::Failure::SCORER ? v1::Score::SCORING_FAILED
                                                                              : v1::Score::UNSCORED);
  trajectory.mutable_failure()->set_fault(failure.fault);
  trajectory.mutable_failure()->set_code(failure.code);
  trajectory.mutable_failure()->set_message(failure.message);
  trajectory.mutable_failure()->set_retryable(failure.is_retryable);
  trajectory.set_kv_cache_consistent(true);
  trajectory.set_environment_seconds(environment_seconds);
  finished.push_back(std::move(trajectory));
  ++counters.failed;
}

void EpisodeRunner::State::FailAttempt(Episode& episode, const FailureText& failure) {
  CountFailure(*episode.ticket, Name(episode), failure);
  if (failure.is_retryable && episode.attempt < static_cast<uint32_t>(options.limits.max_attempts)) {
    ++counters.retries;
    LeaveEngine(episode);
    ++episode.attempt;
    BeginAttempt(episode);
    return;
  }
  PushFailed(*episode.ticket, episode.member, episode.attempt, failure,
             absl::ToDoubleSeconds(episode.environment_time));
  FreeEpisode(episode);
}

void EpisodeRunner::State::TimeOutCall(Episode& episode) {
  const std::string what = episode.call_is_reset ? "reset" : absl::StrCat("step of turn ", episode.trajectory.turns());
  if (episode.call_is_limited_by_episode) {
    FailAttempt(episode, {v1::Failure::TIMEOUT, "episode_timeout",
                          absl::StrCat("the environment took ", absl::FormatDuration(options.limits.episode_timeout),
                                       " in all without ending the episode; last: ", what),
                          true});
    return;
  }
  FailAttempt(episode,
              {v1::Failure::TIMEOUT, episode.call_is_reset ? "reset_timeout" : "step_timeout",
               absl::StrCat(what, " gave no answer within ", absl::FormatDuration(episode.call_timeout)), true});
}

void EpisodeRunner::State::HandleAnswer(EnvironmentAnswer& answer) {
  Episode& episode = slots[answer.call & kSlotMask];
  if (episode.call != answer.call) return;  // of an abandoned attempt
  const absl::Duration took = std::min(answer.took, episode.call_timeout);
  episode.environment_time += took;
  counters.environment_seconds += absl::ToDoubleSeconds(took);
  if (answer.timed_out) return TimeOutCall(episode);
  if (!answer.status.ok()) {
    FailAttempt(episode, {v1::Failure::ENVIRONMENT, episode.call_is_reset ? "reset_failed" : "step_failed",
                          answer.status.ToString(), true});
    return;
  }
  if (answer.simulated_latency <= absl::ZeroDuration()) return Deliver(episode, answer.result);

  // Deemed to be still at work: delivered by a timer, or timed out by it.
  absl::Duration delay = answer.simulated_latency;
  if (took + delay > episode.call_timeout) {
    episode.delayed_is_timeout = true;
    delay = episode.call_timeout - took;
  }
  episode.environment_time += delay;
  counters.environment_seconds += absl::ToDoubleSeconds(delay);
  episode.delayed = std::move(answer.result);
  timers.push({clock->Now() + delay, episode.call});
}

void EpisodeRunner::State::Deliver(Episode& episode, StepResult& result) {
  episode.call &= kSlotMask;
  if (result.reward.has_value()) {
    const double sum = episode.reward.value_or(0.0) + *result.reward;
    if (!std::isfinite(sum)) {
      FailAttempt(episode,
                  {v1::Failure::SCORER, "reward_not_finite",
                   absl::StrCat("turn ", episode.trajectory.turns(), " was given the reward ", *result.reward), false});
      return;
    }
    episode.reward = sum;
  }
  if (result.state == EpisodeState::kTerminated) return Complete(episode, v1::TERMINATED, v1::ENVIRONMENT_DONE);
  if (result.state == EpisodeState::kTruncated) return Complete(episode, v1::TRUNCATED, v1::ENVIRONMENT_DONE);
  if (episode.last_stop == v1::CONTEXT_FULL) return Complete(episode, v1::TRUNCATED, v1::CONTEXT_FULL);
  if (static_cast<int>(episode.trajectory.turns()) >= task->max_turns())
    return Complete(episode, v1::TRUNCATED, v1::TURN_LIMIT);
  StartTurn(episode, result.next);
}

absl::StatusOr<LegalIdsPointer> EpisodeRunner::State::FindLegalIds(const Observation& observation) {
  if (!observation.legal_characters.has_value()) return whole_vocabulary;
  const std::string key = absl::StrCat(observation.end_of_text_is_legal ? "1" : "0", *observation.legal_characters);
  if (auto found = legal_sets.find(key); found != legal_sets.end()) return found->second;
  absl::StatusOr<std::vector<int32_t>> ids =
      LegalIds(*tokenizer, *observation.legal_characters, observation.end_of_text_is_legal);
  if (!ids.ok()) return std::move(ids).status();
  if (legal_sets.size() >= kRememberedLegalSets) legal_sets.clear();
  return legal_sets[key] = std::make_shared<const std::vector<int32_t>>(*std::move(ids));
}

void EpisodeRunner::State::StartTurn(Episode& episode, const Observation& observation) {
  const bool is_first = episode.trajectory.turns() == 0;
  if (observation.max_answer_tokens < 1) {
    FailAttempt(episode,
                {v1::Failure::ENVIRONMENT, "answer_limit_invalid",
                 absl::StrCat("the environment allows ", observation.max_answer_tokens, " answer tokens"), false});
    return;
  }
  absl::StatusOr<std::vector<int32_t>> text = tokenizer->Encode(observation.text);
  if (!text.ok()) {
    FailAttempt(episode, {v1::Failure::ENVIRONMENT, "text_not_encodable", std::string(text.status().message()), false});
    return;
  }
  absl::StatusOr<LegalIdsPointer> legal = FindLegalIds(observation);
  if (!legal.ok()) {
    FailAttempt(episode, {v1::Failure::ENVIRONMENT, "legal_set_invalid", std::string(legal.status().message()), false});
    return;
  }
  new_ids.clear();
  if (is_first) new_ids.push_back(tokenizer->beginning_id());
  new_ids.insert(new_ids.end(), text->begin(), text->end());

  episode.request.sampling = episode.ticket->evaluation() ? options.evaluation_sampling : options.training_sampling;
  episode.request.legal_ids = *std::move(legal);
  episode.request.max_new_tokens = observation.max_answer_tokens;
  const absl::Status started = engine->StartTurn(episode.handle, new_ids, episode.request);
  if (absl::IsOutOfRange(started)) {
    if (!is_first) return Complete(episode, v1::TRUNCATED, v1::CONTEXT_FULL);
    FailAttempt(episode, {v1::Failure::ENVIRONMENT, "prompt_too_long",
                          absl::StrCat(std::string(started.message()), "; raise model.max_positions"), false});
    return;
  }
  if (!started.ok()) {
    FailAttempt(episode, {v1::Failure::POLICY_SERVER, "engine_refused", std::string(started.message()), false});
    return;
  }
  if (!new_ids.empty()) episode.trajectory.add_spans()->mutable_ids()->Add(new_ids.begin(), new_ids.end());
}

void EpisodeRunner::State::HandleTurn(Episode& episode, const FinishedTurn& turn) {
  if (!turn.status.ok()) {
    FailAttempt(episode, {v1::Failure::POLICY_SERVER, "logits_not_finite", std::string(turn.status.message()), false});
    return;
  }
  v1::Span* span = episode.trajectory.add_spans();
  span->set_sampled(true);
  span->mutable_ids()->Add(turn.ids.begin(), turn.ids.end());
  span->mutable_logprobs()->Add(turn.logprobs.begin(), turn.logprobs.end());
  for (const TokenRun& run : turn.versions) {
    v1::VersionRun* out = span->add_versions();
    out->mutable_weights()->set_lineage(run.weights.lineage);
    out->mutable_weights()->set_version(run.weights.version);
    out->set_count(run.count);
  }
  span->set_temperature(episode.request.sampling.temperature);
  if (episode.request.legal_ids != nullptr) {
    span->mutable_legal_ids()->Add(episode.request.legal_ids->begin(), episode.request.legal_ids->end());
  }
  episode.trajectory.set_kv_cache_consistent(turn.kv_cache_consistent);
  episode.trajectory.set_turns(episode.trajectory.turns() + 1);
  episode.last_stop = turn.stop;
  ++counters.turns;
  absl::StatusOr<std::string> answer = tokenizer->Decode(turn.ids);
  if (!answer.ok()) {
    FailAttempt(episode,
                {v1::Failure::POLICY_SERVER, "answer_not_decodable", std::string(answer.status().message()), false});
    return;
  }
  PostCall(episode, nullptr, *std::move(answer));
}

void EpisodeRunner::State::Complete(Episode& episode, v1::Terminal terminal, v1::StopReason stop) {
  v1::Trajectory& trajectory = episode.trajectory;
  trajectory.mutable_key()->set_ticket(episode.ticket->id());
  trajectory.mutable_key()->set_issue(episode.ticket->issue());
  trajectory.mutable_key()->set_member(episode.member);
  trajectory.mutable_key()->set_attempt(episode.attempt);
  trajectory.set_evaluation(episode.ticket->evaluation());
  trajectory.set_outcome(v1::COMPLETED);
  trajectory.set_terminal(terminal);
  trajectory.set_stop_reason(stop);
  if (episode.reward.has_value()) {
    trajectory.mutable_score()->set_status(v1::Score::SCORED);
    trajectory.mutable_score()->set_reward(*episode.reward);
  } else {
    trajectory.mutable_score()->set_status(v1::Score::UNSCORED);
  }
  trajectory.set_environment_seconds(absl::ToDoubleSeconds(episode.environment_time));
  finished.push_back(std::move(trajectory));
  ++counters.completed;
  FreeEpisode(episode);
}

EpisodeRunner::EpisodeRunner(const EpisodeRunnerOptions& options, const Task* task, const Tokenizer* tokenizer,
                             Engine* engine, EnvironmentExecutor* executor, const Clock* clock)
    : state_(std::make_unique<State>(options, task, tokenizer, engine, executor, clock)) {}
EpisodeRunner::~EpisodeRunner() = default;

void EpisodeRunner::Start(std::shared_ptr<const v1::Ticket> ticket, uint32_t member) {
  State& state = *state_;
  if (ticket->task() != state.task_name) {
    Refuse(
        *ticket, member, v1::Failure::PROTOCOL, "unknown_task",
        absl::StrCat("the ticket is for task \"", ticket->task(), "\", this worker plays \"", state.task_name, "\""));
    return;
  }
  if (state.free_slots.empty()) {
    state.free_slots.push_back(static_cast<uint32_t>(state.slots.size()));
    state.slots.emplace_back();
    LEEWAY_CHECK(state.slots.size() <= kSlotMask) << "too many episodes at once";
  }
  State::Episode& episode = state.slots[state.free_slots.back()];
  episode.call = state.free_slots.back();
  state.free_slots.pop_back();
  episode.is_open = true;
  episode.ticket = std::move(ticket);
  episode.member = member;
  episode.attempt = 1;
  state.BeginAttempt(episode);
}

void EpisodeRunner::Refuse(const v1::Ticket& ticket, uint32_t member, v1::Failure::Fault fault, const std::string& code,
                           const std::string& message) {
  const FailureText failure{fault, code, message, false};
  state_->CountFailure(
      ticket, absl::StrCat(ticket.evaluation() ? "evaluation " : "ticket ", ticket.id(), " member ", member), failure);
  state_->PushFailed(ticket, member, 1, failure, 0.0);
}

void EpisodeRunner::FailTicket(const v1::Ticket& ticket, const std::string& code, const std::string& message) {
  for (State::Episode& episode : state_->slots) {
    if (!episode.is_open || episode.ticket->id() != ticket.id() || episode.ticket->issue() != ticket.issue() ||
        episode.ticket->evaluation() != ticket.evaluation()) {
      continue;
    }
    state_->FailAttempt(episode, {v1::Failure::TIMEOUT, code, message, false});
  }
}

void EpisodeRunner::AbandonTicket(const v1::Ticket& ticket) {
  for (State::Episode& episode : state_->slots) {
    if (episode.is_open && episode.ticket->id() == ticket.id() && episode.ticket->issue() == ticket.issue() &&
        episode.ticket->evaluation() == ticket.evaluation()) {
      state_->FreeEpisode(episode);
    }
  }
}

void EpisodeRunner::AbandonAll() {
  for (State::Episode& episode : state_->slots) {
    if (episode.is_open) state_->FreeEpisode(episode);
  }
  state_->calls.clear();
  state_->finished.clear();
}

bool EpisodeRunner::Poll() {
  State& state = *state_;
  bool worked = false;
  const MonotonicTime now = state.clock->Now();
  while (!state.timers.empty() && state.timers.top().due <= now) {
    const uint64_t call = state.timers.top().call;
    state.timers.pop();
    State::Episode& episode = state.slots[call & kSlotMask];
    if (episode.call != call) continue;
    worked = true;
    if (episode.delayed_is_timeout) {
      state.TimeOutCall(episode);
    } else {
      state.Deliver(episode, episode.delayed);
    }
  }
  while (true) {
    if (!state.calls.empty()) state.executor->Post(&state.calls);
    state.answers.clear();
    state.executor->Take(&state.answers);
    for (EnvironmentAnswer& answer : state.answers) state.HandleAnswer(answer);
    worked = worked || !state.answers.empty();
    if (state.calls.empty()) return worked;
  }
}

void EpisodeRunner::HandleFinishedTurns(absl::Span<const FinishedTurn> turns) {
  for (const FinishedTurn& turn : turns) {
    const auto found = state_->by_handle.find(turn.episode);
    LEEWAY_CHECK(found != state_->by_handle.end()) << "the engine finished a turn of an unknown episode";
    state_->HandleTurn(*found->second, turn);
  }
  if (!state_->calls.empty()) state_->executor->Post(&state_->calls);
}

void EpisodeRunner::TakeFinished(std::vector<v1::Trajectory>* trajectories) {
  for (v1::Trajectory& trajectory : state_->finished) trajectories->push_back(std::move(trajectory));
  state_->finished.clear();
}

int EpisodeRunner::running_episodes() const {
  return static_cast<int>(state_->slots.size() - state_->free_slots.size());
}

MonotonicTime EpisodeRunner::NextTimer() const {
  MonotonicTime next = state_->executor->NextDeadline();
  if (!state_->timers.empty()) next = std::min(next, state_->timers.top().due);
  return next;
}

EpisodeRunner::EnvironmentWait EpisodeRunner::OldestEnvironmentWait() const {
  EnvironmentWait oldest;
  const State::Episode* found = nullptr;
  for (const State::Episode& episode : state_->slots) {
    if (!episode.is_open || (episode.call & ~kSlotMask) == 0 || oldest.since <= episode.call_since) continue;
    oldest.since = episode.call_since;
    found = &episode;
  }
  if (found != nullptr) {
    oldest.description =
        absl::StrCat(state_->task_name, ": ", found->call_is_reset ? "reset" : "step", " of ", state_->Name(*found));
  }
  return oldest;
}

const EpisodeRunner::Counters& EpisodeRunner::counters() const { return state_->counters; }

}  // namespace leeway
