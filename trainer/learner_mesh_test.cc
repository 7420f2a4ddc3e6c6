// A trainer on several ranks against the same trainer on one, over every layout of at most four ranks.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "base/random.h"
#include "base/status_macros.h"
#include "gtest/gtest.h"
#include "trainer/fake_rollout.h"
#include "trainer/learner.h"
#include "trainer/parallel/run_mesh_test.h"

namespace leeway {
namespace {

using internal::RunMesh;

constexpr int kSteps = 10;
constexpr uint64_t kFirstStep = 2;

// A prime vocabulary; heads and sizes that four ranks can share.
ModelShape Shape(bool tied_head) {
  return {.vocabulary = 61,
          .hidden = 20,
          .layers = 2,
          .heads = 8,
          .key_value_heads = 4,
          .head_dim = 6,
          .intermediate = 28,
          .max_positions = 48,
          .tied_head = tied_head};
}

struct Layout {
  MeshShape mesh;
  bool sequence_parallel = false;
  int zero_stage = 0;
  bool reduce_once = false;
  int64_t micro_batch_tokens = 1 << 20;
  Recompute recompute = Recompute::kNone;
};

std::string NameOf(const Layout& layout) {
  return "data " + std::to_string(layout.mesh.data) + ", tensor " + std::to_string(layout.mesh.tensor) +
         (layout.sequence_parallel ? ", sequence parallel" : "") + ", zero stage " + std::to_string(layout.zero_stage) +
         (layout.reduce_once ? ", reduced once" : "") + ", " + std::to_string(layout.micro_batch_tokens) +
         " tokens a micro-batch, recompute " + std::to_string(static_cast<int>(layout.recompute));
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kIsSanitized = true;
#else
constexpr bool kIsSanitized = false;
#endif

// Every mesh of at most four ranks at every stage (under a sanitizer, which is slow and looks for something else, only
// the richest); `all`: with every way of recomputing and of cutting into
// micro-batches too.
std::vector<Layout> Layouts(bool all) {
  std::vector<Layout> layouts;
  for (const MeshShape mesh : {MeshShape{1, 1}, MeshShape{2, 1}, MeshShape{3, 1}, MeshShape{4, 1}, MeshShape{1, 2},
                               MeshShape{1, 4}, MeshShape{2, 2}}) {
    for (const bool sequence_parallel : {false, true}) {
      if (sequence_parallel && mesh.tensor == 1) continue;
      if (kIsSanitized && mesh.data != mesh.tensor) continue;
      for (const int zero_stage : {0, 1, 2, 3}) {
        for (const int64_t tokens : {int64_t{40}, int64_t{1} << 20}) {
          for (const Recompute recompute : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
            if (!all && (tokens != 40 || recompute != Recompute::kNone)) continue;
            layouts.push_back({mesh, sequence_parallel, zero_stage, false, tokens, recompute});
          }
        }
        if (zero_stage == 3) layouts.push_back({mesh, sequence_parallel, zero_stage, true, 40, Recompute::kNone});
      }
    }
  }
  return layouts;
}

// Batches of very different lengths, one of them so small that a rank of four has nothing to train; recorded under
// other weights, long ago, so that every ratio differs from 1.
std::vector<LeasedBatch> Batches(const ModelShape& shape) {
  ParallelFor parallel(1);
  FakeRollout rollout(shape, &parallel);
  v1::WeightsVersion weights;
  weights.set_lineage(1);
  weights.set_version(1);
  rollout.SetWeights(weights, RandomParameters(shape, 71));
  std::vector<LeasedBatch> batches;
  for (int step = 0; step < kSteps; ++step) {
    LeasedBatch batch = rollout.Batch(kFirstStep + step, step == 3 ? 1 : 3, 3);
    batch.lag_limit = 100;
    for (BatchGroup& group : batch.groups) {
      for (v1::Trajectory& member : group.members) {
        const uint64_t longer = RandomBelow(
            {.seed = 72, .purpose = RandomPurpose::kShuffle, .ticket = group.ticket, .member = member.key().member()},
            30);
        for (uint64_t i = 0; i < longer; ++i) member.mutable_spans(0)->add_ids(static_cast<int32_t>(2 + i));
      }
    }
    batches.push_back(std::move(batch));
  }
  return batches;
}

template <typename Real>
struct Outcome {
  std::vector<double> losses;
  std::vector<double> norms;
  std::vector<double> first_logprobs;
  BasicTrainingState<Real> state;
};

template <typename Real>
Outcome<Real> Train(const ModelShape& shape, const OptimizerOptions& optimizer, const Layout& layout,
                    const std::vector<LeasedBatch>& batches, int64_t updates_per_step = 1,
                    const std::vector<std::string>& frozen = {}) {
  Outcome<Real> outcome;
  TrainerOptions options;
  options.model = shape;
  options.micro_batch_tokens = layout.micro_batch_tokens;
  options.updates_per_step = updates_per_step;
  options.objective.entropy_coefficient = 0.01;
  options.optimizer = optimizer;
  options.mesh = layout.mesh;
  options.sequence_parallel = layout.sequence_parallel;
  options.recompute = layout.recompute;
  options.sharding.zero_stage = layout.zero_stage;
  options.sharding.reduce_once = layout.reduce_once;
  options.sharding.frozen = frozen;
  const std::vector<float> initial = RandomParameters(shape, 73);
  Mutex mutex;
  std::map<int, Outcome<Real>> by_rank;
  const absl::Status status = RunMesh(layout.mesh, [&](const Mesh& mesh) -> absl::Status {
    ParallelFor parallel(1);
    LEEWAY_ASSIGN_OR_RETURN(const std::unique_ptr<BasicLearner<Real>> learner,
                            BasicLearner<Real>::Create(options, &mesh, &parallel));
    LEEWAY_RETURN_IF_ERROR(learner->Reset(std::vector<Real>(initial.begin(), initial.end())));
    Outcome<Real> mine;
    for (int step = 0; step < kSteps; ++step) {
      StepReport report;
      LEEWAY_RETURN_IF_ERROR(learner->Train(kFirstStep + step, batches[step], &report));
      EXPECT_TRUE(report.refused.empty());
      EXPECT_EQ(report.updates, std::min<int64_t>(updates_per_step, batches[step].groups.size()));
      mine.losses.push_back(report.sums.loss);
      mine.norms.push_back(report.grad_norm);
      if (step == 0) mine.first_logprobs.assign(learner->recomputed().begin(), learner->recomputed().end());
    }
    LEEWAY_ASSIGN_OR_RETURN(mine.state, learner->GatherState());
    MutexLock lock(&mutex);
    by_rank[mesh.world()->rank()] = std::move(mine);
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status << "; " << NameOf(layout);
  if (!status.ok()) return outcome;
  outcome = by_rank[0];
  for (const auto& [rank, mine] : by_rank) {
    EXPECT_EQ(mine.losses, outcome.losses) << "rank " << rank << " reports something else; " << NameOf(layout);
    EXPECT_EQ(mine.norms, outcome.norms) << "rank " << rank;
    EXPECT_EQ(mine.first_logprobs, outcome.first_logprobs) << "rank " << rank;
  }
  return outcome;
}

// Largest difference of a tensor, relative to its largest value; the worst tensor's.
template <typename Real>
double Distance(const ModelShape& shape, const std::vector<Real>& a, const std::vector<Real>& b) {
  double worst = 0;
  for (const ParameterInfo& info : ParameterLayout(shape)) {
    double largest = 0, difference = 0;
    for (int64_t i = info.offset; i < info.offset + info.element_count; ++i) {
      largest = std::max<double>(largest, std::abs(b[i]));
      difference = std::max<double>(difference, std::abs(static_cast<double>(a[i]) - b[i]));
    }
    worst = std::max(worst, difference / largest);
  }
  return worst;
}

struct Comparison {
  OptimizerOptions optimizer;
  double parameters = 0;  // largest relative distance after ten steps
  double reports = 0;     // of losses and norms on the way
  bool all_layouts = false;
  int64_t updates_per_step = 1;
  std::vector<std::string> frozen;
};

template <typename Real>
void EveryLayoutEqualsOneRank(const Comparison& c) {
  for (const bool tied_head : {true, false}) {
    const ModelShape shape = Shape(tied_head);
    const std::vector<LeasedBatch> batches = Batches(shape);
    const Outcome<Real> one = Train<Real>(shape, c.optimizer, Layout(), batches, c.updates_per_step, c.frozen);
    for (const Layout& layout : Layouts(c.all_layouts)) {
      const Outcome<Real> ranks = Train<Real>(shape, c.optimizer, layout, batches, c.updates_per_step, c.frozen);
      ASSERT_EQ(ranks.losses.size(), one.losses.size()) << NameOf(layout);
      EXPECT_EQ(ranks.first_logprobs, one.first_logprobs) << NameOf(layout);
      for (int step = 0; step < kSteps; ++step) {
        EXPECT_NEAR(ranks.losses[step], one.losses[step], c.reports) << NameOf(layout) << ", step " << step;
        EXPECT_NEAR(ranks.norms[step], one.norms[step], c.reports * one.norms[step]) << NameOf(layout);
      }
      EXPECT_LE(Distance(shape, ranks.state.parameters, one.state.parameters), c.parameters) << NameOf(layout);
      EXPECT_EQ(ranks.state.updates, one.state.updates);
      ASSERT_EQ(ranks.state.optimizer.size(), one.state.optimizer.size()) << NameOf(layout);
    }
  }
}

OptimizerOptions Options(OptimizerKind kind, double learning_rate) {
  OptimizerOptions options;
  options.kind = kind;
  options.schedule.peak = learning_rate;
  options.weight_decay = 0.01;
  return options;
}

TEST(LearnerMeshTest, SgdInDoubleOnEveryLayout) {
  EveryLayoutEqualsOneRank<double>({Options(OptimizerKind::kSgd, 0.1), 1e-13, 1e-12, /*all_layouts=*/true});
}

TEST(LearnerMeshTest, SgdInFloat) { EveryLayoutEqualsOneRank<float>({Options(OptimizerKind::kSgd, 0.1), 5e-6, 2e-5}); }

TEST(LearnerMeshTest, AdamWInDouble) {
  EveryLayoutEqualsOneRank<double>({Options(OptimizerKind::kAdamW, 1e-2), 1e-11, 1e-11});
}

TEST(LearnerMeshTest, AdamWInFloat) {
  EveryLayoutEqualsOneRank<float>({Options(OptimizerKind::kAdamW, 1e-2), 2e-4, 2e-4});
}

TEST(LearnerMeshTest, MuonInDouble) {
  EveryLayoutEqualsOneRank<double>({Options(OptimizerKind::kMuon, 1e-2), 1e-9, 1e-9});
}

TEST(LearnerMeshTest, SeveralUpdatesAStepAndFrozenParameters) {
  EveryLayoutEqualsOneRank<double>(
      {Options(OptimizerKind::kAdamW, 1e-2),
       1e-11,
       1e-11,
       false,
       2,
       {"model.layers.0.self_attn.q_proj.weight", "model.norm.weight", "model.embed_tokens.weight"}});
}

// A batch that is refused, or whose gradient is not finite (half-way through the step's updates, too), changes nothing
// on any rank; at lag 0 what ranks recompute is what was recorded, to the bit.
TEST(LearnerMeshTest, WhatMayNotBeTrainedLeavesEveryRankAsItWas) {
  const ModelShape shape = Shape(false);
  ParallelFor parallel(1);
  FakeRollout rollout(shape, &parallel);
  const std::vector<float> initial = RandomParameters(shape, 74);
  v1::WeightsVersion weights;
  weights.set_lineage(1);
  weights.set_version(1);
  rollout.SetWeights(weights, initial);
  const LeasedBatch good = rollout.Batch(1, 4, 3);
  LeasedBatch mismatched = good;
  for (float& logprob : *mismatched.groups[2].members[1].mutable_spans(1)->mutable_logprobs()) logprob = 0.0f;
  LeasedBatch infinite = good;
  infinite.groups[3].members[0].mutable_score()->set_reward(1e300);
  for (const MeshShape mesh_shape : {MeshShape{2, 1}, MeshShape{4, 1}, MeshShape{1, 2}, MeshShape{2, 2}}) {
    for (const int zero_stage : {0, 1, 2, 3}) {
      for (const int64_t updates : {1, 2}) {
        TrainerOptions options;
        options.model = shape;
        options.micro_batch_tokens = 40;
        options.updates_per_step = updates;
        options.advantage = AdvantageKind::kDrGrpo;
        options.optimizer = Options(OptimizerKind::kAdamW, 1e-2);
        options.mesh = mesh_shape;
        options.sharding.zero_stage = zero_stage;
        const absl::Status status = RunMesh(mesh_shape, [&](const Mesh& mesh) -> absl::Status {
          ParallelFor own(1);
          LEEWAY_ASSIGN_OR_RETURN(const std::unique_ptr<Learner> learner, Learner::Create(options, &mesh, &own));
          LEEWAY_RETURN_IF_ERROR(learner->Reset(initial));
          LEEWAY_ASSIGN_OR_RETURN(const TrainingState before, learner->GatherState());
          StepReport report;
          LEEWAY_RETURN_IF_ERROR(learner->Train(1, mismatched, &report));
          EXPECT_EQ(report.refused.size(), 1u);
          EXPECT_TRUE(!report.refused.empty() && report.refused[0].ticket == 3) << "rank " << mesh.world()->rank();
          LEEWAY_RETURN_IF_ERROR(learner->Train(1, infinite, &report));
          EXPECT_FALSE(report.is_finite);
          EXPECT_EQ(report.updates, 0);
          LEEWAY_ASSIGN_OR_RETURN(const TrainingState after, learner->GatherState());
          EXPECT_EQ(after, before) << "zero stage " << zero_stage << ", updates " << updates;
          LEEWAY_RETURN_IF_ERROR(learner->Train(1, good, &report));
          EXPECT_TRUE(report.refused.empty() && report.is_finite);
          EXPECT_EQ(report.updates, updates);
          EXPECT_EQ(report.mismatch.ratio_max, 1.0);
          EXPECT_EQ(report.mismatch.k3, 0.0);
          // Rank 0 has the new weights to publish, nobody else has them whole.
          EXPECT_EQ(learner->parameters().empty(), mesh.world()->rank() > 0);
          LEEWAY_ASSIGN_OR_RETURN(const TrainingState trained, learner->GatherState());
          if (mesh.world()->rank() == 0) {
            EXPECT_NE(trained, before);
            EXPECT_TRUE(std::equal(trained.parameters.begin(), trained.parameters.end(), learner->parameters().begin(),
                                   learner->parameters().end()));
          }
          return absl::OkStatus();
        });
        EXPECT_TRUE(status.ok()) << status << "; data " << mesh_shape.data << ", tensor " << mesh_shape.tensor;
      }
    }
  }
}

// A state that one layout has gathered is gone on with by any other.
TEST(LearnerMeshTest, StatesMoveBetweenLayouts) {
  const ModelShape shape = Shape(true);
  const std::vector<LeasedBatch> batches = Batches(shape);
  std::vector<Layout> layouts;
  for (const Layout& layout : Layouts(false)) {
    if (layout.zero_stage % 3 == 0 && !layout.reduce_once) layouts.push_back(layout);
  }
  TrainerOptions options;
  options.model = shape;
  options.micro_batch_tokens = 40;
  options.optimizer = Options(OptimizerKind::kAdamW, 1e-2);
  const std::vector<float> initial = RandomParameters(shape, 73);
  // Steps [begin, end) from `state`, or from the beginning; the losses and the state after them.
  const auto run = [&](const Layout& layout, const BasicTrainingState<double>* state, int begin, int end) {
    options.mesh = layout.mesh;
    options.sequence_parallel = layout.sequence_parallel;
    options.sharding.zero_stage = layout.zero_stage;
    std::pair<std::vector<double>, BasicTrainingState<double>> result;
    const absl::Status status = RunMesh(layout.mesh, [&](const Mesh& mesh) -> absl::Status {
      ParallelFor parallel(1);
      LEEWAY_ASSIGN_OR_RETURN(const std::unique_ptr<BasicLearner<double>> learner,
                              BasicLearner<double>::Create(options, &mesh, &parallel));
      LEEWAY_RETURN_IF_ERROR(state != nullptr ? learner->Restore(*state)
                                              : learner->Reset(std::vector<double>(initial.begin(), initial.end())));
      std::vector<double> losses;
      for (int step = begin; step < end; ++step) {
        StepReport report;
        LEEWAY_RETURN_IF_ERROR(learner->Train(kFirstStep + step, batches[step], &report));
        losses.push_back(report.sums.loss);
      }
      LEEWAY_ASSIGN_OR_RETURN(BasicTrainingState<double> gathered, learner->GatherState());
      if (mesh.world()->rank() == 0) result = {std::move(losses), std::move(gathered)};
      return absl::OkStatus();
    });
    EXPECT_TRUE(status.ok()) << status << "; " << NameOf(layout);
    return result;
  };
  for (const Layout& from : layouts) {
    const auto saved = run(from, nullptr, 0, 5);
    const auto undisturbed = run(from, nullptr, 0, 10);
    for (const Layout& to : layouts) {
      const auto resumed = run(to, &saved.second, 5, 10);
      ASSERT_EQ(resumed.first.size(), 5u);
      const bool is_same = NameOf(from) == NameOf(to);
      for (int i = 0; i < 5; ++i) {
        EXPECT_NEAR(resumed.first[i], undisturbed.first[5 + i], is_same ? 0 : 1e-12)
            << "from " << NameOf(from) << " to " << NameOf(to);
      }
      EXPECT_TRUE(!is_same || resumed.second == undisturbed.second) << NameOf(from);
    }
  }
}

}  // namespace
}  // namespace leeway
