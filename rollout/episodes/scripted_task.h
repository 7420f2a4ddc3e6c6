#ifndef LEEWAY_ROLLOUT_EPISODES_SCRIPTED_TASK_H_
#define LEEWAY_ROLLOUT_EPISODES_SCRIPTED_TASK_H_

// A task whose environments do what a test says.

#include <functional>
#include <memory>
#include <string>

#include "envs/environment.h"

namespace leeway {

class ScriptedTask : public Task {
 public:
  // `call` counts the calls of one environment: 0 = Reset. All run on whatever thread the executor uses.
  struct Script {
    std::function<absl::StatusOr<Observation>(const EpisodeKey& key, uint64_t seed)> reset =
        [](const EpisodeKey&, uint64_t) { return Ask("1"); };
    std::function<absl::StatusOr<StepResult>(const EpisodeKey& key, int call, const std::string& answer)> step =
        [](const EpisodeKey&, int, const std::string&) { return End(1.0); };
    std::function<absl::Duration(const EpisodeKey& key, int call)> latency = [](const EpisodeKey&, int) {
      return absl::ZeroDuration();
    };
    int max_turns = 10;
    std::string name = "scripted";
  };

  static Observation Ask(const std::string& text, int max_answer_tokens = 3) {
    Observation observation;
    observation.text = text;
    observation.max_answer_tokens = max_answer_tokens;
    return observation;
  }
  static StepResult Continue(const std::string& text, std::optional<double> reward = std::nullopt) {
    StepResult result;
    result.next = Ask(text);
    result.state = EpisodeState::kRunning;
    result.reward = reward;
    return result;
  }
  static StepResult End(std::optional<double> reward, EpisodeState state = EpisodeState::kTerminated) {
    StepResult result;
    result.state = state;
    result.reward = reward;
    return result;
  }

  explicit ScriptedTask(Script script) : script_(std::move(script)) {}
  std::string name() const override { return script_.name; }
  std::unique_ptr<Environment> NewEnvironment() const override { return NewEnvironmentFor({}); }
  std::unique_ptr<Environment> NewEnvironmentFor(const EpisodeKey& key) const override {
    return std::make_unique<World>(&script_, key);
  }
  uint64_t TrainSeed(uint64_t run_seed, uint64_t index) const override { return run_seed + index; }
  uint64_t EvaluationSeed(uint64_t run_seed, uint64_t index) const override { return run_seed + 1'000'000 + index; }
  int max_turns() const override { return script_.max_turns; }
  int max_episode_tokens() const override { return 64; }

 private:
  class World : public Environment {
   public:
    World(const Script* script, const EpisodeKey& key) : script_(script), key_(key) {}
    absl::StatusOr<Observation> Reset(uint64_t seed) override { return script_->reset(key_, seed); }
    absl::StatusOr<StepResult> Step(const std::string& answer) override { return script_->step(key_, ++call_, answer); }
    absl::Duration SimulatedLatency() const override { return script_->latency(key_, call_); }

   private:
    const Script* const script_;
    const EpisodeKey key_;
    int call_ = 0;
  };

  const Script script_;
};

}  // namespace leeway

#endif  // LEEWAY_ROLLOUT_EPISODES_SCRIPTED_TASK_H_
