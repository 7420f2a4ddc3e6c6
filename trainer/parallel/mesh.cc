#include "trainer/parallel/mesh.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "model/tensor_parallel.h"

namespace leeway {

std::vector<ConfigProblem> MeshProblems(const MeshShape& mesh, int ranks, const ModelShape& model) {
  std::vector<ConfigProblem> problems;
  if (ranks < 1) {
    problems.push_back({"trainer.ranks", absl::StrCat(ranks, " is not a number of processes >= 1")});
  }
  if (absl::Status status = CheckTensorParallel(model, mesh.tensor); !status.ok()) {
    problems.push_back({"trainer.tensor_parallel", std::string(status.message())});
  } else if (ranks >= 1 && ranks % mesh.tensor != 0) {
    problems.push_back({"trainer.ranks", absl::StrCat(ranks, " ranks are not a multiple of trainer.tensor_parallel = ",
                                                      mesh.tensor, "; use ", ranks / mesh.tensor * mesh.tensor, " or ",
                                                      (ranks / mesh.tensor + 1) * mesh.tensor)});
  } else if (ranks >= 1 && mesh.ranks() != ranks) {
    problems.push_back({"trainer.ranks", absl::StrCat(ranks, " ranks can not form ", mesh.data, " replicas of ",
                                                      mesh.tensor, " tensor-parallel ranks: use ", mesh.ranks())});
  }
  return problems;
}

absl::StatusOr<std::unique_ptr<Mesh>> Mesh::Create(const MeshShape& shape, Communicator* world) {
  if (shape.data < 1 || shape.tensor < 1 || shape.ranks() != world->size()) {
    return absl::InvalidArgumentError(absl::StrCat("a mesh of ", shape.data, " (data) x ", shape.tensor,
                                                   " (tensor) ranks over a world of ", world->size()));
  }
  std::unique_ptr<Mesh> mesh(new Mesh(shape, world));
  LEEWAY_ASSIGN_OR_RETURN(mesh->tensor_, world->Split(mesh->data_rank(), "tensor_parallel"));
  LEEWAY_ASSIGN_OR_RETURN(mesh->data_, world->Split(mesh->tensor_rank(), "data"));
  LEEWAY_ASSIGN_OR_RETURN(mesh->data_gather_, world->Split(mesh->tensor_rank(), "data_gather"));
  return mesh;
}

}  // namespace leeway
