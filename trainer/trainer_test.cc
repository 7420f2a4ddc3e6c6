#include "trainer/trainer.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <sstream>

#include "base/fake_file_system.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "queue/fake_queue_client.h"
#include "trainer/fake_rollout.h"
#include "weightsync/fake_weight_publisher.h"

namespace leeway {
namespace {

using nlohmann::json;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

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

  std::function<void(uint64_t step, uint64_t ticket)> on_retire;
};

// One job in a run directory: the queue outlives the trainers that are started one after the other.
class TrainerTest : public ::testing::Test {
 protected:
  TrainerTest() : tokenizer_(*NewTokenizer("character")), parallel_(1) { UseDirectory("run"); }

  void UseDirectory(const std::string& name) {
    options_.run_directory =
        JoinPath(::testing::TempDir(),
                 std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()) + "_" + name);
    ASSERT_TRUE(files_->RemoveAll(options_.run_directory).ok());
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
  std::vector<json> Lines(const std::string& name) const {
    std::vector<json> lines;
    std::istringstream text(Read(name));
    for (std::string line; std::getline(text, line);) lines.push_back(json::parse(line));
    return lines;
  }
  std::vector<uint64_t> Steps(const std::string& name) const {
    std::vector<uint64_t> steps;
    for (const json& line : Lines(name)) steps.push_back(line["step"]);
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
  void SetEvaluations(const std::vector<uint64_t>& versions, bool complete = true) {
    v1::StatusResponse status;
    for (uint64_t version : versions) {
      v1::EvaluationResult* result = status.add_evaluations();
      result->mutable_weights()->set_version(version);
      result->set_episodes(16);
      result->set_reward_mean(static_cast<double>(version) / 100);
      result->set_complete(complete);
    }
    queue_->SetStatus(status);
  }

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
  status.set_generated_tokens(1000);
  queue_->SetStatus(status);
  v1::WorkerIdentity member;
  member.set_producer_id(1);
  members_ = {member};
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
    EXPECT_EQ(line["length/generated_mean"], 4.5);
    EXPECT_EQ(line["tokens/generated"], i == 0 ? 1000 : 0);  // since the last line
    EXPECT_EQ(line["weights/members"], 1);
    EXPECT_EQ(line["weights/bytes"], TinyShape().ParameterCount() * 4);
    EXPECT_TRUE(line.contains("wait/trainer/waiting_for_groups_s"));
    EXPECT_TRUE(line.contains("busy/trainer/train_s"));
    EXPECT_TRUE(line.contains("cpu/trainer_s"));
    EXPECT_FALSE(line.contains("eval/reward"));
  }
  EXPECT_EQ(gauges_["step"], 3);
  EXPECT_EQ(gauges_["tokens/trained"], 45);
}

TEST_F(TrainerTest, TwoRunsGiveEqualBytes) {
  ASSERT_TRUE(Run().ok());
  const std::string first = Claimed(4);
  UseDirectory("again");
  ParallelFor three(3);
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(Claimed(4), first);
}

TEST_F(TrainerTest, ARunThatDiedAndRestoredEndsWithTheBytesOfOneThatDidNot) {
  options_.steps = 6;
  ASSERT_TRUE(Run().ok());
  const std::string expected = Claimed(6);
  // The commit of version v is refused: the step before it is lost, or even two (a checkpoint is made every 2 steps).
  for (uint64_t version = 2; version <= 7; ++version) {
    UseDirectory("version" + std::to_string(version));
    on_commit_ = [&](uint64_t committed, FakeWeightPublisher*) {
      if (committed + 1 == version && queue_->lineage() == 1) queue_->FailNext("Commit", absl::AbortedError("fenced"));
    };
    EXPECT_EQ(Run().code(), absl::StatusCode::kAborted) << version;
    EXPECT_THAT(calls_.back(), HasSubstr("abandon 1." + std::to_string(version)));
    ASSERT_TRUE(Run().ok()) << version;
    EXPECT_EQ(Claimed(6), expected) << version;
    EXPECT_THAT(Steps("metrics.jsonl"), ElementsAre(1, 2, 3, 4, 5, 6)) << version;
    EXPECT_THAT(Steps("schedule.jsonl"), ElementsAre(1, 2, 3, 4, 5, 6)) << version;
    // The restore names the step and brings the ledger of the checkpoint.
    const uint64_t restored = (version - 2) / 2 * 2;
    ASSERT_THAT(queue_->restores(), SizeIs(2));
    EXPECT_EQ(queue_->restores()[1].lineage, 2u);
    EXPECT_EQ(queue_->restores()[1].step, restored) << version;
    EXPECT_EQ(queue_->restores()[1].ledger_snapshot, restored == 0 ? "" : "ledger");
    const std::vector<v1::CommitRequest> commits = queue_->commits();
    const auto initial =
        std::find_if(commits.begin() + 1, commits.end(), [](const v1::CommitRequest& c) { return c.initial(); });
    ASSERT_NE(initial, commits.end());
    EXPECT_EQ(initial->version(), restored + 1);
    EXPECT_EQ(initial->lineage(), 2u);
  }
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

TEST_F(TrainerTest, AStepThatIsNotFiniteChangesNoWeightIsDumpedAndCommitted) {
  options_.advantage = AdvantageKind::kDrGrpo;
  change_batch_ = [](uint64_t step, LeasedBatch* batch) {
    if (step == 2) batch->groups[1].members[0].mutable_score()->set_reward(1e300);
  };
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(finished_, 4);
  EXPECT_EQ(digests_[3], digests_[2]);
  EXPECT_NE(digests_[4], digests_[3]);
  EXPECT_THAT(queue_->commits()[2].tickets(), ElementsAre(4, 5, 6));
  const std::vector<json> lines = Lines("metrics.jsonl");
  EXPECT_EQ(lines[0]["optimizer/skipped_steps"], 0);
  EXPECT_EQ(lines[1]["optimizer/skipped_steps"], 1);
  EXPECT_EQ(lines[1]["optimizer/updates"], 0);
  EXPECT_EQ(lines[3]["optimizer/skipped_steps"], 1);
  EXPECT_THAT(Lines("failed_steps/step-2.jsonl"), SizeIs(kGroups * kMembers));
  EXPECT_EQ(json::parse(Read("checkpoints/step-4/state.json"))["skipped_steps"], 1);
  EXPECT_EQ(json::parse(Read("checkpoints/step-4/state.json"))["optimizer_updates"], 3);
}

// Episodes as if they were made two versions ago.
void Age(LeasedBatch* batch, size_t group, uint64_t version) {
  for (v1::Trajectory& member : batch->groups[group].members) {
    for (v1::Span& span : *member.mutable_spans()) {
      for (v1::VersionRun& run : *span.mutable_versions()) run.mutable_weights()->set_version(version);
    }
  }
}

TEST_F(TrainerTest, UnderMaskTokensBeyondTheBudgetAreNotTrained) {
  options_.breach_masks = true;
  options_.staleness_budget = 1;
  change_batch_ = [](uint64_t step, LeasedBatch* batch) {
    if (step == 4) Age(batch, 0, 1);  // lag 3
    if (step == 3) Age(batch, 2, 2);  // lag 1
  };
  ASSERT_TRUE(Run().ok());
  const std::vector<json> lines = Lines("metrics.jsonl");
  EXPECT_EQ(lines[2]["staleness/max"], 1);
  EXPECT_EQ(lines[2]["staleness/histogram"], (json{40, 20}));
  EXPECT_EQ(lines[3]["staleness/max"], 0);
  EXPECT_EQ(lines[3]["tokens/masked"], 20);
  EXPECT_EQ(lines[3]["tokens/trained"], 40);
  EXPECT_THAT(queue_->commits()[4].tickets(), ElementsAre(10, 11, 12));
}

TEST_F(TrainerTest, ATokenBeyondTheBoundStopsTheTrainer) {
  change_batch_ = [](uint64_t step, LeasedBatch* batch) {
    if (step == 3) Age(batch, 1, 2);
  };
  const absl::Status status = Run();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("ticket 8"), HasSubstr("staleness bound is 0")));
  EXPECT_EQ(finished_, 2);
}

