// What ShardedState sends and holds, against the closed forms; at SmolLM2-135M's size also what the process gets
// resident.

#include <dlfcn.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "gtest/gtest.h"
#include "model/random_case.h"
#include "model/tensor_parallel.h"
#include "trainer/parallel/run_mesh_test.h"
#include "trainer/parallel/sharded_state.h"

namespace leeway {
namespace {

using internal::EvenMeshShape;
using internal::OddMeshShape;
using internal::RunMesh;

struct Traffic {
  int64_t all_reduce = 0;
  int64_t reduce_scatter = 0;
  int64_t all_gather = 0;
  int64_t other = 0;
};

Traffic TrafficOf(const Mesh& mesh) {
  Traffic traffic;
  for (const Communicator* ranks : {mesh.data(), mesh.data_gather()}) {
    const CollectiveCounters counters = ranks->counters();
    for (int c = 0; c < kCollectiveCount; ++c) {
      const Collective collective = static_cast<Collective>(c);
      int64_t* to = &traffic.other;
      if (collective == Collective::kAllReduce) to = &traffic.all_reduce;
      if (collective == Collective::kReduceScatter) to = &traffic.reduce_scatter;
      if (collective == Collective::kAllGather) to = &traffic.all_gather;
      *to += counters.of(collective).bytes_sent;
    }
  }
  return traffic;
}

// A step of `micro_batches`, walked as FSDP does: forward over all units, backward over all units.
template <typename Real>
absl::Status Step(const ModelShape& shape, const ShardingOptions& options, int micro_batches, const Mesh& mesh) {
  ParallelFor parallel(1);
  LEEWAY_ASSIGN_OR_RETURN(const auto state,
                          ShardedState<Real>::Create(shape, options, OptimizerOptions(), &mesh, &parallel));
  const ShardPlan& plan = state->plan();
  const std::vector<Real> gradient(static_cast<size_t>(plan.FullCount(Held::kAll)), Real{1});
  const int64_t last = plan.unit_count() - 1;
  state->ZeroGradients();
  for (int micro = 0; micro < micro_batches; ++micro) {
    for (int64_t unit = 0; unit <= last; ++unit) {
      LEEWAY_RETURN_IF_ERROR(state->Acquire(unit, unit < last ? unit + 1 : last).status());
    }
    for (int64_t unit = last; unit >= 0; --unit) {
      LEEWAY_RETURN_IF_ERROR(state->Acquire(unit, unit - 1).status());
      const auto of_unit = absl::MakeConstSpan(gradient).first(static_cast<size_t>(plan.UnitCount(unit, Held::kAll)));
      LEEWAY_RETURN_IF_ERROR(state->Add(unit, of_unit));
    }
  }
  LEEWAY_RETURN_IF_ERROR(state->FinishGradients());
  LEEWAY_RETURN_IF_ERROR(state->GradientNorm().status());
  return state->Step(1e-3, 1.0);
}

TEST(ShardedVolumeTest, IsTheClosedFormAtEveryStage) {
  for (const bool tied : {false, true}) {
    const ModelShape shape = EvenMeshShape(tied);
    const int64_t psi = shape.ParameterCount();
    for (int n = 1; n <= 4; ++n) {
      for (const int k : {1, 3}) {
        const auto of = [n](int64_t elements, int64_t bytes) { return elements * bytes / n * (n - 1); };
        const auto expect = [&](const ShardingOptions& options, Traffic expected) {
          const absl::Status status = RunMesh({.data = n}, [&](const Mesh& mesh) -> absl::Status {
            LEEWAY_RETURN_IF_ERROR(Step<float>(shape, options, k, mesh));
            const Traffic traffic = TrafficOf(mesh);
            const std::string where = testing::PrintToString(options.zero_stage) + " of " + testing::PrintToString(n);
            EXPECT_EQ(traffic.all_reduce, expected.all_reduce) << where;
            EXPECT_EQ(traffic.reduce_scatter, expected.reduce_scatter) << where;
            EXPECT_EQ(traffic.all_gather, expected.all_gather) << where;
            EXPECT_EQ(traffic.other, 0) << where;
            return absl::OkStatus();
          });
          ASSERT_TRUE(status.ok()) << status;
        };
        expect({.zero_stage = 0}, {.all_reduce = 2 * of(psi, 4)});
        expect({.zero_stage = 1}, {.reduce_scatter = of(psi, 4), .all_gather = of(psi, 4)});
        expect({.zero_stage = 2}, {.reduce_scatter = k * of(psi, 4), .all_gather = of(psi, 4)});
        expect({.zero_stage = 3}, {.reduce_scatter = k * of(psi, 4), .all_gather = 2 * k * of(psi, 4)});
        expect({.zero_stage = 3, .reduce_once = true},
               {.reduce_scatter = of(psi, 4), .all_gather = 2 * k * of(psi, 4)});
        // Parameters travel in their type, gradients are reduced in the arithmetic's.
        expect({.zero_stage = 3, .bf16_parameters = true, .bf16_gradients = true},
               {.reduce_scatter = k * of(psi, 4), .all_gather = 2 * k * of(psi, 2)});
        expect({.zero_stage = 1, .bf16_parameters = true, .bf16_gradients = true},
               {.reduce_scatter = of(psi, 4), .all_gather = of(psi, 2)});
        expect({.zero_stage = 0, .bf16_gradients = true}, {.all_reduce = 2 * of(psi, 4)});
        // Frozen parameters have no gradients, but the model reads them.
        const int64_t frozen = shape.vocabulary * shape.hidden;
        expect({.zero_stage = 3, .frozen = {"model.embed_tokens.weight"}},
               {.reduce_scatter = k * of(psi - frozen, 4), .all_gather = 2 * k * of(psi, 4)});
        expect({.zero_stage = 2, .frozen = {"model.embed_tokens.weight"}},
               {.reduce_scatter = k * of(psi - frozen, 4), .all_gather = of(psi - frozen, 4)});
      }
    }
  }
}

TEST(ShardedVolumeTest, TensorParallelRanksEachReduceTheirShare) {
  const ModelShape shape = EvenMeshShape(false);
  const int64_t share = TensorShard(shape, 0, 2).ParameterCount();
  const absl::Status status = RunMesh({.data = 2, .tensor = 2}, [&](const Mesh& mesh) -> absl::Status {
    LEEWAY_RETURN_IF_ERROR(Step<double>(shape, {.zero_stage = 3}, 1, mesh));
    const Traffic traffic = TrafficOf(mesh);
    EXPECT_EQ(traffic.all_gather, 2 * share * 8 / 2);
    EXPECT_EQ(traffic.reduce_scatter, share * 8 / 2);
    EXPECT_EQ(mesh.tensor()->counters().of(Collective::kAllReduce).bytes_sent, 0);
    return absl::OkStatus();
  });
  ASSERT_TRUE(status.ok()) << status;
}

TEST(ShardedVolumeTest, BytesHeldAreTheFormulas) {
  for (const MeshShape mesh_shape :
       {MeshShape{1, 1}, MeshShape{2, 1}, MeshShape{3, 1}, MeshShape{4, 1}, MeshShape{1, 2}, MeshShape{2, 2}}) {
    for (int stage = 0; stage <= 3; ++stage) {
      for (int variant = 0; variant < 8; ++variant) {
        ShardingOptions options{.zero_stage = stage, .reduce_once = stage == 3 && variant % 3 == 0};
        options.bf16_parameters = (variant & 1) != 0;
        options.bf16_gradients = (variant & 2) != 0;
        if (variant >= 4) options.frozen = {"model.layers.1.mlp.gate_proj.weight", "model.norm.weight"};
        OptimizerOptions optimizer;
        optimizer.kind = variant % 4 == 3 ? OptimizerKind::kMuon : OptimizerKind::kAdamW;
        const ModelShape shape = OddMeshShape(variant % 2 == 0, mesh_shape.tensor);
        const absl::Status status = RunMesh(mesh_shape, [&](const Mesh& mesh) -> absl::Status {
          ParallelFor parallel(1);
          LEEWAY_ASSIGN_OR_RETURN(const auto state,
                                  ShardedState<float>::Create(shape, options, optimizer, &mesh, &parallel));
          LEEWAY_ASSIGN_OR_RETURN(
              const StateBytes expected,
              ExpectedStateBytes(shape, mesh_shape, mesh.world()->rank(), options, optimizer.kind, sizeof(float)));
          const StateBytes bytes = state->bytes();
          EXPECT_EQ(bytes.parameters, expected.parameters);
          EXPECT_EQ(bytes.master, expected.master);
          EXPECT_EQ(bytes.gradients, expected.gradients);
          EXPECT_EQ(bytes.optimizer, expected.optimizer);
          EXPECT_EQ(bytes.buffers, expected.buffers);
          return absl::OkStatus();
        });
        ASSERT_TRUE(status.ok()) << status << " stage " << stage << " variant " << variant;
      }
    }
  }
}

// Bytes a parameter at SmolLM2-135M's size: 16, 4 + 12/N, 2 + 14/N, 16/N for bf16 weights and gradients.
TEST(StateBytesTest, AreTheBytesAParameter) {
  const ModelShape shape = internal::SmolShape();
  const double psi = static_cast<double>(shape.ParameterCount());
  const auto per_parameter = [&](int n, ShardingOptions options) {
    const absl::StatusOr<StateBytes> bytes =
        ExpectedStateBytes(shape, {.data = n}, n - 1, options, OptimizerKind::kAdamW, 4);
    return static_cast<double>(bytes->total() - bytes->buffers) / psi;
  };
  for (int n = 1; n <= 64; n *= 2) {
    const double d = n;
    const ShardingOptions f32, bf16{.bf16_parameters = true, .bf16_gradients = true}, mixed{.bf16_parameters = true};
    const auto at = [&](ShardingOptions options, int stage) {
      options.zero_stage = stage;
      return per_parameter(n, options);
    };
    const double tolerance = 1e-3;
    EXPECT_NEAR(at(bf16, 0), 16, tolerance);
    EXPECT_NEAR(at(bf16, 1), 4 + 12 / d, tolerance);
    EXPECT_NEAR(at(bf16, 2), 2 + 14 / d, tolerance);
    EXPECT_NEAR(at(bf16, 3), 16 / d, tolerance);
    EXPECT_NEAR(at(mixed, 0), 18, tolerance);
    EXPECT_NEAR(at(mixed, 1), 6 + 12 / d, tolerance);
    EXPECT_NEAR(at(mixed, 2), 2 + 16 / d, tolerance);
    EXPECT_NEAR(at(mixed, 3), 18 / d, tolerance);
    EXPECT_NEAR(at(f32, 0), 16, tolerance);
    EXPECT_NEAR(at(f32, 1), 8 + 8 / d, tolerance);
    EXPECT_NEAR(at(f32, 2), 4 + 12 / d, tolerance);
    EXPECT_NEAR(at(f32, 3), 16 / d, tolerance);
  }
}

// Resident bytes of the process, once what was freed has been given back. (What an allocator says it gave is rounded up
// to its size classes, whose last pages nobody touches.)
int64_t ResidentBytes() {
  using Mallctl = int (*)(const char*, void*, size_t*, void*, size_t);
  static const auto mallctl = reinterpret_cast<Mallctl>(dlsym(RTLD_DEFAULT, "mallctl"));
  // jemalloc's, where it is the allocator: of all arenas.
  if (mallctl != nullptr) mallctl("arena.4096.purge", nullptr, nullptr, nullptr, 0);
  std::ifstream statm("/proc/self/statm");
  int64_t total = 0, resident = 0;
  statm >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kIsSanitized = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
constexpr bool kIsSanitized = true;
#else
constexpr bool kIsSanitized = false;
#endif
#else
constexpr bool kIsSanitized = false;
#endif

// bf16 weights and gradients take 16, 4 + 12/N, 2 + 14/N and 16/N bytes a parameter at stages 0 to 3. Counted by
// themselves: the buffers that a unit passes through (StateBytes::buffers; a unit of SmolLM2 may be its embedding, a
// fifth of the parameters), the packed weights (PackedWeightBytes) and activations, which `leeway check` adds.
TEST(StateMemoryTest, IsTheBytesAParameterWithinTwoPercent) {
  if (kIsSanitized) GTEST_SKIP() << "a sanitizer keeps memory of its own";
  const ModelShape shape = internal::SmolShape();
  const double psi = static_cast<double>(shape.ParameterCount());
  for (const int n : {1, 2, 4}) {
    const double d = n;
    const double expected_a_parameter[] = {16, 4 + 12 / d, 2 + 14 / d, 16 / d};
    for (int stage = 0; stage <= 3; ++stage) {
      if ((n == 1) != (stage == 0)) continue;  // one rank holds everything at every stage, all hold it at stage 0
      const ShardingOptions options{.zero_stage = stage, .bf16_parameters = true, .bf16_gradients = true};
      const absl::Status status = internal::RunMesh({.data = n}, [&](const Mesh& mesh) -> absl::Status {
        LEEWAY_RETURN_IF_ERROR(mesh.world()->Barrier());
        // One of the ranks, so that the machine holds the states of one.
        if (mesh.data_rank() == n - 1) {
          ParallelFor parallel(1);
          const int64_t before = ResidentBytes();
          LEEWAY_ASSIGN_OR_RETURN(const auto state,
                                  ShardedState<float>::Create(shape, options, OptimizerOptions(), &mesh, &parallel));
          const double resident = static_cast<double>(ResidentBytes() - before);
          LEEWAY_ASSIGN_OR_RETURN(const StateBytes bytes, ExpectedStateBytes(shape, mesh.shape(), n - 1, options,
                                                                             OptimizerKind::kAdamW, sizeof(float)));
          EXPECT_EQ(state->bytes(), bytes);
          const std::string where = "stage_" + std::to_string(stage) + "_of_" + std::to_string(n);
          EXPECT_NEAR(resident / static_cast<double>(bytes.total()), 1, 0.01) << where;
          const double a_parameter = (resident - static_cast<double>(bytes.buffers)) / psi;
          testing::Test::RecordProperty("bytes_a_parameter_" + where, std::to_string(a_parameter));
          EXPECT_NEAR(a_parameter / expected_a_parameter[stage], 1, 0.02) << where;
        }
        return mesh.world()->Barrier();
      });
      ASSERT_TRUE(status.ok()) << status;
    }
  }
}

TEST(StateBytesTest, ShardsOfStageThreeAddUpToOneCopy) {
  const ModelShape shape = OddMeshShape(false);
  for (int n = 2; n <= 7; ++n) {
    int64_t sum = 0;
    for (int rank = 0; rank < n; ++rank) {
      const StateBytes bytes =
          *ExpectedStateBytes(shape, {.data = n}, rank, {.zero_stage = 3}, OptimizerKind::kAdamW, 8);
      sum += bytes.total() - bytes.buffers;
    }
    EXPECT_EQ(sum, 4 * 8 * shape.ParameterCount());
  }
}

// By hand: the embedding is 24x12, a layer 12 + 24x12 + 2 * 12x12 + 12x24 + 12 + 3 * 36x12 = 2184, the head 12 (tied).
TEST(StateBytesTest, Buffers) {
  const ModelShape shape = EvenMeshShape(true);
  const auto buffers = [&](ShardingOptions options, int n) {
    return ExpectedStateBytes(shape, {.data = n}, 0, options, OptimizerKind::kAdamW, 4)->buffers;
  };
  EXPECT_EQ(buffers({.zero_stage = 3}, 1), 0);
  EXPECT_EQ(buffers({.zero_stage = 0}, 4), 0);
  EXPECT_EQ(buffers({.zero_stage = 1}, 4), 2184 * 4);
  EXPECT_EQ(buffers({.zero_stage = 2}, 4), 2184 * 4);
  EXPECT_EQ(buffers({.zero_stage = 3}, 4), 3 * 2184 * 4);
  EXPECT_EQ(buffers({.zero_stage = 3, .bf16_parameters = true}, 4), 2184 * (2 + 2 + 4));
  EXPECT_EQ(buffers({.zero_stage = 0, .bf16_gradients = true}, 4), 2184 * 4);
  EXPECT_EQ(buffers({.zero_stage = 0, .bf16_parameters = true}, 1), 0);
}

TEST(ShardingProblemsTest, NameKeyAndRemedy) {
  EXPECT_TRUE(ShardingProblems({.zero_stage = 3, .reduce_once = true}).empty());
  EXPECT_EQ(ShardingProblems({.zero_stage = 4})[0].key, "trainer.zero_stage");
  EXPECT_EQ(ShardingProblems({.zero_stage = 2, .reduce_once = true})[0].key, "trainer.reduce_once");
}

}  // namespace
}  // namespace leeway
