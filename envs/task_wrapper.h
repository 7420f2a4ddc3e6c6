#ifndef LEEWAY_ENVS_TASK_WRAPPER_H_
#define LEEWAY_ENVS_TASK_WRAPPER_H_

#include <memory>
#include <string>
#include <utility>

#include "envs/environment.h"

namespace leeway {

// Does what the inner environment does. To be derived from by what changes one thing: latency, faults, a reward.
class EnvironmentWrapper : public Environment {
 public:
  explicit EnvironmentWrapper(std::unique_ptr<Environment> inner) : inner_(std::move(inner)) {}

  absl::StatusOr<Observation> Reset(uint64_t seed) override { return inner_->Reset(seed); }
  absl::StatusOr<StepResult> Step(const std::string& answer) override { return inner_->Step(answer); }
  absl::Duration SimulatedLatency() const override { return inner_->SimulatedLatency(); }

 protected:
  Environment& inner() { return *inner_; }
  const Environment& inner() const { return *inner_; }

 private:
  std::unique_ptr<Environment> inner_;
};

// A task around a task: same streams, limits and demonstrations, other environments. Derive and override
// NewEnvironmentFor (the keyless NewEnvironment then follows it, with a key of zeros).
class TaskWrapper : public Task {
 public:
  explicit TaskWrapper(std::unique_ptr<Task> inner) : inner_(std::move(inner)) {}

  std::string name() const override { return inner_->name(); }
  std::unique_ptr<Environment> NewEnvironment() const final { return NewEnvironmentFor(EpisodeKey{}); }
  std::unique_ptr<Environment> NewEnvironmentFor(const EpisodeKey& key) const override = 0;
  uint64_t TrainSeed(uint64_t run_seed, uint64_t index) const override { return inner_->TrainSeed(run_seed, index); }
  uint64_t EvaluationSeed(uint64_t run_seed, uint64_t index) const override {
    return inner_->EvaluationSeed(run_seed, index);
  }
  uint64_t train_size() const override { return inner_->train_size(); }
  std::optional<Demonstration> Demonstrate(uint64_t seed) const override { return inner_->Demonstrate(seed); }
  int max_turns() const override { return inner_->max_turns(); }
  int max_episode_tokens() const override { return inner_->max_episode_tokens(); }
  std::string vocabulary() const override { return inner_->vocabulary(); }

 protected:
  const Task& inner() const { return *inner_; }

 private:
  std::unique_ptr<Task> inner_;
};

}  // namespace leeway

#endif  // LEEWAY_ENVS_TASK_WRAPPER_H_
