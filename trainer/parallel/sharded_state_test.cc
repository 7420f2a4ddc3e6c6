#include "trainer/parallel/sharded_state.h"

#include <cmath>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/optimizer/adamw.h"
#include "trainer/optimizer/element_storage.h"
#include "trainer/parallel/run_mesh_test.h"

namespace leeway {
namespace {

using internal::ExactValues;
using internal::OddMeshShape;
using internal::RunMesh;
using ::testing::HasSubstr;

constexpr int kSteps = 5;
constexpr int kMicroBatches = 2;

OptimizerOptions Adam() {
  OptimizerOptions options;
  options.weight_decay = 0.1;
  return options;
}

// What one process makes of the sums: AdamW over the trainable parameters, in place.
template <typename Real>
std::vector<Real> OneProcess(const ModelShape& shape, const std::vector<std::string>& frozen, int data_ranks) {
  ParallelFor parallel(1);
  const ShardPlan plan = *ShardPlan::Create(ParameterLayout(shape), 1, frozen);
  const std::vector<OptimizerPart> parts = plan.OptimizerParts(0);
  BasicAdamW<Real> adamw(Adam(), parts, &parallel);
  std::vector<Real> parameters = ExactValues<Real>(shape.ParameterCount(), 1);
  for (int step = 0; step < kSteps; ++step) {
    std::vector<Real> gradients(parameters.size(), Real{0});
    for (int rank = 0; rank < data_ranks; ++rank) {
      for (int micro = 0; micro < kMicroBatches; ++micro) {
        const std::vector<Real> one = ExactValues<Real>(shape.ParameterCount(), 100 * step + 10 * rank + micro + 2);
        for (size_t i = 0; i < one.size(); ++i) gradients[i] += one[i];
      }
    }
    adamw.Begin(1e-2 * (step + 1), 0.3);
    std::vector<PartUpdate<Real>> updates;
    for (size_t p = 0; p < parts.size(); ++p) {
      const int64_t offset = parts[p].parameter.offset;
      updates.push_back({static_cast<int64_t>(p), gradients.data() + offset, parameters.data() + offset});
    }
    EXPECT_TRUE(adamw.Update(updates).ok());
  }
  return parameters;
}

template <typename Real>
absl::Status TrainOnMesh(const ModelShape& shape, const ShardingOptions& options, const Mesh& mesh,
                         std::vector<Real>* result) {
  ParallelFor parallel(1);
  LEEWAY_ASSIGN_OR_RETURN(const auto state, ShardedState<Real>::Create(shape, options, Adam(), &mesh, &parallel));
  state->SetParameters(ExactValues<Real>(shape.ParameterCount(), 1));
  const ShardPlan& plan = state->plan();
  for (int step = 0; step < kSteps; ++step) {
    state->ZeroGradients();
    for (int micro = 0; micro < kMicroBatches; ++micro) {
      const std::vector<Real> gradients =
          ExactValues<Real>(shape.ParameterCount(), 100 * step + 10 * mesh.data_rank() + micro + 2);
      // As the model does: units from the last to the first, parameters of the layers again on the way.
      for (int64_t unit = plan.unit_count() - 1; unit >= 0; --unit) {
        LEEWAY_RETURN_IF_ERROR(state->Acquire(unit, unit - 1).status());
        LEEWAY_RETURN_IF_ERROR(
            state->Add(unit, absl::MakeConstSpan(gradients).subspan(plan.FullOffset(unit, Held::kAll),
                                                                    plan.UnitCount(unit, Held::kAll))));
      }
    }
    LEEWAY_RETURN_IF_ERROR(state->FinishGradients());
    LEEWAY_RETURN_IF_ERROR(state->GradientNorm().status());
    LEEWAY_RETURN_IF_ERROR(state->Step(1e-2 * (step + 1), 0.3));
  }
  result->resize(static_cast<size_t>(shape.ParameterCount()));
  return state->ExportParameters(absl::MakeSpan(*result));
}

template <typename Real>
void ExpectEqualToOneProcess(const ModelShape& shape, const ShardingOptions& options, int data_ranks) {
  std::vector<Real> expected = OneProcess<Real>(shape, options.frozen, data_ranks);
  if (options.bf16_parameters) {
    ParallelFor parallel(1);
    const int64_t count = static_cast<int64_t>(expected.size());
    std::vector<uint16_t> rounded(expected.size());
    StoreElements(expected.data(), count, DType::kBF16, rounded.data(), &parallel);
    LoadElements(DType::kBF16, rounded.data(), count, expected.data(), &parallel);
  }
  std::vector<std::vector<Real>> results(static_cast<size_t>(data_ranks));
  const absl::Status status = RunMesh({.data = data_ranks}, [&](const Mesh& mesh) {
    return TrainOnMesh(shape, options, mesh, &results[static_cast<size_t>(mesh.data_rank())]);
  });
  ASSERT_TRUE(status.ok()) << status;
  for (const std::vector<Real>& result : results) ASSERT_EQ(result, expected);
}

TEST(ShardedStateTest, EveryStageAndRankCountIsOneProcessToTheBit) {
  for (int data_ranks = 1; data_ranks <= 4; ++data_ranks) {
    for (int stage = 0; stage <= 3; ++stage) {
      SCOPED_TRACE(testing::Message() << data_ranks << " ranks, stage " << stage);
      ExpectEqualToOneProcess<double>(OddMeshShape(stage % 2 == 0), {.zero_stage = stage}, data_ranks);
      ExpectEqualToOneProcess<float>(OddMeshShape(stage % 2 == 1), {.zero_stage = stage}, data_ranks);
    }
    ExpectEqualToOneProcess<float>(OddMeshShape(false), {.zero_stage = 3, .reduce_once = true}, data_ranks);
  }
}

TEST(ShardedStateTest, FrozenParametersStayAndTheOthersDoNotNotice) {
  const std::vector<std::string> frozen = {"model.embed_tokens.weight", "model.layers.0.self_attn.k_proj.weight",
                                           "model.layers.1.input_layernorm.weight", "model.norm.weight"};
  for (int stage = 0; stage <= 3; ++stage) {
    SCOPED_TRACE(stage);
    ExpectEqualToOneProcess<double>(OddMeshShape(false), {.zero_stage = stage, .frozen = frozen}, 3);
    ExpectEqualToOneProcess<float>(
        OddMeshShape(true), {.zero_stage = stage, .bf16_parameters = true, .bf16_gradients = true, .frozen = frozen},
        2);
  }
}

TEST(ShardedStateTest, Bf16IsTheRoundedMaster) {
  for (int data_ranks : {1, 3}) {
    for (int stage = 0; stage <= 3; ++stage) {
      SCOPED_TRACE(testing::Message() << data_ranks << " ranks, stage " << stage);
      ExpectEqualToOneProcess<float>(OddMeshShape(false), {.zero_stage = stage, .bf16_parameters = true}, data_ranks);
      ExpectEqualToOneProcess<float>(OddMeshShape(true), {.zero_stage = stage, .bf16_gradients = true}, data_ranks);
      ExpectEqualToOneProcess<float>(
          OddMeshShape(true), {.zero_stage = stage, .bf16_parameters = true, .bf16_gradients = true}, data_ranks);
    }
  }
}

TEST(ShardedStateTest, FlatArraysAreTheSameMemoryWhereThereAreAny) {
  const ModelShape shape = OddMeshShape(true);
  const absl::Status status = RunMesh({.data = 2}, [&](const Mesh& mesh) -> absl::Status {
    ParallelFor parallel(1);
    for (int stage = 0; stage <= 3; ++stage) {
      LEEWAY_ASSIGN_OR_RETURN(const auto state,
                              ShardedState<float>::Create(shape, {.zero_stage = stage}, Adam(), &mesh, &parallel));
      const std::vector<float> values = ExactValues<float>(shape.ParameterCount(), 5);
      state->SetParameters(values);
      if (stage < 3) {
        EXPECT_EQ(state->FlatParameters(), absl::MakeConstSpan(values));
      } else {
        EXPECT_TRUE(state->FlatParameters().empty());
      }
      EXPECT_EQ(state->FlatGradients().empty(), stage >= 2);
      state->ZeroGradients();
      for (float& gradient : state->FlatGradients()) gradient = 3.0f;
      LEEWAY_RETURN_IF_ERROR(state->FinishGradients());
      LEEWAY_ASSIGN_OR_RETURN(const double norm, state->GradientNorm());
      // Both ranks' threes.
      EXPECT_DOUBLE_EQ(norm, stage >= 2 ? 0.0 : 6 * std::sqrt(static_cast<double>(shape.ParameterCount())));
    }
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
}

TEST(ShardedStateTest, ASnapshotUndoesAStep) {
  const ModelShape shape = OddMeshShape(false);
  for (int stage = 0; stage <= 3; ++stage) {
    const ShardingOptions options{.zero_stage = stage, .bf16_parameters = stage % 2 == 1};
    const absl::Status status = RunMesh({.data = 2}, [&](const Mesh& mesh) -> absl::Status {
      ParallelFor parallel(1);
      LEEWAY_ASSIGN_OR_RETURN(const auto state, ShardedState<float>::Create(shape, options, Adam(), &mesh, &parallel));
      state->SetParameters(ExactValues<float>(shape.ParameterCount(), 7));
      std::vector<float> before(static_cast<size_t>(shape.ParameterCount())), after = before, again = before;
      const auto step = [&](std::vector<float>* result) -> absl::Status {
        state->ZeroGradients();
        const std::vector<float> gradients = ExactValues<float>(shape.ParameterCount(), 8);
        const ShardPlan& plan = state->plan();
        for (int64_t unit = 0; unit < plan.unit_count(); ++unit) {
          LEEWAY_RETURN_IF_ERROR(
              state->Add(unit, absl::MakeConstSpan(gradients).subspan(plan.FullOffset(unit, Held::kAll),
                                                                      plan.UnitCount(unit, Held::kAll))));
        }
        LEEWAY_RETURN_IF_ERROR(state->FinishGradients());
        LEEWAY_RETURN_IF_ERROR(state->Step(0.1, 1.0));
        return state->ExportParameters(absl::MakeSpan(*result));
      };
      LEEWAY_RETURN_IF_ERROR(step(&before));
      const ShardedState<float>::Snapshot snapshot = state->Save();
      LEEWAY_RETURN_IF_ERROR(step(&after));
      EXPECT_NE(after, before);
      LEEWAY_RETURN_IF_ERROR(state->Restore(snapshot));
      EXPECT_EQ(state->updates(), 1);
      std::vector<float> restored(before.size());
      LEEWAY_RETURN_IF_ERROR(state->ExportParameters(absl::MakeSpan(restored)));
      EXPECT_EQ(restored, before);
      LEEWAY_RETURN_IF_ERROR(step(&again));
      EXPECT_EQ(again, after);
      return absl::OkStatus();
    });
    EXPECT_TRUE(status.ok()) << status;
  }
}

TEST(ShardedStateTest, ARankThatStopsEndsTheOthers) {
  const ModelShape shape = OddMeshShape(true);
  const std::vector<absl::Status> statuses =
      RunRanks(3, absl::Seconds(60), [&](int rank, Communicator* world) -> absl::Status {
        LEEWAY_ASSIGN_OR_RETURN(const std::unique_ptr<Mesh> mesh, Mesh::Create({.data = 3}, world));
        ParallelFor parallel(1);
        LEEWAY_ASSIGN_OR_RETURN(const auto state,
                                ShardedState<float>::Create(shape, {.zero_stage = 3}, Adam(), mesh.get(), &parallel));
        LEEWAY_RETURN_IF_ERROR(state->Acquire(0, 1).status());
        if (rank == 1) return absl::InternalError("out of memory");
        LEEWAY_RETURN_IF_ERROR(state->Acquire(1, 2).status());
        return state->Acquire(2, -1).status();
      });
  EXPECT_EQ(statuses[1].code(), absl::StatusCode::kInternal);
  for (int rank : {0, 2}) {
    EXPECT_FALSE(statuses[static_cast<size_t>(rank)].ok());
    // Either the rank that left is missed, or its error has come already.
    EXPECT_THAT(std::string(statuses[static_cast<size_t>(rank)].message()),
                AnyOf(HasSubstr("out of memory"), HasSubstr("rank 1")));
  }
}

TEST(ShardedStateTest, OptionsThatCannotBeAreNamed) {
  const absl::Status status = RunMesh({.data = 1}, [&](const Mesh& mesh) {
    ParallelFor parallel(1);
    return ShardedState<double>::Create(OddMeshShape(true),
                                        {.zero_stage = 2, .reduce_once = true, .bf16_parameters = true}, Adam(), &mesh,
                                        &parallel)
        .status();
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("trainer.reduce_once"), HasSubstr("trainer.bf16_parameters")));
}

}  // namespace
}  // namespace leeway
