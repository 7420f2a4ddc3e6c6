#include "trainer/learner.h"

#include <algorithm>
#include <memory>

#include "collective/in_process/in_process_group.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/checkpoint/written_state_test.h"
#include "trainer/fake_rollout.h"
#include "trainer/temporary_directory_test.h"

namespace leeway {
namespace {

TrainerOptions Options() {
  TrainerOptions options;
  options.model = TinyShape();
  options.steps = 10;
  options.groups_per_step = 4;
  options.group_size = 3;
  options.staleness_budget = 0;
  options.optimizer.schedule.peak = 1e-2;
  return options;
}

class LearnerTest : public ::testing::Test {
 protected:
  LearnerTest() : parallel_(1), rollout_(TinyShape(), &parallel_), initial_(RandomParameters(TinyShape(), 3)) {
    SetWeights(1, initial_);
  }

  void SetWeights(uint64_t version, absl::Span<const float> parameters) {
    v1::WeightsVersion weights;
    weights.set_lineage(1);
    weights.set_version(version);
    rollout_.SetWeights(weights, parameters);
  }
  std::unique_ptr<Learner> Make(const TrainerOptions& options, ParallelFor* parallel) {
    absl::StatusOr<std::unique_ptr<Learner>> learner = Learner::Create(options, mesh_.get(), parallel);
    EXPECT_TRUE(learner.ok()) << learner.status();
    return *std::move(learner);
  }
  static std::vector<float> Copy(absl::Span<const float> values) { return {values.begin(), values.end()}; }

