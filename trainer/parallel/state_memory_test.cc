// Memory of the states as it is allocated, at the size of SmolLM2-135M: what the process gets resident, against the
// formulas.

#include <dlfcn.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "gtest/gtest.h"
#include "model/random_case.h"
#include "trainer/parallel/run_mesh_test.h"
#include "trainer/parallel/sharded_state.h"

namespace leeway {
namespace {

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

}  // namespace
}  // namespace leeway
