// The norm that ShardedState forms over a mesh, against one process's.

#include <cmath>

#include "gtest/gtest.h"
#include "model/tensor_parallel.h"
#include "trainer/optimizer/global_norm.h"
#include "trainer/parallel/run_mesh_test.h"
#include "trainer/parallel/sharded_state.h"

namespace leeway {
namespace {

using internal::ExactValues;
using internal::OddMeshShape;
using internal::RunMesh;

// Uneven magnitudes, the norms' gradients (replicated over tensor-parallel ranks) the largest.
std::vector<double> Gradients(const ModelShape& shape) {
  RandomStream stream({.seed = 3, .purpose = RandomPurpose::kShuffle});
  std::vector<double> values;
  for (const ParameterInfo& info : ParameterLayout(shape)) {
    for (int64_t i = 0; i < info.element_count; ++i) {
      values.push_back(stream.NextNormal() * (info.shape.size() == 1 ? 10 : 1));
    }
  }
  return values;
}

// `whole` split over data-parallel ranks, cut over tensor-parallel ones; the norms that the ranks found.
template <typename Real>
std::vector<double> NormsOnMesh(const ModelShape& shape, const MeshShape& mesh_shape, const ShardingOptions& options,
                                const std::vector<Real>& whole) {
  std::vector<double> norms(static_cast<size_t>(mesh_shape.ranks()));
  const absl::Status status = RunMesh(mesh_shape, [&](const Mesh& mesh) -> absl::Status {
    ParallelFor parallel(1);
    LEEWAY_ASSIGN_OR_RETURN(const auto state,
                            ShardedState<Real>::Create(shape, options, OptimizerOptions(), &mesh, &parallel));
    std::vector<Real> own = whole;
    for (size_t i = 0; i < own.size(); ++i) {
      // Each element's shares are 1/2 for all but the first rank, and the rest for that.
      const int ranks = mesh_shape.data;
      own[i] *= mesh.data_rank() == 0 ? static_cast<Real>(1 - 0.5 * (ranks - 1)) : static_cast<Real>(0.5);
    }
    const ShardPlan& plan = state->plan();
    std::vector<Real> share(static_cast<size_t>(plan.FullCount(Held::kAll)));
    CopyToShard<Real>(TensorShardSlices(shape, mesh.tensor_rank(), mesh_shape.tensor), own, absl::MakeSpan(share));
    state->ZeroGradients();
    for (int64_t unit = 0; unit < plan.unit_count(); ++unit) {
      LEEWAY_RETURN_IF_ERROR(state->Add(unit, absl::MakeConstSpan(share).subspan(plan.FullOffset(unit, Held::kAll),
                                                                                 plan.UnitCount(unit, Held::kAll))));
    }
    LEEWAY_RETURN_IF_ERROR(state->FinishGradients());
    LEEWAY_ASSIGN_OR_RETURN(norms[static_cast<size_t>(mesh.world()->rank())], state->GradientNorm());
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
  return norms;
}

TEST(GradientNormTest, IsOneProcesssOnEveryMesh) {
  for (const MeshShape mesh_shape : {MeshShape{1, 1}, MeshShape{2, 1}, MeshShape{3, 1}, MeshShape{4, 1},
                                     MeshShape{1, 2}, MeshShape{2, 2}, MeshShape{1, 4}}) {
    const ModelShape shape = OddMeshShape(false, mesh_shape.tensor);
    const std::vector<double> whole = Gradients(shape);
    long double sum = 0;
    for (const double g : whole) sum += static_cast<long double>(g) * g;
    const double expected = static_cast<double>(std::sqrt(sum));
    for (int stage = 0; stage <= 3; ++stage) {
      const std::vector<double> norms = NormsOnMesh(shape, mesh_shape, {.zero_stage = stage}, whole);
      for (const double norm : norms) {
        EXPECT_EQ(norm, norms[0]);
        EXPECT_NEAR(norm / expected, 1, 1e-13) << mesh_shape.data << " x " << mesh_shape.tensor << ", stage " << stage;
      }
    }
  }
}

TEST(GradientNormTest, FrozenParametersDoNotCount) {
  const ModelShape shape = OddMeshShape(false, 2);
  std::vector<double> whole = Gradients(shape);
  long double sum = 0;
  for (const ParameterInfo& info : ParameterLayout(shape)) {
    if (info.name == "model.norm.weight" || info.name == "lm_head.weight") continue;
    for (int64_t i = 0; i < info.element_count; ++i) {
      const long double g = whole[static_cast<size_t>(info.offset + i)];
      sum += g * g;
    }
  }
  for (int stage = 0; stage <= 3; ++stage) {
    const std::vector<double> norms =
        NormsOnMesh(shape, {2, 2}, {.zero_stage = stage, .frozen = {"model.norm.weight", "lm_head.weight"}}, whole);
    EXPECT_NEAR(norms[3] / static_cast<double>(std::sqrt(sum)), 1, 1e-13);
  }
}

TEST(GradientNormTest, OneRankAloneHasTheBitsOfGlobalNorm) {
  const ModelShape shape = OddMeshShape(true);
  std::vector<float> whole;
  for (const double g : Gradients(shape)) whole.push_back(static_cast<float>(g));
  ParallelFor parallel(1);
  for (int stage = 0; stage <= 3; ++stage) {
    EXPECT_EQ(NormsOnMesh(shape, {1, 1}, {.zero_stage = stage}, whole)[0], GlobalNorm(whole, &parallel));
  }
}

TEST(GradientNormTest, Bf16GradientsCountAsStored) {
  const ModelShape shape = OddMeshShape(true, 2);
  const std::vector<float> whole = ExactValues<float>(shape.ParameterCount(), 4);
  double sum = 0;
  for (const float g : whole) sum += static_cast<double>(g) * g;
  for (int stage = 0; stage <= 3; ++stage) {
    for (const double norm : NormsOnMesh(shape, {2, 2}, {.zero_stage = stage, .bf16_gradients = true}, whole)) {
      EXPECT_DOUBLE_EQ(norm, std::sqrt(sum));
    }
  }
}

TEST(GradientNormTest, WhatIsNotFiniteReachesAllRanks) {
  const ModelShape shape = OddMeshShape(true, 2);
  std::vector<double> whole = Gradients(shape);
  whole[17] = std::nan("");
  for (const double norm : NormsOnMesh(shape, {2, 2}, {.zero_stage = 2}, whole)) EXPECT_TRUE(std::isnan(norm));
}

}  // namespace
}  // namespace leeway
