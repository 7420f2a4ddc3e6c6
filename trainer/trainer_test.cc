#include "trainer/trainer.h"

#include <cmath>
#include <functional>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "trainer/trainer_job_test.h"

namespace leeway {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

using TrainerTest = TrainerJobTest;

TEST_F(TrainerTest, EveryStepIsPublishedCommittedAndRecordedInOrder) {
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(finished_, 4);
  const std::vector<v1::CommitRequest> commits = queue_->commits();
  ASSERT_THAT(commits, SizeIs(5));
  EXPECT_TRUE(commits[0].initial());
  EXPECT_EQ(commits[0].version(), 1u);
  EXPECT_THAT(commits[0].tickets(), IsEmpty());
  for (uint64_t step = 1; step <= 4; ++step) {
    const v1::CommitRequest& commit = commits[step];
    EXPECT_FALSE(commit.initial());
    EXPECT_EQ(commit.lineage(), 1u);
    EXPECT_EQ(commit.version(), step + 1);
    EXPECT_THAT(commit.tickets(), ElementsAre(3 * step - 2, 3 * step - 1, 3 * step));
    EXPECT_EQ(commit.digest(), digests_[step + 1]);
    EXPECT_NE(commit.digest(), commits[step - 1].digest());
  }
  EXPECT_THAT(calls_, ElementsAre("prepare 1.1", "commit 1.1", "prepare 1.2", "commit 1.2", "prepare 1.3", "commit 1.3",
                                  "prepare 1.4", "commit 1.4", "prepare 1.5", "commit 1.5"));
  EXPECT_THAT(Steps("metrics.jsonl"), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(Steps("schedule.jsonl"), ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(Read("checkpoints/latest"), "step-4\n");
  EXPECT_THAT(Lines("trajectories/step-1.jsonl"), SizeIs(kMembers));
  // Step 2 settles when the checkpoint of step 4 is not the only one any more; the end settles all.
  EXPECT_THAT(queue_->settled(), ElementsAre(2, 4));
  const json state = json::parse(Read("checkpoints/step-4/state.json"));
  EXPECT_EQ(state["consumed_tickets"], (json{{1, 12}}));
  EXPECT_EQ(state["version"], 5);
  const json run_state = json::parse(Read("checkpoints/step-4/run_state.json"));
  EXPECT_EQ(run_state["config"], "seed = 11\n");
  EXPECT_EQ(Read("checkpoints/step-4/ledger.bin"), "ledger");
}

// The values of a scripted run that follow from the script, and the ones that must be exact at lag 0.
TEST_F(TrainerTest, GoldenMetricsOfThreeSteps) {
  options_.steps = 3;
  options_.advantage = AdvantageKind::kRloo;
  options_.optimizer.schedule.warmup_steps = 2;
  v1::LedgerCounts counts;
  counts.set_issued_total(9);
  counts.set_ready(2);
  counts.set_trained(7);
  queue_->SetCounts(counts);
  v1::StatusResponse status;
  status.set_groups(5);
  status.set_bytes(640);
  status.set_generated_length_mean(4.5);
  status.set_generated_tokens(900);
  queue_->SetStatus(status);
  v1::WorkerIdentity member;
  member.set_producer_id(1);
  members_ = {member};
  on_commit_ = [&](uint64_t version, FakeWeightPublisher*) {
    if (version != 3) return;
    status.set_generated_tokens(1100);  // 100 trajectories of 2 tokens more
    status.set_generated_length_mean(1100.0 / 300);
    queue_->SetStatus(status);
  };
  change_batch_ = [](uint64_t step, LeasedBatch* batch) {
    // Group by group: 0 and 1 alternating; all equal; unscored but for one.
    for (int m = 0; m < kMembers; ++m) {
      batch->groups[0].members[m].mutable_score()->set_reward(m % 2);
      batch->groups[1].members[m].mutable_score()->set_reward(1);
      v1::Score* score = batch->groups[2].members[m].mutable_score();
      score->set_reward(0.5);
      if (m == 0) continue;
      score->set_status(m == 1 ? v1::Score::UNSCORED : v1::Score::SCORING_FAILED);
      score->clear_reward();
    }
  };
  ASSERT_TRUE(Run().ok());
  const std::vector<json> lines = Lines("metrics.jsonl");
  ASSERT_THAT(lines, SizeIs(3));
  for (int i = 0; i < 3; ++i) {
    const json& line = lines[i];
    EXPECT_EQ(line["step"], i + 1);
    EXPECT_EQ(line["version"], i + 2);
    EXPECT_EQ(line["lineage"], 1);
    // 9 rewards: 0 1 0 1, 1 1 1 1, 0.5.
    EXPECT_DOUBLE_EQ(line["reward/mean"], 6.5 / 9);
    EXPECT_EQ(line["reward/unscored"], 3);
    EXPECT_EQ(line["tokens/trained"], 45);  // 9 episodes of 5 sampled tokens
    EXPECT_EQ(line["tokens/masked"], 0);
    EXPECT_EQ(line["length/trained_mean"], 5);
    EXPECT_EQ(line["staleness/max"], 0);
    EXPECT_EQ(line["staleness/mean"], 0);
    EXPECT_EQ(line["staleness/histogram"], (json{45}));
    // On policy: all ratios are 1, so the loss is minus the mean of the advantages, which sum to zero in every group.
    EXPECT_NEAR(line["policy/loss"], 0.0, 1e-15);
    EXPECT_EQ(line["policy/clip_fraction"], 0);
    EXPECT_EQ(line["policy/kl_old"], 0);
    EXPECT_EQ(line["mismatch/k1"], 0);
    EXPECT_EQ(line["mismatch/k3"], 0);
    EXPECT_EQ(line["mismatch/ratio_max"], 1);
    EXPECT_EQ(line["mismatch/ess"], 1);
    // 3 of 5 tokens out of 8 legal ones, 2 out of 64, from a nearly uniform policy.
    EXPECT_NEAR(line["policy/entropy"], (3 * std::log(8.0) + 2 * std::log(64.0)) / 5, 0.05);
    EXPECT_DOUBLE_EQ(line["optimizer/lr"], i == 0 ? 0.5e-2 : 1e-2);
    EXPECT_EQ(line["optimizer/skipped_steps"], 0);
    EXPECT_EQ(line["ledger/issued_total"], 9);
    EXPECT_EQ(line["ledger/trained"], 7);
    EXPECT_EQ(line["queue/groups"], 5);
    EXPECT_EQ(line["queue/bytes"], 640);
    // Since the last line.
    EXPECT_EQ(line["length/generated_mean"], (std::vector<double>{4.5, 2, 0}[i]));
    EXPECT_EQ(line["tokens/generated"], (std::vector<int>{900, 200, 0}[i]));
    EXPECT_EQ(line["weights/members"], 1);
    EXPECT_EQ(line["weights/bytes"], TinyShape().ParameterCount() * 4);
    EXPECT_TRUE(line.contains("wait/trainer/waiting_for_groups_s"));
    EXPECT_TRUE(line.contains("busy/trainer/train_s"));
    EXPECT_TRUE(line.contains("cpu/trainer_s"));
    EXPECT_GT(line.value("cpu/trainer/compute_s", 0.0), 0);
    EXPECT_FALSE(line.contains("eval/reward"));
  }
  EXPECT_EQ(gauges_["step"], 3);
  EXPECT_EQ(gauges_["tokens/trained"], 45);
}

TEST_F(TrainerTest, TwoRunsGiveEqualBytes) {
  ASSERT_TRUE(Run().ok());
  const std::string first = Claimed(4);
  UseDirectory("again");
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(Claimed(4), first);
}

TEST_F(TrainerTest, AStopRequestEndsAfterTheStepWithACheckpointAndCanBeContinued) {
  options_.checkpoint_every = 0;
  ASSERT_TRUE(Run().ok());
  const std::string expected = Claimed(4);
  UseDirectory("stopped");
  on_commit_ = [&](uint64_t version, FakeWeightPublisher*) {
    if (version == 4 && queue_->lineage() == 1) trainer_->RequestStop();
  };
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(finished_, 3);
  EXPECT_TRUE(Exists("checkpoints/step-3"));
  EXPECT_THAT(queue_->settled(), IsEmpty());
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(finished_, 4);
  EXPECT_EQ(Claimed(4), expected);
  // A third start has nothing to train, and ends well.
  ASSERT_TRUE(Run().ok());
  EXPECT_THAT(Steps("metrics.jsonl"), ElementsAre(1, 2, 3, 4));
}

TEST_F(TrainerTest, ADrainedQueueEndsTheRunLikeAStop) {
  change_batch_ = [](uint64_t step, LeasedBatch* batch) {
    if (step < 3) return;
    batch->groups.clear();
    batch->cause = "draining";
  };
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(finished_, 2);
  EXPECT_TRUE(Exists("checkpoints/step-2"));
}

TEST_F(TrainerTest, APublishWithoutReceiversCommitsToo) {
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(queue_->commits()[4].members_size(), 0);
}

TEST_F(TrainerTest, EvaluatedVersionsHaveTheirResultInTheirLine) {
  options_.eval_every = 3;
  SetEvaluations({1, 4, 5});
  ASSERT_TRUE(Run().ok());
  std::map<uint64_t, double> rewards;
  for (const json& line : Lines("metrics.jsonl")) {
    if (line.contains("eval/reward")) rewards[line["version"]] = line["eval/reward"];
  }
  EXPECT_THAT(Steps("metrics.jsonl"), ElementsAre(0, 1, 2, 3, 4));
  // Every third, the first and the last.
  EXPECT_THAT(rewards, ElementsAre(std::pair(1, 0.01), std::pair(4, 0.04), std::pair(5, 0.05)));
}

TEST_F(TrainerTest, LinesHeldForAnEvaluationSurviveARestart) {
  options_.eval_every = 2;
  SetEvaluations({1}, {3, 5});
  on_commit_ = [&](uint64_t version, FakeWeightPublisher*) {
    if (version == 5 && queue_->lineage() == 1) trainer_->RequestStop();
  };
  ASSERT_TRUE(Run().ok());
  // Version 3 was not evaluated: its line and all behind it are held.
  EXPECT_THAT(Steps("metrics.jsonl"), ElementsAre(0, 1));
  SetEvaluations({3, 5});
  ASSERT_TRUE(Run().ok());
  EXPECT_THAT(Steps("metrics.jsonl"), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_EQ(Lines("metrics.jsonl")[2]["eval/reward"], 0.03);
  EXPECT_EQ(Lines("metrics.jsonl")[4]["eval/reward"], 0.05);
}

// Evaluations are not part of the ledger: a new queue only knows of the version that the restore published again.
TEST_F(TrainerTest, LinesWhoseEvaluationsEndedWithTheQueueAreWrittenAtOnce) {
  options_.eval_every = 2;
  options_.steps = 6;
  options_.evaluation_wait = absl::Seconds(3);
  SetEvaluations({1}, {3, 5});
  on_commit_ = [&](uint64_t version, FakeWeightPublisher*) {
    if (version == 5) trainer_->RequestStop();
  };
  ASSERT_TRUE(Run().ok());
  EXPECT_THAT(Steps("metrics.jsonl"), ElementsAre(0, 1));
  queue_ = std::make_unique<ReplacingQueue>();
  SetEvaluations({}, {5});
  on_commit_ = [&](uint64_t version, FakeWeightPublisher*) {
    if (version != 6) return;
    EXPECT_THAT(Steps("metrics.jsonl"), ElementsAre(0, 1, 2, 3));
    SetEvaluations({5, 7});
  };
  ASSERT_TRUE(Run().ok());
  const std::vector<json> lines = Lines("metrics.jsonl");
  ASSERT_THAT(Steps("metrics.jsonl"), ElementsAre(0, 1, 2, 3, 4, 5, 6));
  EXPECT_FALSE(lines[2].contains("eval/complete"));
  EXPECT_EQ(lines[4]["eval/reward"], 0.05);
  EXPECT_EQ(lines[6]["eval/reward"], 0.07);
}

TEST_F(TrainerTest, AQueueThatIsAwayDoesNotEndTheWaitForTheLastEvaluation) {
  options_.eval_every = 4;
  SetEvaluations({1}, {5});
  on_commit_ = [&](uint64_t version, FakeWeightPublisher*) {
    if (version != 5) return;
    SetEvaluations({1, 5});
    // One look for the line of step 4, one for its evaluation.
    for (int i = 0; i < 2; ++i) queue_->FailNext("GetStatus", absl::UnavailableError("away"));
  };
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(Lines("metrics.jsonl").back()["eval/reward"], 0.05);
}

TEST_F(TrainerTest, AnEvaluationThatNeverComesIsGivenUp) {
  options_.eval_every = 4;
  SetEvaluations({}, {1, 5});
  options_.evaluation_wait = absl::Milliseconds(50);
  ASSERT_TRUE(Run().ok());
  EXPECT_THAT(Steps("metrics.jsonl"), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_EQ(Lines("metrics.jsonl")[0]["eval/complete"], 0);
}

TEST_F(TrainerTest, AnotherSeedIsNotResumed) {
  ASSERT_TRUE(Run().ok());
  options_.seed = 12;
  const absl::Status status = Run();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("seed = 12"), HasSubstr("seed 11")));
}

TEST_F(TrainerTest, UnusableOptionsAreAllNamedBeforeAnythingIsAskedOfTheQueue) {
  options_.steps = 0;
  options_.updates_per_step = 9;
  options_.objective.correction = CorrectionKind::kTis;
  const absl::Status status = Run();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("trainer.steps"), HasSubstr("trainer.updates_per_step"),
                                                   HasSubstr("objective.correction")));
  EXPECT_EQ(queue_->lineage(), 0u);
}

// Demonstrates answering "a" with "b".
class OneAnswerTask : public Task {
 public:
  std::string name() const override { return "one_answer"; }
  std::unique_ptr<Environment> NewEnvironment() const override { return nullptr; }
  uint64_t TrainSeed(uint64_t, uint64_t index) const override { return index; }
  uint64_t EvaluationSeed(uint64_t, uint64_t index) const override { return index; }
  std::optional<Demonstration> Demonstrate(uint64_t) const override {
    ++demonstrated;
    if (on_demonstrate) on_demonstrate();
    Observation observation;
    observation.text = "a";
    Demonstration demonstration;
    demonstration.turns.emplace_back(observation, "b");
    return demonstration;
  }
  int max_turns() const override { return 1; }
  int max_episode_tokens() const override { return 3; }