TEST_F(TrainerTest, ALeaseThatAllowsMoreThanTheBudgetOrHasTheWrongSizeIsRefused) {
  change_batch_ = [](uint64_t, LeasedBatch* batch) { batch->lag_limit = 5; };
  EXPECT_EQ(Run().code(), absl::StatusCode::kInternal);
  UseDirectory("size");
  change_batch_ = [](uint64_t, LeasedBatch* batch) { batch->groups.pop_back(); };
  EXPECT_EQ(Run().code(), absl::StatusCode::kInternal);
}

TEST_F(TrainerTest, GroupsWithFalseLogprobsAreRetiredAndReplaced) {
  ASSERT_TRUE(Run().ok());
  const std::string expected = Claimed(4);
  UseDirectory("false");
  change_batch_ = [](uint64_t step, LeasedBatch* batch) {
    if (step == 2) {
      for (float& logprob : *batch->groups[0].members[3].mutable_spans(1)->mutable_logprobs()) logprob = 0.0f;
      auto* shifted = batch->groups[2].members[1].mutable_spans(1)->mutable_logprobs();
      std::rotate(shifted->begin(), shifted->begin() + 1, shifted->end());
    }
    if (step == 3) batch->groups[1].members[0].mutable_spans(3)->mutable_logprobs()->RemoveLast();
  };
  ASSERT_TRUE(Run().ok());
  const auto retired = queue_->retired();
  ASSERT_THAT(retired, SizeIs(3));
  EXPECT_EQ(retired[0].ticket, 4u);
  EXPECT_EQ(retired[0].reason, "logprob_mismatch");
  EXPECT_EQ(retired[1].ticket, 6u);
  EXPECT_EQ(retired[1].step, 2u);
  EXPECT_EQ(retired[2].ticket, 8u);
  EXPECT_EQ(retired[2].reason, "malformed_trajectory");
  EXPECT_EQ(Lines("metrics.jsonl").back()["groups/refused"], 3);
  // The replacements are what an honest queue would have given at once.
  EXPECT_EQ(Claimed(4), expected);
}

