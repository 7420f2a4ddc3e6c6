// A task of your own: counting down. "7>" wants "6543210"; the environment says after each digit whether it was right.
//
// Shows: an Environment of several turns with a legal set, its Task with train and held-out stream and demonstrations,
// its registration under a name, and a scripted policy that plays it. Build and run:
//   ninja -C build custom_environment && build/examples/custom_environment

#include <iostream>
#include <memory>
#include <optional>
#include <string>

#include "base/random.h"
#include "envs/environment.h"
#include "envs/play.h"
#include "envs/registry.h"

namespace leeway {
namespace {

// The instance: everything random comes from the seed, so equal seeds give equal episodes.
int StartOfSeed(uint64_t seed) {
  return 1 + static_cast<int>(RandomBelow({.seed = seed, .purpose = RandomPurpose::kTask}, 9));
}

Observation ObservationOf(std::string text) {
  Observation observation;
  observation.text = std::move(text);
  observation.legal_characters = "0123456789";  // the sampler is held to these
  observation.end_of_text_is_legal = false;
  observation.max_answer_tokens = 1;  // one digit a turn
  return observation;
}

class CountdownEnvironment : public Environment {
 public:
  absl::StatusOr<Observation> Reset(uint64_t seed) override {
    next_digit_ = StartOfSeed(seed) - 1;
    return ObservationOf(std::to_string(next_digit_ + 1) + ">");
  }

  absl::StatusOr<StepResult> Step(const std::string& answer) override {
    // An error is a failed episode, never a reward. Here it would be a fault of the caller: the legal set excludes it.
    if (answer.size() != 1) return absl::InvalidArgumentError("expected one digit, got '" + answer + "'");
    StepResult result;
    if (answer[0] != '0' + next_digit_) {
      result.state = EpisodeState::kTerminated;
      result.reward = 0.0;
    } else if (next_digit_ == 0) {
      result.state = EpisodeState::kTerminated;
      result.reward = 1.0;
    } else {
      --next_digit_;
      result.next = ObservationOf("");  // still running, nothing to say, not scored in this step
    }
    return result;
  }

 private:
  int next_digit_ = 0;
};

class CountdownTask : public Task {
 public:
  std::string name() const override { return "countdown"; }
  std::unique_ptr<Environment> NewEnvironment() const override { return std::make_unique<CountdownEnvironment>(); }

  // With only nine instances the streams share them; a larger task keeps them apart with envs/stream_split.h.
  uint64_t TrainSeed(uint64_t run_seed, uint64_t index) const override {
    return RandomU64({.seed = run_seed, .purpose = RandomPurpose::kTask, .ticket = index});
  }
  uint64_t EvaluationSeed(uint64_t run_seed, uint64_t index) const override {
    return RandomU64({.seed = run_seed, .purpose = RandomPurpose::kEvaluationTask, .ticket = index});
  }

  // For a supervised warm start; optional.
  std::optional<Demonstration> Demonstrate(uint64_t seed) const override {
    Demonstration demonstration;
    const int start = StartOfSeed(seed);
    for (int digit = start - 1; digit >= 0; --digit) {
      const std::string text = digit == start - 1 ? std::to_string(start) + ">" : "";
      demonstration.turns.emplace_back(ObservationOf(text), std::to_string(digit));
    }
    return demonstration;
  }

  int max_turns() const override { return 9; }
  int max_episode_tokens() const override { return 1 + 2 + 9; }  // beginning, "9>", nine digits
};

int Run() {
  const absl::Status registered = RegisterTask(
      "countdown",
      [](const TaskOptions&) -> absl::StatusOr<std::unique_ptr<Task>> { return std::make_unique<CountdownTask>(); });
  if (!registered.ok()) return std::cerr << registered << "\n", 1;

  // From here on the task is one of many: wrappers such as latency work with it as with any other.
  const auto task = NewTask({.name = "countdown", .latency = "lognormal(median=5ms, sigma=1)"});
  if (!task.ok()) return std::cerr << task.status() << "\n", 1;

  for (uint64_t index = 0; index < 5; ++index) {
    const auto environment = (*task)->NewEnvironmentFor({.run_seed = 1, .ticket = index + 1});
    // A scripted policy with a flaw: it counts down, but says 3 after 4 only half of the time.
    std::optional<int> last;
    const auto policy = [&](const Observation& observation) {
      last = observation.text.empty() ? *last - 1 : observation.text[0] - '0' - 1;
      return std::to_string(*last == 3 && index % 2 == 1 ? 2 : *last);
    };
    const auto episode = PlayEpisode(*environment, (*task)->TrainSeed(1, index), policy, (*task)->max_turns());
    if (!episode.ok()) return std::cerr << episode.status() << "\n", 1;
    std::cout << episode->transcript << "  reward " << *episode->reward << " after " << episode->turns << " turns\n";
    const bool skips_three = index % 2 == 1 && episode->transcript[0] > '3';
    if (*episode->reward != (skips_three ? 0.0 : 1.0)) return std::cerr << "unexpected reward\n", 1;
  }
  return 0;
}

}  // namespace
}  // namespace leeway

int main() { return leeway::Run(); }
