#include "envs/tasks/guess20.h"

#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/random.h"
#include "base/status_macros.h"

namespace leeway {
namespace {

constexpr int kNumbers = 20;
constexpr int kMaxTurns = 10;
constexpr double kCostOfATurn = 0.05;

int SecretOfSeed(uint64_t seed) {
  return 1 + static_cast<int>(RandomBelow({.seed = seed, .purpose = RandomPurpose::kTask}, kNumbers));
}

Observation ObservationOf(std::string text) {
  Observation observation;
  observation.text = std::move(text);
  observation.legal_characters = "0123456789";
  observation.end_of_text_is_legal = false;
  observation.max_answer_tokens = 2;
  return observation;
}

std::string HintOf(int secret, int guess) { return secret > guess ? "h" : "l"; }

class Guess20Environment : public Environment {
 public:
  absl::StatusOr<Observation> Reset(uint64_t seed) override {
    secret_ = SecretOfSeed(seed);
    turns_ = 0;
    is_running_ = true;
    return ObservationOf(">");
  }

  absl::StatusOr<StepResult> Step(const std::string& answer) override {
    if (!is_running_) return absl::FailedPreconditionError("Step without a running episode: call Reset first");
    if (answer.size() != 2 || !absl::ascii_isdigit(answer[0]) || !absl::ascii_isdigit(answer[1])) {
      return absl::InvalidArgumentError(absl::StrCat("'", absl::CHexEscape(answer), "' is not a guess of two digits"));
    }
    const int guess = (answer[0] - '0') * 10 + (answer[1] - '0');
    ++turns_;
    StepResult result;
    if (guess == secret_) {
      result.state = EpisodeState::kTerminated;
      result.reward = 1.0 - kCostOfATurn * (turns_ - 1);
    } else if (turns_ == kMaxTurns) {
      result.state = EpisodeState::kTruncated;
      result.reward = 0.0;
    } else {
      result.next = ObservationOf(HintOf(secret_, guess));
    }
    is_running_ = result.state == EpisodeState::kRunning;
    return result;
  }

 private:
  int secret_ = 0;
  int turns_ = 0;
  bool is_running_ = false;
};

class Guess20Task : public Task {
 public:
  std::string name() const override { return "guess20"; }
  std::unique_ptr<Environment> NewEnvironment() const override { return std::make_unique<Guess20Environment>(); }
  uint64_t TrainSeed(uint64_t run_seed, uint64_t index) const override {
    return RandomU64({.seed = run_seed, .purpose = RandomPurpose::kTask, .ticket = index});
  }
  uint64_t EvaluationSeed(uint64_t run_seed, uint64_t index) const override {
    return RandomU64({.seed = run_seed, .purpose = RandomPurpose::kEvaluationTask, .ticket = index});
  }

  std::optional<Demonstration> Demonstrate(uint64_t seed) const override {
    const int secret = SecretOfSeed(seed);
    Demonstration demonstration;
    std::string text = ">";
    for (int low = 1, high = kNumbers; low <= high;) {
      const int guess = (low + high) / 2;
      demonstration.turns.emplace_back(ObservationOf(text), absl::StrFormat("%02d", guess));
      if (guess == secret) break;
      text = HintOf(secret, guess);
      (secret > guess ? low : high) = secret > guess ? guess + 1 : guess - 1;
    }
    return demonstration;
  }

  int max_turns() const override { return kMaxTurns; }
  // The beginning, the first observation, ten guesses, nine hints.
  int max_episode_tokens() const override { return 1 + 1 + 2 * kMaxTurns + (kMaxTurns - 1); }
};

}  // namespace

std::unique_ptr<Task> NewGuess20Task() { return std::make_unique<Guess20Task>(); }

}  // namespace leeway