TEST_F(TrainerTest, AStepWhoseGroupsAllLieEndsTheRun) {
  replaces_ = false;
  options_.max_refused_groups = 5;
  change_batch_ = [](uint64_t, LeasedBatch* batch) {
    for (float& logprob : *batch->groups[1].members[0].mutable_spans(1)->mutable_logprobs()) logprob = -0.25f;
  };
  const absl::Status status = Run();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("logprob_mismatch"));
  EXPECT_THAT(queue_->retired(), SizeIs(6));
}

TEST_F(TrainerTest, AnInconsistentCacheIsNotHeldToTheBits) {
  change_batch_ = [](uint64_t, LeasedBatch* batch) {
    batch->groups[0].members[0].set_kv_cache_consistent(false);
    batch->groups[0].members[0].mutable_spans(1)->set_logprobs(0, -1.0f);
  };
  ASSERT_TRUE(Run().ok());
  EXPECT_THAT(queue_->retired(), IsEmpty());
  EXPECT_NE(Lines("metrics.jsonl")[0]["mismatch/k1"], 0);
}

TEST_F(TrainerTest, AReceiverThatFailsInAPublishIsFencedAtTheQueue) {
  v1::WorkerIdentity good, bad;
  good.set_producer_id(1);
  good.set_epoch(1);
  bad.set_producer_id(2);
  bad.set_epoch(7);
  members_ = {good, bad};
  on_commit_ = [&](uint64_t version, FakeWeightPublisher* publisher) {
    if (version == 2) publisher->FenceInNextPrepare(bad, "digest differs");
  };
  ASSERT_TRUE(Run().ok());
  const auto fenced = queue_->fenced();
  ASSERT_THAT(fenced, SizeIs(1));
  EXPECT_EQ(fenced[0].identity.producer_id(), 2u);
  EXPECT_EQ(fenced[0].identity.epoch(), 7u);
  EXPECT_EQ(fenced[0].reason, "digest differs");
  EXPECT_EQ(queue_->commits()[1].members_size(), 2);
  ASSERT_EQ(queue_->commits()[2].members_size(), 1);
  EXPECT_EQ(queue_->commits()[2].members(0).producer_id(), 1u);
  EXPECT_EQ(Lines("metrics.jsonl")[1]["weights/fenced"], 1);
  EXPECT_EQ(Lines("metrics.jsonl")[1]["weights/members"], 1);
}

