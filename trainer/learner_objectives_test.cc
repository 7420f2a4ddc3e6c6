// Every objective and every aggregation: loss and gradient of a step do not depend on how ranks and micro-batches split
// the batch.

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "gtest/gtest.h"
#include "trainer/fake_rollout.h"
#include "trainer/learner.h"
#include "trainer/parallel/run_mesh_test.h"

namespace leeway {
namespace {

using internal::RunMesh;

constexpr uint64_t kStep = 2;

ModelShape Shape() {
  ModelShape shape = TinyShape();
  shape.heads = 4;
  shape.key_value_heads = 4;
  return shape;
}

// Sequences with 3 and with 5 trained tokens, of different lengths, in groups of different sizes; recorded under other
// weights than those that are trained, so that ratios differ from 1 on both sides of the clip.
LeasedBatch Batch(int groups) {
  ParallelFor parallel(1);
  FakeRollout rollout(Shape(), &parallel);
  v1::WeightsVersion weights;
  weights.set_lineage(1);
  weights.set_version(1);
  rollout.SetWeights(weights, RandomParameters(Shape(), 81));
  LeasedBatch batch;
  batch.lag_limit = 1;
  for (int g = 0; g < groups; ++g) {
    const uint64_t ticket = static_cast<uint64_t>(g) + 1;
    batch.groups.push_back(rollout.Group(ticket, 2 + g % 3));
    for (v1::Trajectory& member : batch.groups.back().members) {
      const uint32_t index = member.key().member();
      if ((ticket + index) % 2 == 0) {
        member.mutable_spans()->DeleteSubrange(2, 3);
        member.set_turns(1);
      }
      for (uint32_t i = 0; i < 7 * index; ++i) member.mutable_spans(0)->add_ids(static_cast<int32_t>(2 + i));
    }
  }
  return batch;
}

struct Split {
  MeshShape mesh;
  int zero_stage = 0;
  bool sequence_parallel = false;
  int64_t micro_batch_tokens = 1 << 20;
};

std::string NameOf(const Split& split) {
  return absl::StrCat("data ", split.mesh.data, ", tensor ", split.mesh.tensor, ", stage ", split.zero_stage,
                      split.sequence_parallel ? ", sequence parallel, " : ", ", split.micro_batch_tokens,
                      " tokens a micro-batch");
}

struct Outcome {
  ObjectiveSums sums;
  std::vector<double> parameters;
};

// One step of plain gradient descent at rate 1: parameters change by the gradient.
Outcome Train(const ObjectiveOptions& objective, const Split& split, const LeasedBatch& batch) {
  TrainerOptions options;
  options.model = Shape();
  options.objective = objective;
  options.micro_batch_tokens = split.micro_batch_tokens;
  options.mesh = split.mesh;
  options.sequence_parallel = split.sequence_parallel;
  options.sharding.zero_stage = split.zero_stage;
  options.optimizer.kind = OptimizerKind::kSgd;
  options.optimizer.schedule.peak = 1;
  options.optimizer.weight_decay = 0;
  options.optimizer.max_grad_norm = 0;
  std::vector<double> initial;
  for (const float value : RandomParameters(Shape(), 81)) {
    initial.push_back(value + 0.05 * std::sin(static_cast<double>(initial.size())));
  }
  Outcome outcome;
  const absl::Status status = RunMesh(split.mesh, [&](const Mesh& mesh) -> absl::Status {
    ParallelFor parallel(1);
    LEEWAY_ASSIGN_OR_RETURN(const auto learner, BasicLearner<double>::Create(options, &mesh, &parallel));
    LEEWAY_RETURN_IF_ERROR(learner->Reset(initial));
    StepReport report;
    LEEWAY_RETURN_IF_ERROR(learner->Train(kStep, batch, &report));
    EXPECT_EQ(report.updates, 1);
    if (mesh.world()->rank() > 0) return absl::OkStatus();
    outcome.sums = report.sums;
    outcome.parameters.assign(learner->parameters().begin(), learner->parameters().end());
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status << "; " << NameOf(split);
  return outcome;
}

// All objectives with all aggregations, and the corrections of the one that has them.
std::vector<ObjectiveOptions> Objectives() {
  std::vector<ObjectiveOptions> objectives;
  for (const std::string& name : ObjectiveKindNames()) {
    for (const std::string& aggregation : AggregationKindNames()) {
      for (const std::string& correction : CorrectionKindNames()) {
        ObjectiveOptions options;
        options.kind = *ParseObjectiveKind(name);
        options.aggregation = *ParseAggregationKind(aggregation);
        options.correction = *ParseCorrectionKind(correction);
        options.entropy_coefficient = 0.01;
        options.max_tokens = 5;
        if (ObjectiveProblems(options).empty()) objectives.push_back(options);
      }
    }
  }
  return objectives;
}

TEST(LearnerObjectivesTest, DoNotDependOnRanksAndMicroBatches) {
  std::vector<Split> splits;
  for (const MeshShape mesh : {MeshShape{1, 1}, MeshShape{2, 1}, MeshShape{3, 1}, MeshShape{4, 1}, MeshShape{1, 2},
                               MeshShape{1, 4}, MeshShape{2, 2}}) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    // A sanitizer is slow and looks for something else.
    if (mesh.data != mesh.tensor) continue;
#endif
    splits.push_back({mesh, 0, false, 40});
    splits.push_back({mesh, 3, mesh.tensor > 1, 1});
  }
  const std::vector<ObjectiveOptions> objectives = Objectives();
  // Five kinds, one of them with three corrections.
  ASSERT_EQ(objectives.size(), 4 * (4 + 3));
  // With two groups of four sequences in all, some ranks have nothing to train.
  for (const int groups : {2, 5}) {
    const LeasedBatch batch = Batch(groups);
    for (const ObjectiveOptions& objective : objectives) {
      const Outcome whole = Train(objective, {}, batch);
      ASSERT_FALSE(whole.parameters.empty());
      EXPECT_GT(whole.sums.tokens, 0);
      for (const Split& split : splits) {
        const Outcome parts = Train(objective, split, batch);
        const std::string where = absl::StrCat(
            "objective ", static_cast<int>(objective.kind), ", correction ", static_cast<int>(objective.correction),
            ", aggregation ", static_cast<int>(objective.aggregation), "; ", groups, " groups; ", NameOf(split));
        EXPECT_NEAR(parts.sums.loss, whole.sums.loss, 1e-12) << where;
        EXPECT_NEAR(parts.sums.entropy, whole.sums.entropy, 1e-12) << where;
        EXPECT_EQ(parts.sums.tokens, whole.sums.tokens) << where;
        EXPECT_EQ(parts.sums.clipped, whole.sums.clipped) << where;
        EXPECT_EQ(parts.sums.corrected, whole.sums.corrected) << where;
        ASSERT_EQ(parts.parameters.size(), whole.parameters.size()) << where;
        double largest = 0;
        for (size_t i = 0; i < whole.parameters.size(); ++i) {
          largest = std::max(largest, std::abs(parts.parameters[i] - whole.parameters[i]));
        }
        EXPECT_LE(largest, 1e-12) << where;
      }
    }
  }
}

}  // namespace
}  // namespace leeway
