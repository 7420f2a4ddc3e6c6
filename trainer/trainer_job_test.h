#ifndef LEEWAY_TRAINER_TRAINER_JOB_TEST_H_
#define LEEWAY_TRAINER_TRAINER_JOB_TEST_H_

// Fixture of the tests that drive a whole Trainer: a job in a run directory, against a fake queue and a fake publisher.

#include <functional>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "queue/fake_queue_client.h"
#include "trainer/fake_rollout.h"
#include "trainer/temporary_directory_test.h"
#include "trainer/trainer.h"
#include "weightsync/fake_weight_publisher.h"

namespace leeway {

constexpr int kGroups = 3;
constexpr int kMembers = 4;

// A queue that replaces a retired group by what `replacement` makes of its ticket.
class ReplacingQueue : public FakeQueueTrainerClient {
 public:
  absl::Status RetireGroup(uint64_t lineage, uint64_t step, uint64_t ticket, const std::string& reason,
                           absl::Duration timeout) override {
    const absl::Status status = FakeQueueTrainerClient::RetireGroup(lineage, step, ticket, reason, timeout);
    if (status.ok() && on_retire) on_retire(step, ticket);
    return status;
  }

  absl::StatusOr<v1::LedgerCounts> Settle(uint64_t lineage, uint64_t step, absl::Duration timeout) override {
    absl::StatusOr<v1::LedgerCounts> counts = FakeQueueTrainerClient::Settle(lineage, step, timeout);
    if (counts.ok()) settled_through = step;
    return counts;
  }

  std::function<void(uint64_t step, uint64_t ticket)> on_retire;
  uint64_t settled_through = 0;
};

// One job in a run directory: the queue outlives the trainers that are started one after the other.
class TrainerJobTest : public ::testing::Test {
 protected:
  TrainerJobTest() : tokenizer_(*NewTokenizer("character")), parallel_(1) { UseDirectory("run"); }

  // Another run: its directory and its queue.
  void UseDirectory(const std::string& name) {
    options_.run_directory = JoinPath(directory_.path(), name);
    ASSERT_TRUE(files_->CreateDirectory(options_.run_directory).ok());
    queue_ = std::make_unique<ReplacingQueue>();
  }

  void SetUp() override {
    options_.seed = 11;
    options_.model = TinyShape();
    options_.steps = 4;
    options_.groups_per_step = kGroups;
    options_.group_size = kMembers;
    options_.optimizer.schedule.peak = 1e-2;
    options_.checkpoint_every = 2;
    options_.queue_timeout = absl::Milliseconds(200);
    options_.queue_patience = absl::Milliseconds(200);
    options_.lease_wait = absl::Milliseconds(10);
    options_.resolved_config = "seed = 11\n";
  }

  // Starts a trainer against the queue, with an engine that generates every batch from the version just committed.
  absl::Status Run() {
    FakeRollout rollout(options_.model, &parallel_);
    FakeWeightPublisher publisher;
    publisher.SetMembers(members_);
    publisher.SetOnCommit([&](const v1::Manifest& manifest, const std::string& bytes) {
      const auto* const values = reinterpret_cast<const float*>(bytes.data());
      rollout.SetWeights(manifest.weights(), {values, bytes.size() / sizeof(float)});
      digests_[manifest.weights().version()] = manifest.digest();
      if (on_commit_) on_commit_(manifest.weights().version(), &publisher);
    });
    queue_->SetBatchSource([&](uint64_t step) -> absl::StatusOr<LeasedBatch> {
      LeasedBatch batch = rollout.Batch(step, kGroups, kMembers);
      batch.lag_limit = options_.staleness_budget;
      if (change_batch_) change_batch_(step, &batch);
      return batch;
    });
    queue_->on_retire = [&](uint64_t step, uint64_t) {
      if (!replaces_) return;
      LeasedBatch batch = rollout.Batch(step, kGroups, kMembers);
      batch.lag_limit = options_.staleness_budget;
      queue_->ReplaceBatch(step, batch);
    };
    StateClock states;
    Metrics metrics;
    TrainerEnvironment environment;
    environment.queue = queue_.get();
    environment.publisher = &publisher;
    environment.tokenizer = tokenizer_.get();
    environment.task = task_;
    environment.parallel = &parallel_;
    environment.states = &states;
    environment.metrics = &metrics;
    environment.files = files_;
    Trainer trainer(options_, environment);
    trainer_ = &trainer;
    const absl::Status status = trainer.Run();
    trainer_ = nullptr;
    finished_ = trainer.finished_step();
    gauges_ = metrics.Snapshot();
    calls_ = publisher.calls();
    queue_->SetBatchSource(nullptr);
    return status;
  }

