// The transformer on a mesh, its parameters streamed from ShardedState and its gradients delivered to it unit by unit,
// against one process with flat arrays.

#include <algorithm>
#include <cmath>
#include <string>

#include "gtest/gtest.h"
#include "model/random_case.h"
#include "model/tensor_parallel.h"
#include "model/transformer/transformer.h"
#include "trainer/optimizer/adamw.h"
#include "trainer/parallel/run_mesh_test.h"
#include "trainer/parallel/sharded_state.h"

namespace leeway {
namespace {

using internal::NextTokenPositions;
using internal::OddMeshShape;
using internal::RandomSequences;
using internal::RunMesh;
using internal::SpreadParameters;

constexpr int kSteps = 10;

// Skewed, and of replica 1 at two replicas nothing at all in the second micro-batch.
std::vector<std::vector<int64_t>> MicroBatches(int step) { return {{9, 1, 4}, {3}, {2 + step % 3}, {}}; }

// Gradients of an arbitrary function of the log-probabilities.
template <typename Real>
std::vector<Real> Upstream(size_t count) {
  std::vector<Real> values;
  for (size_t i = 0; i < count; ++i) values.push_back(static_cast<Real>(static_cast<double>(i % 5) / 4 - 0.4));
  return values;
}

template <typename Real>
absl::Status RunMicroBatch(const ModelShape& shape, const std::vector<int64_t>& lengths, uint64_t seed,
                           Transformer<Real>* model, absl::Span<Real> flat, GradientSink<Real>* sink) {
  const PackedSequences sequences = RandomSequences(shape, lengths, seed);
  const std::vector<ScoredPosition> positions = NextTokenPositions(sequences);
  PositionScores<Real> scores;
  LEEWAY_RETURN_IF_ERROR(model->Score(sequences, positions, {}, true, &scores));
  const std::vector<Real> upstream = Upstream<Real>(positions.size());
  if (sink != nullptr) return model->Backward(upstream, upstream, sink);
  return model->Backward(upstream, upstream, flat);
}

OptimizerOptions Adam() {
  OptimizerOptions options;
  options.epsilon = 1e-6;
  return options;
}

template <typename Real>
std::vector<Real> OneProcess(const ModelShape& shape, std::vector<double>* norms) {
  ParallelFor parallel(1);
  Transformer<Real> model(shape, &parallel);
  BasicAdamW<Real> adamw(Adam(), ParameterLayout(shape), &parallel);
  std::vector<Real> parameters = SpreadParameters<Real>(shape, 5);
  for (int step = 0; step < kSteps; ++step) {
    model.SetParameters(parameters);
    std::vector<Real> gradients(parameters.size(), Real{0});
    const std::vector<std::vector<int64_t>> micro_batches = MicroBatches(step);
    for (size_t m = 0; m < micro_batches.size(); ++m) {
      EXPECT_TRUE(
          RunMicroBatch<Real>(shape, micro_batches[m], 10 * step + m, &model, absl::MakeSpan(gradients), nullptr).ok());
    }
    norms->push_back(std::sqrt(SumOfSquares<Real>(gradients, &parallel)));
    adamw.Step(1e-3, ClipScale(norms->back(), 1.0), gradients, absl::MakeSpan(parameters));
  }
  return parameters;
}

template <typename Real>
absl::Status OnMesh(const ModelShape& shape, const ShardingOptions& sharding, bool streams, const Mesh& mesh,
                    std::vector<double>* norms, std::vector<Real>* whole) {
  ParallelFor parallel(1);
  LEEWAY_ASSIGN_OR_RETURN(const auto state, ShardedState<Real>::Create(shape, sharding, Adam(), &mesh, &parallel));
  const std::vector<ShardSlice> slices = TensorShardSlices(shape, mesh.tensor_rank(), mesh.shape().tensor);
  std::vector<Real> share(static_cast<size_t>(state->plan().FullCount(Held::kAll)));
  CopyToShard<Real>(slices, SpreadParameters<Real>(shape, 5), absl::MakeSpan(share));
  state->SetParameters(share);
  Transformer<Real> model(shape, &parallel, {.tensor_parallel = {.ranks = mesh.tensor(), .sequence = streams}});
  if (streams) model.StreamParameters(state.get());
  for (int step = 0; step < kSteps; ++step) {
    if (!streams) model.SetParameters(state->FlatParameters());
    state->ZeroGradients();
    const std::vector<std::vector<int64_t>> micro_batches = MicroBatches(step);
    for (size_t m = 0; m < micro_batches.size(); m += static_cast<size_t>(mesh.shape().data)) {
      const size_t own = m + static_cast<size_t>(mesh.data_rank());
      LEEWAY_RETURN_IF_ERROR(RunMicroBatch<Real>(shape, micro_batches[own], 10 * step + own, &model,
                                                 state->FlatGradients(), streams ? state.get() : nullptr));
    }
    LEEWAY_RETURN_IF_ERROR(state->FinishGradients());
    LEEWAY_ASSIGN_OR_RETURN(const double norm, state->GradientNorm());
    norms->push_back(norm);
    LEEWAY_RETURN_IF_ERROR(state->Step(1e-3, ClipScale(norm, 1.0)));
  }
  LEEWAY_RETURN_IF_ERROR(state->ExportParameters(absl::MakeSpan(share)));
  whole->assign(static_cast<size_t>(shape.ParameterCount()), static_cast<Real>(std::nan("")));
  CopyFromShard<Real>(slices, share, absl::MakeSpan(*whole));
  return absl::OkStatus();
}

template <typename Real>
void ExpectOneProcesssResults(double norm_tolerance, double parameter_tolerance) {
  const std::pair<ModelFamily, bool> models[] = {{ModelFamily::kLlama, false},
                                                 {ModelFamily::kLlama, true},
                                                 {ModelFamily::kQwen2, true},
                                                 {ModelFamily::kQwen3, false}};
  for (const auto& [family, tied] : models) {
    ModelShape shape = OddMeshShape(tied, 4);
    shape.family = family;
    std::vector<double> expected_norms;
    const std::vector<Real> expected = OneProcess<Real>(shape, &expected_norms);
    for (const MeshShape mesh_shape :
         {MeshShape{1, 1}, MeshShape{2, 1}, MeshShape{4, 1}, MeshShape{1, 2}, MeshShape{2, 2}, MeshShape{1, 4}}) {
      for (int variant = 0; variant < 7; ++variant) {
        const bool streams = variant >= 3;
        const ShardingOptions sharding{.zero_stage = streams ? variant - 3 : variant};
        // Without a whole gradient there is nothing for a flat backward pass to add to.
        if (!streams && sharding.zero_stage == 2 && mesh_shape.data > 1) continue;
        SCOPED_TRACE(testing::Message() << mesh_shape.data << " x " << mesh_shape.tensor << ", stage "
                                        << sharding.zero_stage << (streams ? ", streamed" : "")
                                        << (tied ? ", tied" : "") << ", " << ModelFamilyName(family));
        std::vector<std::vector<double>> norms(static_cast<size_t>(mesh_shape.ranks()));
        std::vector<std::vector<Real>> views(norms.size());
        const absl::Status status = RunMesh(mesh_shape, [&](const Mesh& mesh) {
          const size_t rank = static_cast<size_t>(mesh.world()->rank());
          return OnMesh<Real>(shape, sharding, streams, mesh, &norms[rank], &views[rank]);
        });
        ASSERT_TRUE(status.ok()) << status;
        for (size_t rank = 0; rank < views.size(); ++rank) {
          ASSERT_EQ(norms[rank], norms[0]);
          for (int step = 0; step < kSteps; ++step) {
            ASSERT_NEAR(norms[rank][step] / expected_norms[step], 1, norm_tolerance) << step;
          }
          // Replicas hold the same bits.
          const size_t replica = rank % static_cast<size_t>(mesh_shape.tensor);
          for (size_t i = 0; i < expected.size(); ++i) {
            if (std::isnan(views[rank][i])) continue;
            ASSERT_NEAR(views[rank][i], expected[i], parameter_tolerance) << i;
            ASSERT_EQ(views[rank][i], views[replica][i]) << i;
          }
        }
      }
    }
  }
}

TEST(ShardedTransformerTest, TenStepsAreOneProcesssInDouble) { ExpectOneProcesssResults<double>(1e-11, 1e-11); }

TEST(ShardedTransformerTest, TenStepsAreOneProcesssInFloat) { ExpectOneProcesssResults<float>(1e-3, 2e-4); }

}  // namespace
}  // namespace leeway
