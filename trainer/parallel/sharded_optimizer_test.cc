#include "trainer/parallel/sharded_optimizer.h"

#include <algorithm>
#include <cmath>

#include "gtest/gtest.h"
#include "model/tensor_parallel.h"
#include "trainer/parallel/run_mesh_test.h"
#include "trainer/parallel/sharded_state.h"

namespace leeway {
namespace {

using internal::EvenMeshShape;
using internal::ExactValues;
using internal::OddMeshShape;
using internal::RunMesh;

OptimizerOptions MuonOptions() {
  OptimizerOptions options;
  options.kind = OptimizerKind::kMuon;
  options.weight_decay = 0.1;
  return options;
}

// Ten updates on a mesh with gradients whose sums are exact; the whole model's parameters.
absl::Status Train(const ModelShape& shape, const ShardingOptions& sharding, const Mesh& mesh, int64_t* bytes_sent,
                   std::vector<double>* whole) {
  ParallelFor parallel(1);
  LEEWAY_ASSIGN_OR_RETURN(const auto state,
                          ShardedState<double>::Create(shape, sharding, MuonOptions(), &mesh, &parallel));
  const ShardPlan& plan = state->plan();
  const std::vector<ShardSlice> slices = TensorShardSlices(shape, mesh.tensor_rank(), mesh.shape().tensor);
  std::vector<double> share(static_cast<size_t>(plan.FullCount(Held::kAll)));
  CopyToShard<double>(slices, ExactValues<double>(shape.ParameterCount(), 1), absl::MakeSpan(share));
  state->SetParameters(share);
  for (int step = 0; step < 10; ++step) {
    state->ZeroGradients();
    // The sum over the replicas is the same whatever their number.
    std::vector<double> gradients = ExactValues<double>(shape.ParameterCount(), 10 + step);
    if (mesh.data_rank() > 0) std::fill(gradients.begin(), gradients.end(), 0.0);
    CopyToShard<double>(slices, gradients, absl::MakeSpan(share));
    for (int64_t unit = 0; unit < plan.unit_count(); ++unit) {
      LEEWAY_RETURN_IF_ERROR(state->Add(unit, absl::MakeConstSpan(share).subspan(plan.FullOffset(unit, Held::kAll),
                                                                                 plan.UnitCount(unit, Held::kAll))));
    }
    LEEWAY_RETURN_IF_ERROR(state->FinishGradients());
    LEEWAY_RETURN_IF_ERROR(state->Step(0.01, 0.25));
  }
  for (const Communicator* ranks : {mesh.world(), mesh.tensor()}) {
    *bytes_sent += ranks->counters().of(Collective::kAllToAll).bytes_sent;
  }
  LEEWAY_RETURN_IF_ERROR(state->ExportParameters(absl::MakeSpan(share)));
  whole->assign(static_cast<size_t>(shape.ParameterCount()), std::nan(""));
  CopyFromShard<double>(slices, share, absl::MakeSpan(*whole));
  return absl::OkStatus();
}

// Each rank's view of the whole: NaN where it holds nothing.
std::vector<std::vector<double>> TrainAll(const ModelShape& shape, const MeshShape& mesh_shape,
                                          const ShardingOptions& sharding, int64_t* bytes_sent) {
  std::vector<std::vector<double>> views(static_cast<size_t>(mesh_shape.ranks()));
  std::vector<int64_t> sent(views.size(), 0);
  const absl::Status status = RunMesh(mesh_shape, [&](const Mesh& mesh) {
    const size_t rank = static_cast<size_t>(mesh.world()->rank());
    return Train(shape, sharding, mesh, &sent[rank], &views[rank]);
  });
  EXPECT_TRUE(status.ok()) << status;
  *bytes_sent = 0;
  for (const int64_t bytes : sent) *bytes_sent += bytes;
  return views;
}

TEST(ShardedMuonTest, EveryMeshAndStageMakesOneProcesssParameters) {
  const ModelShape shape = OddMeshShape(false, 4);
  int64_t bytes = 0;
  const std::vector<double> expected = TrainAll(shape, {1, 1}, {}, &bytes)[0];
  EXPECT_EQ(bytes, 0);
  double moved = 0;
  const std::vector<double> initial = ExactValues<double>(shape.ParameterCount(), 1);
  for (size_t i = 0; i < expected.size(); ++i) moved = std::max(moved, std::abs(expected[i] - initial[i]));
  EXPECT_GT(moved, 0.05);
  for (const MeshShape mesh_shape :
       {MeshShape{2, 1}, MeshShape{3, 1}, MeshShape{4, 1}, MeshShape{1, 2}, MeshShape{2, 2}, MeshShape{1, 4}}) {
    for (int stage = 0; stage <= 3; ++stage) {
      for (const std::vector<double>& view : TrainAll(shape, mesh_shape, {.zero_stage = stage}, &bytes)) {
        for (size_t i = 0; i < view.size(); ++i) {
          if (!std::isnan(view[i])) {
            ASSERT_NEAR(view[i], expected[i], 1e-9)
                << mesh_shape.data << " x " << mesh_shape.tensor << " stage " << stage;
          }
        }
      }
    }
  }
}

// n elements of matrices on N ranks: all ranks together send 2n(N-1)/N, a rank 2n(N-1)/N^2 on average.
TEST(ShardedMuonTest, TrafficIsTheClosedForm) {
  const ModelShape shape = EvenMeshShape(true);
  int64_t matrices = 0;
  for (const ParameterInfo& info : ParameterLayout(shape)) matrices += IsHiddenMatrix(info) ? info.element_count : 0;
  int64_t bytes = 0;
  for (int n = 2; n <= 4; ++n) {
    TrainAll(shape, {.data = n}, {.zero_stage = 2}, &bytes);
    EXPECT_EQ(bytes, 10 * 2 * matrices * 8 / n * (n - 1)) << n;
    TrainAll(shape, {.data = n}, {.zero_stage = 0}, &bytes);
    EXPECT_EQ(bytes, 0);
  }
  // Two replicas with the whole state exchange within their tensor-parallel pairs, each for itself.
  TrainAll(shape, {.data = 2, .tensor = 2}, {.zero_stage = 0}, &bytes);
  EXPECT_EQ(bytes, 2 * 10 * 2 * matrices * 8 / 2);
}

TEST(PlaceMatricesTest, RectanglesTileEveryMatrix) {
  const ModelShape shape = OddMeshShape(true, 4);
  for (int tensor : {1, 2, 4}) {
    for (int data = 1; data <= 5; ++data) {
      std::vector<OptimizerPart> parts;
      for (const ParameterInfo& info : ParameterLayout(TensorShard(shape, 0, tensor))) parts.push_back({info, 0, 0});
      const std::vector<SharedMatrix> matrices = PlaceMatrices(shape, tensor, data, parts);
      ASSERT_EQ(matrices.size(), 14u);
      for (const SharedMatrix& matrix : matrices) {
        ASSERT_EQ(static_cast<int>(matrix.held.size()), tensor * data);
        std::vector<int> seen(static_cast<size_t>(matrix.rows * matrix.columns), 0);
        for (const MatrixRange& range : matrix.held) {
          for (int64_t r = 0; r < range.rows; ++r) {
            for (int64_t c = 0; c < range.columns; ++c) {
              ++seen[static_cast<size_t>((range.row_begin + r) * matrix.columns + range.column_begin + c)];
            }
          }
        }
        for (const int times : seen) ASSERT_EQ(times, 1);
      }
    }
  }
}

}  // namespace
}  // namespace leeway