TEST_F(TrainerTest, APublishWithoutReceiversCommitsToo) {
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(queue_->commits()[4].members_size(), 0);
}

TEST_F(TrainerTest, ARefusedCommitMeansRestartAndALostLineageToo) {
  on_commit_ = [&](uint64_t version, FakeWeightPublisher*) {
    if (version == 2) queue_->FailNext("Commit", absl::FailedPreconditionError("ticket 4 is not leased"));
  };
  const absl::Status refused = Run();
  EXPECT_EQ(refused.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("ticket 4 is not leased"));
  EXPECT_THAT(calls_, Not(Contains("commit 1.3")));
  UseDirectory("lease");
  on_commit_ = nullptr;
  queue_->FailNext("LeaseBatch", absl::AbortedError("another lineage"));
  EXPECT_EQ(Run().code(), absl::StatusCode::kAborted);
}

TEST_F(TrainerTest, AQueueThatIsAwayForAMomentIsAskedAgain) {
  for (const char* method : {"AllocateLineage", "Restore", "LeaseBatch", "Commit", "LedgerSnapshot", "Settle"}) {
    UseDirectory(method);
    queue_->FailNext(method, absl::UnavailableError("away"));
    EXPECT_TRUE(Run().ok()) << method;
    EXPECT_EQ(finished_, 4);
  }
  UseDirectory("gone");
  for (int i = 0; i < 100; ++i) queue_->FailNext("LeaseBatch", absl::UnavailableError("gone"));
  EXPECT_EQ(Run().code(), absl::StatusCode::kUnavailable);
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
  SetEvaluations({1});
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

TEST_F(TrainerTest, AnEvaluationThatNeverComesIsGivenUp) {
  options_.eval_every = 4;
  options_.evaluation_wait = absl::Milliseconds(50);
  ASSERT_TRUE(Run().ok());
  EXPECT_THAT(Steps("metrics.jsonl"), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_FALSE(Lines("metrics.jsonl")[0].contains("eval/reward"));
}

TEST_F(TrainerTest, AQueueShortOfSpaceGetsItsCheckpoint) {
  options_.checkpoint_every = 0;
  bool asked = false;
  change_batch_ = [&](uint64_t step, LeasedBatch* batch) {
    if (step != 3 || asked) return;
    asked = true;
    batch->groups.clear();
    batch->cause = "queue_needs_checkpoint";
  };
  ASSERT_TRUE(Run().ok());
  EXPECT_TRUE(Exists("checkpoints/step-2"));
  EXPECT_THAT(queue_->settled(), ElementsAre(2, 2, 4));
}

TEST_F(TrainerTest, ADiskThatFailsACheckpointDoesNotEndTheTraining) {
  bool full = true;
  FaultyFileSystem faulty([&](absl::string_view, const std::string& path) {
    const bool hit = full && path.find("checkpoints/.tmp-step-2") != std::string::npos;
    return hit ? absl::ResourceExhaustedError("no space") : absl::OkStatus();
  });
  files_ = &faulty;
  ASSERT_TRUE(Run().ok());
  EXPECT_FALSE(Exists("checkpoints/step-2"));
  EXPECT_TRUE(Exists("checkpoints/step-4"));
  files_ = RealFileSystem();
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
    Observation observation;
    observation.text = "a";
    Demonstration demonstration;
    demonstration.turns.emplace_back(observation, "b");
    return demonstration;
  }
  int max_turns() const override { return 1; }
  int max_episode_tokens() const override { return 3; }

  mutable int demonstrated = 0;
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

}  // namespace
}  // namespace leeway
