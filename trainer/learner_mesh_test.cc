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
#include "trainer/checkpoint/written_state_test.h"
#include "trainer/fake_rollout.h"
#include "trainer/learner.h"
#include "trainer/parallel/run_mesh_test.h"
#include "trainer/temporary_directory_test.h"

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
  std::vector<Real> parameters;  // of all
  int64_t updates = 0;
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
    mine.parameters.assign(learner->parameters().begin(), learner->parameters().end());
    mine.updates = learner->updates();
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
      EXPECT_LE(Distance(shape, ranks.parameters, one.parameters), c.parameters) << NameOf(layout);
      EXPECT_EQ(ranks.updates, one.updates);
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
          const auto before = internal::BytesOf(learner->CopyPieces());
          StepReport report;
          LEEWAY_RETURN_IF_ERROR(learner->Train(1, mismatched, &report));
          EXPECT_EQ(report.refused.size(), 1u);
          EXPECT_TRUE(!report.refused.empty() && report.refused[0].ticket == 3) << "rank " << mesh.world()->rank();
          LEEWAY_RETURN_IF_ERROR(learner->Train(1, infinite, &report));
          EXPECT_FALSE(report.is_finite);
          EXPECT_EQ(report.updates, 0);
          EXPECT_EQ(learner->updates(), 0);
          EXPECT_EQ(internal::BytesOf(learner->CopyPieces()), before)
              << "zero stage " << zero_stage << ", updates " << updates;
          LEEWAY_RETURN_IF_ERROR(learner->Train(1, good, &report));
          EXPECT_TRUE(report.refused.empty() && report.is_finite);
          EXPECT_EQ(report.updates, updates);
          EXPECT_EQ(report.mismatch.ratio_max, 1.0);
          EXPECT_EQ(report.mismatch.k3, 0.0);
          // Rank 0 has the new weights to publish, nobody else has them whole.
          EXPECT_EQ(learner->parameters().empty(), mesh.world()->rank() > 0);
          if (mesh.world()->rank() == 0) {
            EXPECT_NE(internal::BytesOf(learner->CopyPieces()), before);
          }
          return absl::OkStatus();
        });
        EXPECT_TRUE(status.ok()) << status << "; data " << mesh_shape.data << ", tensor " << mesh_shape.tensor;
      }
    }
  }
}

// What a run on some layout reports of its last steps, and the files of its checkpoint at their end.
struct Written {
  std::vector<double> losses;
  WrittenFiles files;
  std::string folder;
};

// Training that is interrupted by a checkpoint, in files, and goes on from it on any layout.
class CheckpointMeshTest : public ::testing::Test {
 protected:
  CheckpointMeshTest() : shape_(Shape(true)), batches_(Batches(shape_)) {
    options_.model = shape_;
    options_.micro_batch_tokens = 40;
    options_.optimizer = Options(OptimizerKind::kAdamW, 1e-2);
  }

  // Steps [begin, end) from the checkpoint in `from`, or from the beginning; a checkpoint after them.
  Written Run(const Layout& layout, const std::string* from, int begin, int end, bool is_written = true) {
    options_.mesh = layout.mesh;
    options_.sequence_parallel = layout.sequence_parallel;
    options_.sharding.zero_stage = layout.zero_stage;
    const std::vector<float> initial = RandomParameters(shape_, 73);
    const std::string name = "run-" + std::to_string(runs_++);
    internal::RanksCheckpoint checkpoint(JoinPath(directory_.path(), name), ParameterLayout(shape_), end);
    Written written;
    const absl::Status status = RunMesh(layout.mesh, [&](const Mesh& mesh) -> absl::Status {
      ParallelFor parallel(1);
      LEEWAY_ASSIGN_OR_RETURN(const std::unique_ptr<BasicLearner<double>> learner,
                              BasicLearner<double>::Create(options_, &mesh, &parallel));
      if (from == nullptr) {
        LEEWAY_RETURN_IF_ERROR(learner->Reset(std::vector<double>(initial.begin(), initial.end())));
      } else {
        LEEWAY_ASSIGN_OR_RETURN(const PieceReader state, OpenCheckpoint(RealFileSystem(), *from, learner->layout()));
        LEEWAY_RETURN_IF_ERROR(learner->Restore(state, begin));
      }
      std::vector<double> losses;
      for (int step = begin; step < end; ++step) {
        StepReport report;
        LEEWAY_RETURN_IF_ERROR(learner->Train(kFirstStep + step, batches_[step], &report));
        losses.push_back(report.sums.loss);
      }
      const int rank = mesh.world()->rank();
      if (rank == 0) written.losses = std::move(losses);
      return is_written ? checkpoint.Write(rank, learner->CopyPieces()) : absl::OkStatus();
    });
    EXPECT_TRUE(status.ok()) << status << "; " << NameOf(layout);
    if (!is_written) return written;
    written.files = checkpoint.files();
    written.folder = checkpoint.Complete();
    return written;
  }

