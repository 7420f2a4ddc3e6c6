#ifndef LEEWAY_TRAINER_PARALLEL_MESH_H_
#define LEEWAY_TRAINER_PARALLEL_MESH_H_

// The trainer's ranks as a grid: data-parallel replicas (each sees other sequences, and they share optimizer state,
// gradients or parameters) of tensor-parallel groups (their ranks see the same sequences and share one model).
//
//   rank of the world = data_rank * tensor size + tensor_rank: a tensor-parallel group is a run of neighbours.

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "collective/communicator.h"
#include "model/shape.h"
#include "trainer/config_problem.h"

namespace leeway {

struct MeshShape {
  int data = 1;
  int tensor = 1;
  int ranks() const { return data * tensor; }
};

// Keys are "trainer.ranks" and "trainer.tensor_parallel". Empty = `ranks` processes can train the model on this mesh.
std::vector<ConfigProblem> MeshProblems(const MeshShape& mesh, int ranks, const ModelShape& model);

// One rank's place in the mesh and its communicators, which fail together with the world's. Immutable.
class Mesh {
 public:
  // Collective over `world`, which outlives the mesh. INVALID_ARGUMENT: sizes do not multiply to the world's; or the
  // communicator's error.
  static absl::StatusOr<std::unique_ptr<Mesh>> Create(const MeshShape& shape, Communicator* world);

  const MeshShape& shape() const { return shape_; }
  int data_rank() const { return world_->rank() / shape_.tensor; }
  int tensor_rank() const { return world_->rank() % shape_.tensor; }

  Communicator* world() const { return world_; }
  // The ranks that compute one model together.
  Communicator* tensor() const { return tensor_.get(); }
  // The ranks that hold the same share of the model.
  Communicator* data() const { return data_.get(); }
  // The same ranks again, for gathering while data() reduces.
  Communicator* data_gather() const { return data_gather_.get(); }

 private:
  Mesh(const MeshShape& shape, Communicator* world) : shape_(shape), world_(world) {}

  const MeshShape shape_;
  Communicator* const world_;
  std::unique_ptr<Communicator> tensor_;
  std::unique_ptr<Communicator> data_;
  std::unique_ptr<Communicator> data_gather_;
};

}  // namespace leeway

#endif  // LEEWAY_TRAINER_PARALLEL_MESH_H_