  std::string Read(const std::string& name) const {
    const auto content = files_->ReadFile(JoinPath(options_.run_directory, name));
    EXPECT_TRUE(content.ok()) << content.status();
    return content.value_or("");
  }
  bool Exists(const std::string& name) const { return files_->Exists(JoinPath(options_.run_directory, name)); }
  std::vector<nlohmann::json> Lines(const std::string& name) const {
    std::vector<nlohmann::json> lines;
    std::istringstream text(Read(name));
    for (std::string line; std::getline(text, line);) lines.push_back(nlohmann::json::parse(line));
    return lines;
  }
  std::vector<uint64_t> Steps(const std::string& name) const {
    std::vector<uint64_t> steps;
    for (const nlohmann::json& line : Lines(name)) steps.push_back(line["step"]);
    return steps;
  }
  // The files for which byte equality is claimed.
  std::string Claimed(uint64_t step) const {
    std::string all;
    for (const char* name : {"weights.safetensors", "optimizer.safetensors", "state.json"}) {
      all += Read("checkpoints/step-" + std::to_string(step) + "/" + name);
    }
    return all;
  }
  // No batch before the last checkpoint that was due is written.
  void AwaitCheckpoint(uint64_t step, LeasedBatch* batch) const {
    const uint64_t every = static_cast<uint64_t>(options_.checkpoint_every);
    const uint64_t due = (step - 1) / every * every;
    if (due > 0 && !Exists("checkpoints/step-" + std::to_string(due))) batch->groups.clear();
  }
  // What the queue says of its evaluations: results, and versions whose evaluation goes on.
  void SetEvaluations(const std::vector<uint64_t>& done, const std::vector<uint64_t>& running = {}) {
    v1::StatusResponse status;
    for (uint64_t version : done) {
      v1::EvaluationResult* result = status.add_evaluations();
      result->mutable_weights()->set_version(version);
      result->set_episodes(16);
      result->set_reward_mean(static_cast<double>(version) / 100);
      result->set_complete(true);
    }
    for (uint64_t version : running) status.add_evaluations()->mutable_weights()->set_version(version);
    queue_->SetStatus(status);
  }

  const TemporaryDirectory directory_;
  FileSystem* files_ = RealFileSystem();
  std::unique_ptr<Tokenizer> tokenizer_;
  ParallelFor parallel_;
  TrainerOptions options_;
  std::unique_ptr<ReplacingQueue> queue_;
  std::vector<v1::WorkerIdentity> members_;
  const Task* task_ = nullptr;
  bool replaces_ = true;
  std::function<void(uint64_t step, LeasedBatch* batch)> change_batch_;
  std::function<void(uint64_t version, FakeWeightPublisher* publisher)> on_commit_;
  // While Run runs.
  Trainer* trainer_ = nullptr;

  // Of the last Run.
  int64_t finished_ = 0;
  std::map<std::string, double> gauges_;
  std::vector<std::string> calls_;
  std::map<uint64_t, std::string> digests_;
};

}  // namespace leeway

#endif  // LEEWAY_TRAINER_TRAINER_JOB_TEST_H_
