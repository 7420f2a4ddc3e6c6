#ifndef LEEWAY_ROLLOUT_EPISODES_EPISODE_RUNNER_H_
#define LEEWAY_ROLLOUT_EPISODES_EPISODE_RUNNER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/clock.h"
#include "envs/environment.h"
#include "leeway/v1/types.pb.h"
#include "rollout/engine/engine.h"
#include "rollout/engine/sampler.h"
#include "rollout/episodes/environment_executor.h"
#include "tokenizer/tokenizer.h"

namespace leeway {

// How long an environment may take, and how often an episode is tried.
struct EpisodeLimits {
  absl::Duration reset_timeout = absl::Seconds(30);
  absl::Duration step_timeout = absl::Seconds(30);
  // Environment time of one attempt in all. The time in which the environment waits for the policy does not count, so a
  // pause for new weights times nothing out.
  absl::Duration episode_timeout = absl::Minutes(10);
  // Runs of one member of a ticket before it is reported as failed; >= 1.
  int max_attempts = 2;
};

struct EpisodeRunnerOptions {
  uint64_t seed = 0;  // the run's
  EpisodeLimits limits;
  SamplingParameters training_sampling;
  SamplingParameters evaluation_sampling;
};

// Plays many episodes at once, each a state machine:
//
//        Start
//          │                        answer late, error, exception: the attempt failed
//          ▼                 ┌──────────────► retryable and attempts left: resetting again (attempt + 1, same seed,
//          same random numbers)
//      resetting ────────────┤                else: FAILED trajectory
//          │ observation (delivered after the simulated latency, by a timer)
//          ▼
//   ┌─► generating  (a turn in the engine; ids of the observation go behind the ids so far, verbatim)
//   │      │ sampled ids; their text is the answer
//   │      ▼
//   └── stepping ──► terminated | truncated | turn limit | context full: COMPLETED trajectory
//
// Reward = sum of the rewards of the steps; none given = UNSCORED; a reward that is not finite = FAILED (fault SCORER).
// Failures:
//   ENVIRONMENT  reset_failed, step_failed (retryable) · text_not_encodable, legal_set_invalid, answer_limit_invalid,
//   prompt_too_long TIMEOUT      reset_timeout, step_timeout, episode_timeout (retryable) · what Fail is given
//   ("deadline") SCORER       reward_not_finite        POLICY_SERVER  logits_not_finite, version_gone        PROTOCOL
//   unknown_task
//
// One caller (the driving loop); no threads, nothing blocks; time from the clock given. A late answer of an abandoned
// attempt is ignored.
class EpisodeRunner {
 public:
  // All outlive the runner.
  EpisodeRunner(const EpisodeRunnerOptions& options, const Task* task, const Tokenizer* tokenizer, Engine* engine,
                EnvironmentExecutor* executor, const Clock* clock);
  ~EpisodeRunner();

  // Starts member `member` of the ticket.
  void Start(std::shared_ptr<const v1::Ticket> ticket, uint32_t member);
  // A member that is not to be started: a FAILED trajectory without having run.
  void Refuse(const v1::Ticket& ticket, uint32_t member, v1::Failure::Fault fault, const std::string& code,
              const std::string& message);
  // Ends the running episodes of a ticket's issue with FAILED trajectories (fault TIMEOUT, `code`).
  void FailTicket(const v1::Ticket& ticket, const std::string& code, const std::string& message);
  // Forgets episodes without a trajectory.
  void AbandonTicket(const v1::Ticket& ticket);
  void AbandonAll();

  // Takes the environments' answers and fires timers; starts turns in the engine. True if there was an answer or a
  // timer due.
  bool Poll();
  // What Engine::Step returned.
  void HandleFinishedTurns(absl::Span<const FinishedTurn> turns);
  // Moves the trajectories finished since the last call to the end of `trajectories`.
  void TakeFinished(std::vector<v1::Trajectory>* trajectories);

  int running_episodes() const;
  // When Poll has something to do at the latest, without an answer: timers and deadlines. Infinite: nothing.
  MonotonicTime NextTimer() const;

  // The environment call that has been waited for longest.
  struct EnvironmentWait {
    MonotonicTime since = MonotonicTime::InfiniteFuture();  // infinite: none
    std::string description;                                // "lake4x4: step of ticket 7 member 2 (attempt 1)"
  };
  EnvironmentWait OldestEnvironmentWait() const;

  struct Counters {
    int64_t completed = 0;
    int64_t failed = 0;
    int64_t retries = 0;
    int64_t turns = 0;
    double environment_seconds = 0;           // spent in environments, simulated latency included
    std::map<std::string, int64_t> failures;  // by code, failed attempts that were retried included
  };
  const Counters& counters() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace leeway

#endif  // LEEWAY_ROLLOUT_EPISODES_EPISODE_RUNNER_H_