  void ExpectEveryPairGoesOn(const std::vector<Layout>& layouts) {
    for (const Layout& from : layouts) {
      const Written saved = Run(from, nullptr, 0, 5);
      const Written undisturbed = Run(from, nullptr, 0, 10);
      for (const Layout& to : layouts) {
        const bool is_same = NameOf(from) == NameOf(to);
        const Written resumed = Run(to, &saved.folder, 5, 10, /*is_written=*/is_same);
        ASSERT_EQ(resumed.losses.size(), 5u);
        for (int i = 0; i < 5; ++i) {
          EXPECT_NEAR(resumed.losses[i], undisturbed.losses[5 + i], is_same ? 0 : 1e-12)
              << "from " << NameOf(from) << " to " << NameOf(to);
        }
        EXPECT_TRUE(!is_same || resumed.files == undisturbed.files) << NameOf(from);
      }
    }
  }

  const TemporaryDirectory directory_;
  const ModelShape shape_;
  const std::vector<LeasedBatch> batches_;
  TrainerOptions options_;
  int runs_ = 0;
};

TEST_F(CheckpointMeshTest, EveryLayoutGoesOnFromTheFilesOfEveryOther) {
  std::vector<Layout> layouts;
  for (const Layout& layout : Layouts(false)) {
    if (layout.zero_stage % 3 == 0 && !layout.reduce_once) layouts.push_back(layout);
  }
  ExpectEveryPairGoesOn(layouts);
}

TEST_F(CheckpointMeshTest, WithEveryStageFrozenParametersAndOtherOptimizers) {
  const std::vector<Layout> layouts = {{.mesh = {1, 1}, .micro_batch_tokens = 40},
                                       {.mesh = {3, 1}, .zero_stage = 1, .micro_batch_tokens = 40},
                                       {.mesh = {2, 2}, .zero_stage = 2, .micro_batch_tokens = 40},
                                       {.mesh = {2, 2}, .zero_stage = 3, .micro_batch_tokens = 40}};
  options_.sharding.frozen = {"model.layers.0.self_attn.q_proj.weight", "model.norm.weight",
                              "model.embed_tokens.weight"};
  for (const OptimizerKind kind : {OptimizerKind::kSgd, OptimizerKind::kAdamW, OptimizerKind::kMuon}) {
    options_.optimizer = Options(kind, 1e-2);
    ExpectEveryPairGoesOn(layouts);
  }
}

TEST_F(CheckpointMeshTest, EachRankWritesItsOwnPiecesAndWhatSeveralHoldIsWrittenOnce) {
  const auto names = [](const Written& written) {
    std::vector<std::string> names;
    for (const auto& [name, file] : written.files) names.push_back(name);
    return names;
  };
  const std::vector<std::string> others = {"ledger.bin", "run_state.json", "state.json"};
  const auto expected = [&](int writers) {
    std::vector<std::string> names = others;
    for (int writer = 0; writer < writers; ++writer) {
      for (const ShardKind kind : kShardKinds) names.push_back(ShardFileName(kind, writer, writers));
    }
    std::sort(names.begin(), names.end());
    return names;
  };
  // Replicas write nothing; ranks with shards of their own do.
  EXPECT_EQ(names(Run({.mesh = {4, 1}, .zero_stage = 0}, nullptr, 0, 1)), expected(1));
  EXPECT_EQ(names(Run({.mesh = {2, 2}, .zero_stage = 0}, nullptr, 0, 1)), expected(2));
  const Written four = Run({.mesh = {2, 2}, .zero_stage = 3}, nullptr, 0, 1);
  EXPECT_EQ(names(four), expected(4));
  // Parameters, first and second moments of 8 bytes each, and headers; norms, which tensor-parallel ranks share, are in
  // half of the files.
  uint64_t bytes = 0, largest = 0;
  for (const auto& [name, file] : four.files) {
    if (std::count(others.begin(), others.end(), name) > 0) continue;
    bytes += file.bytes;
    largest = std::max(largest, file.bytes);
  }
  const uint64_t state = 3 * 8 * static_cast<uint64_t>(shape_.ParameterCount());
  EXPECT_GE(bytes, state);
  EXPECT_LE(bytes, state + 8 * 8'000);
  EXPECT_LE(largest, state / 4);
}

}  // namespace
}  // namespace leeway