  const std::unique_ptr<Communicator> alone_ = InProcessGroup(1, "trainer", absl::InfiniteDuration()).Take(0);
  const std::unique_ptr<Mesh> mesh_ = *Mesh::Create({}, alone_.get());
  ParallelFor parallel_;
  FakeRollout rollout_;
  const std::vector<float> initial_;
};

TEST_F(LearnerTest, OnPolicyNothingMismatchesAndTheParametersMove) {
  const std::unique_ptr<Learner> learner = Make(Options(), &parallel_);
  ASSERT_TRUE(learner->Reset(initial_).ok());
  StepReport report;
  ASSERT_TRUE(learner->Train(1, rollout_.Batch(1, 4, 3), &report).ok());
  EXPECT_TRUE(report.refused.empty());
  EXPECT_TRUE(report.is_finite);
  EXPECT_EQ(report.updates, 1);
  EXPECT_EQ(report.mismatch.k1, 0.0);
  EXPECT_EQ(report.mismatch.k3, 0.0);
  EXPECT_EQ(report.mismatch.ratio_max, 1.0);
  EXPECT_EQ(report.mismatch.ess, 1.0);
  EXPECT_EQ(report.sums.clipped, 0);
  EXPECT_EQ(report.sums.kl_old, 0.0);
  EXPECT_GT(report.grad_norm, 0.0);
  EXPECT_NE(Copy(learner->parameters()), initial_);
}

TEST_F(LearnerTest, OneUpdateRaisesTheProbabilityOfWhatWasRewarded) {
  const std::unique_ptr<Learner> learner = Make(Options(), &parallel_);
  ASSERT_TRUE(learner->Reset(initial_).ok());
  const LeasedBatch batch = rollout_.Batch(1, 4, 3);
  StepReport report;
  ASSERT_TRUE(learner->Train(1, batch, &report).ok());
  const std::vector<double> before(learner->recomputed().begin(), learner->recomputed().end());
  std::vector<TrainSequence> sequences = learner->batch().sequences;
  // The same data again at lag 1: recomputed() are now the log-probabilities after the update.
  TrainerOptions stale = Options();
  const std::unique_ptr<Learner> after = Make(stale, &parallel_);
  ASSERT_TRUE(after->Reset(Copy(learner->parameters())).ok());
  LeasedBatch again = batch;
  again.lag_limit = 1;
  ASSERT_TRUE(after->Train(2, again, &report).ok());
  double gain = 0;
  for (const TrainSequence& sequence : sequences) {
    for (int64_t i = sequence.begin; i < sequence.end; ++i) {
      gain += sequence.advantage * (after->recomputed()[i] - before[i]);
    }
  }
  EXPECT_GT(gain, 0.0);
}

TEST_F(LearnerTest, TwoLearnersGiveTheSameBits) {
  for (int64_t updates : {1, 2}) {
    TrainerOptions options = Options();
    options.updates_per_step = updates;
    const std::unique_ptr<Learner> a = Make(options, &parallel_);
    ParallelFor three(3);
    const std::unique_ptr<Learner> b = Make(options, &three);
    ASSERT_TRUE(a->Reset(initial_).ok());
    ASSERT_TRUE(b->Reset(initial_).ok());
    for (uint64_t step = 1; step <= 3; ++step) {
      SetWeights(step, a->parameters());
      const LeasedBatch batch = rollout_.Batch(step, 4, 3);
      StepReport report;
      ASSERT_TRUE(a->Train(step, batch, &report).ok());
      ASSERT_EQ(report.updates, updates);
      ASSERT_TRUE(b->Train(step, batch, &report).ok());
      ASSERT_TRUE(report.refused.empty());
    }
    EXPECT_EQ(Copy(a->parameters()), Copy(b->parameters()));
    EXPECT_EQ(internal::BytesOf(a->CopyPieces()), internal::BytesOf(b->CopyPieces()));
    EXPECT_EQ(a->updates(), b->updates());
  }
}

TEST_F(LearnerTest, SeveralUpdatesCompareWithTheWeightsOfTheBeginningOfTheStep) {
  TrainerOptions options = Options();
  options.updates_per_step = 4;
  options.objective.kind = ObjectiveKind::kDecoupled;
  const std::unique_ptr<Learner> learner = Make(options, &parallel_);
  ASSERT_TRUE(learner->Reset(initial_).ok());
  StepReport report;
  ASSERT_TRUE(learner->Train(1, rollout_.Batch(1, 4, 3), &report).ok());
  EXPECT_TRUE(report.refused.empty());
  EXPECT_EQ(report.updates, 4);
  EXPECT_EQ(report.mismatch.k3, 0.0);
  // The later minibatches are seen by changed weights.
  EXPECT_GT(report.sums.kl_old, 0.0);
}

TEST_F(LearnerTest, AMismatchAtLagZeroChangesNothingAndNamesTheGroup) {
  for (int64_t updates : {1, 2}) {
    TrainerOptions options = Options();
    options.updates_per_step = updates;
    const std::unique_ptr<Learner> learner = Make(options, &parallel_);
    ASSERT_TRUE(learner->Reset(initial_).ok());
    LeasedBatch batch = rollout_.Batch(1, 4, 3);
    // 0-filled in one group, shifted by one in another.
    for (float& logprob : *batch.groups[1].members[2].mutable_spans(1)->mutable_logprobs()) logprob = 0.0f;
    auto* shifted = batch.groups[3].members[0].mutable_spans(1)->mutable_logprobs();
    std::rotate(shifted->begin(), shifted->begin() + 1, shifted->end());
    StepReport report;
    ASSERT_TRUE(learner->Train(1, batch, &report).ok());
    ASSERT_EQ(report.refused.size(), 2u);
    EXPECT_EQ(report.refused[0].ticket, 2u);
    EXPECT_EQ(report.refused[1].ticket, 4u);
    EXPECT_EQ(report.refused[0].reason, "logprob_mismatch");
    EXPECT_EQ(Copy(learner->parameters()), initial_);
    EXPECT_EQ(learner->updates(), 0);
    // With the groups replaced the step goes through, to the bits of a step that never saw them.
    ASSERT_TRUE(learner->Train(1, rollout_.Batch(1, 4, 3), &report).ok());
    const std::unique_ptr<Learner> other = Make(options, &parallel_);
    ASSERT_TRUE(other->Reset(initial_).ok());
    ASSERT_TRUE(other->Train(1, rollout_.Batch(1, 4, 3), &report).ok());
    EXPECT_EQ(Copy(learner->parameters()), Copy(other->parameters()));
  }
}

TEST_F(LearnerTest, RewardsThatBlowUpTheGradientChangeNothing) {
  for (int64_t updates : {1, 2}) {
    TrainerOptions options = Options();
    options.advantage = AdvantageKind::kDrGrpo;
    options.updates_per_step = updates;
    const std::unique_ptr<Learner> learner = Make(options, &parallel_);
    ASSERT_TRUE(learner->Reset(initial_).ok());
    LeasedBatch batch = rollout_.Batch(1, 4, 3);
    batch.groups[3].members[0].mutable_score()->set_reward(1e300);
    StepReport report;
    ASSERT_TRUE(learner->Train(1, batch, &report).ok());
    EXPECT_TRUE(report.refused.empty());
    EXPECT_FALSE(report.is_finite);
    EXPECT_EQ(report.updates, 0);
    EXPECT_EQ(Copy(learner->parameters()), initial_) << updates;
    EXPECT_EQ(learner->updates(), 0);
    const StatePieces state = learner->CopyPieces();
    EXPECT_FALSE(state.optimizer.tensors.empty());
    for (const NamedTensor& tensor : state.optimizer.tensors) {
      EXPECT_THAT(tensor.array.values<float>(), ::testing::Each(0.0f)) << tensor.name;
    }
  }
}

TEST_F(LearnerTest, ABatchWithoutATrainedTokenMakesNoUpdate) {
  TrainerOptions options = Options();
  options.breach_masks = true;
  const std::unique_ptr<Learner> learner = Make(options, &parallel_);
  ASSERT_TRUE(learner->Reset(initial_).ok());
  StepReport report;
  // Version 1 in step 5 with limit 0: everything is masked.
  ASSERT_TRUE(learner->Train(5, rollout_.Batch(1, 4, 3), &report).ok());
  EXPECT_TRUE(report.is_finite);
  EXPECT_EQ(report.updates, 0);
  EXPECT_EQ(learner->batch().trained_tokens, 0);
  EXPECT_EQ(Copy(learner->parameters()), initial_);
}

TEST_F(LearnerTest, RestoredStateContinuesToTheSameBits) {
  const TemporaryDirectory directory;
  const std::unique_ptr<Learner> whole = Make(Options(), &parallel_);
  ASSERT_TRUE(whole->Reset(initial_).ok());
  const std::unique_ptr<Learner> second = Make(Options(), &parallel_);
  for (uint64_t step = 1; step <= 4; ++step) {
    SetWeights(step, whole->parameters());
    if (step == 3) {
      internal::RanksCheckpoint checkpoint(directory.path(), whole->layout(), step - 1);
      ASSERT_TRUE(checkpoint.Write(0, whole->CopyPieces()).ok());
      const auto state = OpenCheckpoint(RealFileSystem(), checkpoint.Complete(), whole->layout());
      ASSERT_TRUE(state.ok()) << state.status();
      ASSERT_TRUE(second->Restore(*state, whole->updates()).ok());
    }
    const LeasedBatch batch = rollout_.Batch(step, 4, 3);
    StepReport report;
    ASSERT_TRUE(whole->Train(step, batch, &report).ok());
    if (step >= 3) {
      ASSERT_TRUE(second->Train(step, batch, &report).ok());
    }
  }
  EXPECT_EQ(Copy(whole->parameters()), Copy(second->parameters()));
}

}  // namespace
}  // namespace leeway