  mutable int demonstrated = 0;
  std::function<void()> on_demonstrate;
};

TEST_F(TrainerTest, AWarmStartComesOnceBeforeVersionOneWithItsOwnCheckpoint) {
  OneAnswerTask task;
  task_ = &task;
  options_.warm_start.steps = 5;
  options_.warm_start.examples_per_step = 2;
  on_commit_ = [&](uint64_t version, FakeWeightPublisher*) {
    // Die in the first step: nothing but the warm start's checkpoint is left.
    if (version == 1 && queue_->lineage() == 1) queue_->FailNext("Commit", absl::AbortedError("fenced"));
  };
  EXPECT_EQ(Run().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(task.demonstrated, 10);
  EXPECT_TRUE(Exists("checkpoints/step-0"));
  const std::string digest = digests_[1];
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(task.demonstrated, 10);
  EXPECT_EQ(digests_[1], digest);
  // The optimizer of the run starts fresh.
  EXPECT_EQ(json::parse(Read("checkpoints/step-2/state.json"))["optimizer_updates"], 2);
  EXPECT_EQ(queue_->restores()[1].step, 0u);
}

TEST_F(TrainerTest, WhatTheLineBeforeTrainingCountedIsNotCountedAgain) {
  OneAnswerTask task;
  task_ = &task;
  options_.warm_start.steps = 1;
  options_.eval_every = 10;
  v1::StatusResponse status;
  status.set_generated_length_mean(4.5);
  status.set_generated_tokens(900);
  queue_->SetStatus(status);
  on_commit_ = [&](uint64_t version, FakeWeightPublisher*) {
    if (version == 2 && queue_->lineage() == 1) queue_->FailNext("LeaseBatch", absl::AbortedError("fenced"));
  };
  EXPECT_EQ(Run().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(Lines("metrics.jsonl").at(0)["tokens/generated"], 900);
  ASSERT_TRUE(Run().ok());
  const std::vector<json> lines = Lines("metrics.jsonl");
  EXPECT_EQ(lines[0]["tokens/generated"], 900);
  EXPECT_EQ(lines[1]["tokens/generated"], 0);
}

TEST_F(TrainerTest, AStopLeavesAWarmStartThatIsDoneAndNoneThatIsNot) {
  OneAnswerTask task;
  task_ = &task;
  options_.warm_start.steps = 5;
  options_.warm_start.examples_per_step = 2;
  int stop_at = 8;  // in the last step but one
  task.on_demonstrate = [&] {
    if (task.demonstrated == stop_at) trainer_->RequestStop();
  };
  ASSERT_TRUE(Run().ok());
  EXPECT_FALSE(Exists("checkpoints/step-0"));
  task.demonstrated = 0;
  stop_at = 10;  // in the last step
  ASSERT_TRUE(Run().ok());
  EXPECT_TRUE(Exists("checkpoints/step-0"));
  EXPECT_THAT(queue_->commits(), IsEmpty());
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(task.demonstrated, 10);
  EXPECT_EQ(finished_, 4);
}

}  // namespace
}  // namespace leeway
