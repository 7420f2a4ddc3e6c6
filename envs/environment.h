#ifndef LEEWAY_ENVS_ENVIRONMENT_H_
#define LEEWAY_ENVS_ENVIRONMENT_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace leeway {

// What the policy sees next, and what it may answer.
struct Observation {
  // Appended, tokenised on its own, to the episode's ids. May be empty (an environment that says nothing before the
  // next move).
  std::string text;
  // Characters the answer may consist of; absent = every token of the vocabulary. With a legal set the end-of-text
  // token is legal only if `end_of_text_is_legal`.
  std::optional<std::string> legal_characters;
  bool end_of_text_is_legal = true;
  // The turn ends after so many sampled tokens at the latest (stop reason LENGTH), earlier at a sampled end-of-text.
  int max_answer_tokens = 1;
};

// How an episode stands after a step. The two ends are different: nothing of value lies beyond a terminated one.
enum class EpisodeState { kRunning, kTerminated, kTruncated };

struct StepResult {
  // Meaningful only while running.
  Observation next;
  EpisodeState state = EpisodeState::kRunning;
  // Absent = not scored in this step. The episode's reward is the sum of the rewards given; an episode without any is
  // UNSCORED.
  std::optional<double> reward;
};

// One episode's world. Created per episode; used by one thread at a time; may block (it runs on threads of class "env",
// with the deadlines of the episode runner) but should not for long.
//
//   Reset ──► running ──Step──► running … ──Step──► terminated | truncated      (no calls after the end)
//
// Everything random in it comes from the seed: two environments of one name and seed, given the same answers, say the
// same. Errors: any non-OK status is a failed episode (fault ENVIRONMENT), never a reward.
class Environment {
 public:
  virtual ~Environment() = default;

  virtual absl::StatusOr<Observation> Reset(uint64_t seed) = 0;
  // `answer` is the text of the sampled tokens of the turn, end-of-text left out.
  virtual absl::StatusOr<StepResult> Step(const std::string& answer) = 0;
  // Time that the environment is deemed to work on the last call before its answer is delivered: simulated latency that
  // holds no thread.
  virtual absl::Duration SimulatedLatency() const { return absl::ZeroDuration(); }
};

// A conversation that solves the instance of `seed`: (what the environment says, what a perfect policy answers) per
// turn. An answer shorter than its observation's max_answer_tokens ends with a sampled end-of-text, which is not
// written out here. For the supervised warm start.
struct Demonstration {
  std::vector<std::pair<Observation, std::string>> turns;
};

// Whose episode an environment plays. Keys what must differ between the members of a group (random transitions,
// injected latency, injected faults), never the task instance, which is the same for all members and comes with Reset's
// seed.
struct EpisodeKey {
  uint64_t run_seed = 0;
  uint64_t ticket = 0;  // evaluation episodes: the evaluation id
  uint32_t member = 0;
  // 1, 2, ...: for injected faults alone, so that a repeated episode is not doomed to the same fault. Nothing that a
  // policy can see may depend on it.
  uint32_t attempt = 1;
};

// A task: names it, makes its environments, knows its streams.  Thread-safe.
class Task {
 public:
  virtual ~Task() = default;
  virtual std::string name() const = 0;
  virtual std::unique_ptr<Environment> NewEnvironment() const = 0;
  // The environment of one episode: this is what the episode runner calls. To be overridden by what needs the key.
  virtual std::unique_ptr<Environment> NewEnvironmentFor(const EpisodeKey& key) const { return NewEnvironment(); }

  // Seed of the instance at `index` of the training stream or of the held-out stream. The streams never share an
  // instance as far as the task can tell instances apart. Procedural tasks are endless.
  virtual uint64_t TrainSeed(uint64_t run_seed, uint64_t index) const = 0;
  virtual uint64_t EvaluationSeed(uint64_t run_seed, uint64_t index) const = 0;
  // 0 = endless; otherwise the training stream repeats after so many instances (an epoch).
  virtual uint64_t train_size() const { return 0; }

  // Absent where the task has none.
  virtual std::optional<Demonstration> Demonstrate(uint64_t seed) const { return std::nullopt; }

  // Limits that the run configuration is checked against.
  virtual int max_turns() const = 0;
  // Upper bound on the ids of one episode (prompts and answers) under a one-token-per-character vocabulary.
  virtual int max_episode_tokens() const = 0;
  // "character" or "byte": which built-in vocabulary the task is written for.
  virtual std::string vocabulary() const { return "character"; }
};

}  // namespace leeway

#endif  // LEEWAY_ENVS_ENVIRONMENT_H_
