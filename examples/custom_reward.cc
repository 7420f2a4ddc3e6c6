// A reward of your own for a task that exists: sort5, but only a perfect answer counts, and each wasted token costs a
// little.
//
// Shows: a wrapper around the environments of a built-in task that replaces the reward and keeps everything else
// (instances, streams, demonstrations, limits), registered as a task of its own. Build and run:
//   ninja -C build custom_reward && build/examples/custom_reward

#include <algorithm>
#include <iostream>
#include <memory>
#include <string>
#include <utility>

#include "envs/environment.h"
#include "envs/play.h"
#include "envs/registry.h"
#include "envs/task_wrapper.h"

namespace leeway {
namespace {

// 1 for five sorted digits of the prompt, else 0; minus 0.01 for each character that is no digit.
double StrictReward(std::string prompt, const std::string& answer) {
  prompt.pop_back();  // the '>'
  std::sort(prompt.begin(), prompt.end());
  const auto is_digit = [](char character) { return character >= '0' && character <= '9'; };
  const auto wasted = std::count_if(answer.begin(), answer.end(), [&](char character) { return !is_digit(character); });
  return (answer == prompt ? 1.0 : 0.0) - 0.01 * static_cast<double>(wasted);
}

class StrictEnvironment : public EnvironmentWrapper {
 public:
  using EnvironmentWrapper::EnvironmentWrapper;

  absl::StatusOr<Observation> Reset(uint64_t seed) override {
    absl::StatusOr<Observation> observation = inner().Reset(seed);
    if (observation.ok()) prompt_ = observation->text;
    return observation;
  }

  absl::StatusOr<StepResult> Step(const std::string& answer) override {
    absl::StatusOr<StepResult> result = inner().Step(answer);
    // A failure stays a failure, and a step that was not scored stays unscored: only a reward is replaced by a reward.
    if (result.ok() && result->reward.has_value()) result->reward = StrictReward(prompt_, answer);
    return result;
  }

 private:
  std::string prompt_;
};

class StrictTask : public TaskWrapper {
 public:
  using TaskWrapper::TaskWrapper;

  std::string name() const override { return "sort5_strict"; }
  std::unique_ptr<Environment> NewEnvironmentFor(const EpisodeKey& key) const override {
    return std::make_unique<StrictEnvironment>(inner().NewEnvironmentFor(key));
  }
};

absl::StatusOr<std::unique_ptr<Task>> NewStrictTask(const TaskOptions& options) {
  TaskOptions inner_options = options;
  inner_options.name = "sort5";
  // The outer task gets the wrappers of the options; the inner one must not get them too.
  inner_options.latency.clear();
  inner_options.faults.clear();
  absl::StatusOr<std::unique_ptr<Task>> inner = NewTask(inner_options);
  if (!inner.ok()) return inner.status();
  return std::make_unique<StrictTask>(*std::move(inner));
}

int Run() {
  const absl::Status registered = RegisterTask("sort5_strict", NewStrictTask);
  if (!registered.ok()) return std::cerr << registered << "\n", 1;
  const auto strict = NewTask({.name = "sort5_strict"});
  const auto built_in = NewTask({.name = "sort5"});
  if (!strict.ok() || !built_in.ok()) return std::cerr << strict.status() << built_in.status() << "\n", 1;

  const uint64_t seed = (*strict)->TrainSeed(/*run_seed=*/1, /*index=*/0);
  const std::string right = (*strict)->Demonstrate(seed)->turns[0].second;
  const struct {
    std::string answer;
    double expected;
  } cases[] = {{right, 1.0}, {right.substr(0, 4), 0.0}, {right.substr(0, 4) + "x", -0.01}, {"?????", -0.05}};
  for (const auto& [answer, expected] : cases) {
    const auto policy = [&text = answer](const Observation&) { return text; };
    const auto episode = PlayEpisode(*(*strict)->NewEnvironment(), seed, policy, 1);
    const auto usual = PlayEpisode(*(*built_in)->NewEnvironment(), seed, policy, 1);
    if (!episode.ok() || !usual.ok()) return std::cerr << episode.status() << usual.status() << "\n", 1;
    std::cout << episode->transcript << "  built-in reward " << *usual->reward << ", own reward " << *episode->reward
              << "\n";
    if (*episode->reward != expected) return std::cerr << "expected " << expected << "\n", 1;
  }
  return 0;
}

}  // namespace
}  // namespace leeway

int main() { return leeway::Run(); }
