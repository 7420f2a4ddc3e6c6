#include "rollout/episodes/environment_executor.h"

#include <deque>
#include <exception>
#include <thread>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/cpu_time.h"
#include "base/mutex.h"

namespace leeway {
namespace internal {
namespace {

absl::StatusOr<StepResult> Call(const EnvironmentCall& call) {
  if (call.reset_task == nullptr) return call.slot->environment->Step(call.answer);
  call.slot->environment = call.reset_task->NewEnvironmentFor(call.key);
  if (call.slot->environment == nullptr) return absl::InternalError("the task made no environment");
  absl::StatusOr<Observation> observation = call.slot->environment->Reset(call.seed);
  if (!observation.ok()) return std::move(observation).status();
  StepResult result;
  result.next = *std::move(observation);
  result.state = EpisodeState::kRunning;
  return result;
}

}  // namespace

EnvironmentAnswer RunEnvironmentCall(const EnvironmentCall& call, const Clock* clock) {
  EnvironmentAnswer answer;
  answer.call = call.id;
  const MonotonicTime begin = clock->Now();
  try {
    absl::StatusOr<StepResult> result = Call(call);
    if (result.ok()) {
      answer.result = *std::move(result);
      answer.simulated_latency = call.slot->environment->SimulatedLatency();
    } else {
      answer.status = std::move(result).status();
    }
    if (!answer.status.ok() || answer.result.state != EpisodeState::kRunning) call.slot->environment.reset();
  } catch (const std::exception& thrown) {
    answer.status = absl::InternalError(absl::StrCat("threw: ", thrown.what()));
  } catch (...) {
    answer.status = absl::InternalError("threw something that is not a std::exception");
  }
  answer.took = clock->Now() - begin;
  return answer;
}

}  // namespace internal

namespace {

absl::Status TimedOut(absl::Duration timeout) {
  return absl::DeadlineExceededError(absl::StrCat("no answer within ", absl::FormatDuration(timeout)));
}

}  // namespace

void InlineEnvironmentExecutor::Post(std::vector<EnvironmentCall>* calls) {
  for (const EnvironmentCall& call : *calls) {
    EnvironmentAnswer answer = internal::RunEnvironmentCall(call, clock_);
    if (answer.took > call.timeout) {
      answer.status = TimedOut(call.timeout);
      answer.timed_out = true;
    }
    answers_.push_back(std::move(answer));
  }
  calls->clear();
}

void InlineEnvironmentExecutor::Take(std::vector<EnvironmentAnswer>* answers) {
  for (EnvironmentAnswer& answer : answers_) answers->push_back(std::move(answer));
  answers_.clear();
}

// Shared with the threads, so that one left behind may outlive the executor.
struct ThreadedEnvironmentExecutor::State {
  // What one thread is doing. Abandoned ones leave `threads`, the thread itself keeps its record alive.
  struct Worker {
    std::thread thread;
    bool is_busy = false;
    bool is_abandoned = false;
    bool has_ended = false;
    uint64_t call = 0;
    absl::Duration timeout;
    MonotonicTime started;
  };

  State(std::function<void()> on_answers, const Clock* clock) : on_answers(std::move(on_answers)), clock(clock) {}

  static void Loop(std::shared_ptr<State> state, std::shared_ptr<Worker> self);
  static std::shared_ptr<Worker> StartWorker(const std::shared_ptr<State>& state) {
    auto worker = std::make_shared<Worker>();
    worker->thread = std::thread(&State::Loop, state, worker);
    return worker;
  }

