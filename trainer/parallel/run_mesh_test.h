#ifndef LEEWAY_TRAINER_PARALLEL_RUN_MESH_TEST_H_
#define LEEWAY_TRAINER_PARALLEL_RUN_MESH_TEST_H_

// For tests: bodies on every rank of a mesh, ranks as threads; shapes; gradients whose sums are exact.

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "collective/in_process/run_ranks.h"
#include "model/shape.h"
#include "trainer/parallel/mesh.h"

namespace leeway {
namespace internal {

inline absl::Status RunMesh(const MeshShape& shape, const std::function<absl::Status(const Mesh&)>& body) {
  return RunRanksToStatus(shape.ranks(), absl::Seconds(60), [&](int rank, Communicator* world) -> absl::Status {
    LEEWAY_ASSIGN_OR_RETURN(const std::unique_ptr<Mesh> mesh, Mesh::Create(shape, world));
    return body(*mesh);
  });
}

// Sizes that divide nothing; `tensor` ranks can share it.
inline ModelShape OddMeshShape(bool tied_head, int tensor = 1) {
  return {.vocabulary = 23,
          .hidden = 9,
          .layers = 2,
          .heads = 2 * tensor,
          .key_value_heads = tensor,
          .head_dim = 2,
          .intermediate = 7 * tensor,
          .max_positions = 32,
          .tied_head = tied_head};
}

// Every unit has a multiple of 12 elements and every parameter a multiple of 12 rows.
inline ModelShape EvenMeshShape(bool tied_head) {
  return {.vocabulary = 24,
          .hidden = 12,
          .layers = 2,
          .heads = 12,
          .key_value_heads = 6,
          .head_dim = 2,
          .intermediate = 36,
          .max_positions = 32,
          .tied_head = tied_head};
}

// Small multiples of 1/4: exact in bf16, and so are the sums of some of them, in any order.
template <typename Real>
std::vector<Real> ExactValues(int64_t count, uint64_t seed) {
  RandomStream stream({.seed = seed, .purpose = RandomPurpose::kShuffle});
  std::vector<Real> values;
  for (int64_t i = 0; i < count; ++i) {
    values.push_back(static_cast<Real>(static_cast<double>(stream.NextBelow(17)) / 4 - 2));
  }
  return values;
}

}  // namespace internal
}  // namespace leeway

#endif  // LEEWAY_TRAINER_PARALLEL_RUN_MESH_TEST_H_