  const std::function<void()> on_answers;
  const Clock* const clock;
  mutable Mutex mutex;
  CondVar changed;
  bool stopping LEEWAY_GUARDED_BY(mutex) = false;
  std::deque<EnvironmentCall> queue LEEWAY_GUARDED_BY(mutex);
  std::vector<EnvironmentAnswer> answers LEEWAY_GUARDED_BY(mutex);
  // The fields of a Worker are guarded too (its `thread` belongs to the executor's owner).
  std::vector<std::shared_ptr<Worker>> workers LEEWAY_GUARDED_BY(mutex);
  int abandoned LEEWAY_GUARDED_BY(mutex) = 0;
};

void ThreadedEnvironmentExecutor::State::Loop(std::shared_ptr<State> state, std::shared_ptr<Worker> self) {
  SetThreadClass("env");
  // Answers are told of when nothing more is at hand, or after so long: quick calls are handed over in batches.
  constexpr absl::Duration kBatch = absl::Microseconds(200);
  MonotonicTime told = state->clock->Now();
  bool has_untold = false;
  while (true) {
    EnvironmentCall call;
    {
      MutexLock lock(&state->mutex);
      while (state->queue.empty() && !state->stopping) state->changed.WaitFor(&state->mutex, absl::Hours(1));
      if (state->stopping) {
        self->has_ended = true;
        state->changed.NotifyAll();
        return;
      }
      call = std::move(state->queue.front());
      state->queue.pop_front();
      self->is_busy = true;
      self->call = call.id;
      self->timeout = call.timeout;
      self->started = state->clock->Now();
    }
    EnvironmentAnswer answer = internal::RunEnvironmentCall(call, state->clock);
    const MonotonicTime now = state->clock->Now();
    bool tell = false;
    {
      MutexLock lock(&state->mutex);
      self->is_busy = false;
      if (self->is_abandoned) {
        --state->abandoned;
        return;
      }
      state->answers.push_back(std::move(answer));
      has_untold = true;
      if (state->queue.empty() || now - told > kBatch) tell = true;
    }
    if (tell && has_untold) {
      has_untold = false;
      told = now;
      state->on_answers();
    }
  }
}

ThreadedEnvironmentExecutor::ThreadedEnvironmentExecutor(int threads, std::function<void()> on_answers,
                                                         const Clock* clock)
    : state_(std::make_shared<State>(std::move(on_answers), clock)) {
  MutexLock lock(&state_->mutex);
  for (int i = 0; i < threads; ++i) state_->workers.push_back(State::StartWorker(state_));
}

ThreadedEnvironmentExecutor::~ThreadedEnvironmentExecutor() {
  std::vector<std::shared_ptr<State::Worker>> workers;
  {
    MutexLock lock(&state_->mutex);
    state_->stopping = true;
    state_->queue.clear();
    state_->changed.NotifyAll();
    workers.swap(state_->workers);
    const Deadline grace = Deadline::After(absl::Seconds(1));
    for (const auto& worker : workers) {
      while (!worker->has_ended && !grace.HasPassed()) state_->changed.WaitUntil(&state_->mutex, grace);
      if (!worker->has_ended) {
        worker->is_abandoned = true;
        ++state_->abandoned;
      }
    }
  }
  for (const auto& worker : workers) {
    // is_abandoned of a busy worker was decided above and does not change any more.
    if (worker->is_abandoned) {
      worker->thread.detach();
    } else {
      worker->thread.join();
    }
  }
}

void ThreadedEnvironmentExecutor::Post(std::vector<EnvironmentCall>* calls) {
  if (calls->empty()) return;
  {
    MutexLock lock(&state_->mutex);
    for (EnvironmentCall& call : *calls) state_->queue.push_back(std::move(call));
  }
  if (calls->size() == 1) {
    state_->changed.NotifyOne();
  } else {
    state_->changed.NotifyAll();
  }
  calls->clear();
}

void ThreadedEnvironmentExecutor::Take(std::vector<EnvironmentAnswer>* answers) {
  std::vector<std::thread> left_behind;
  {
    MutexLock lock(&state_->mutex);
    for (EnvironmentAnswer& answer : state_->answers) answers->push_back(std::move(answer));
    state_->answers.clear();
    const MonotonicTime now = state_->clock->Now();
    for (std::shared_ptr<State::Worker>& worker : state_->workers) {
      if (!worker->is_busy || now - worker->started < worker->timeout) continue;
      EnvironmentAnswer answer;
      answer.call = worker->call;
      answer.status = TimedOut(worker->timeout);
      answer.timed_out = true;
      answer.took = now - worker->started;
      answers->push_back(std::move(answer));
      worker->is_abandoned = true;
      ++state_->abandoned;
      left_behind.push_back(std::move(worker->thread));
      worker = State::StartWorker(state_);
    }
  }
  for (std::thread& thread : left_behind) thread.detach();
}

MonotonicTime ThreadedEnvironmentExecutor::NextDeadline() const {
  MutexLock lock(&state_->mutex);
  MonotonicTime earliest = MonotonicTime::InfiniteFuture();
  for (const auto& worker : state_->workers) {
    if (worker->is_busy && worker->started + worker->timeout < earliest) earliest = worker->started + worker->timeout;
  }
  return earliest;
}

int ThreadedEnvironmentExecutor::abandoned_threads() const {
  MutexLock lock(&state_->mutex);
  return state_->abandoned;
}

}  // namespace leeway
