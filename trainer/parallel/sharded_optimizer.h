#ifndef LEEWAY_TRAINER_PARALLEL_SHARDED_OPTIMIZER_H_
#define LEEWAY_TRAINER_PARALLEL_SHARDED_OPTIMIZER_H_

#include <memory>
#include <vector>

#include "base/executor.h"
#include "model/shape.h"
#include "trainer/optimizer/muon.h"
#include "trainer/optimizer/optimizer.h"
#include "trainer/optimizer/optimizer_options.h"
#include "trainer/parallel/mesh.h"

namespace leeway {

// Where the hidden matrices of `model` lie among the ranks that update them: cut over tensor-parallel ranks by rows or
// columns, and what one of those holds by rows over `data_parts` data-parallel ranks (1: each replica has all of it).
// Ranks in the order of the mesh. One entry for every hidden matrix of `parts`, which are those of one of the ranks.
std::vector<SharedMatrix> PlaceMatrices(const ModelShape& model, int tensor_parts, int data_parts,
                                        absl::Span<const OptimizerPart> parts);

// The optimizer of this rank's parts. `state_is_sharded`: over the data-parallel ranks. Mesh and parallel outlive it.
template <typename Real>
std::unique_ptr<Optimizer<Real>> MakeShardedOptimizer(const OptimizerOptions& options, const ModelShape& model,
                                                      const Mesh& mesh, bool state_is_sharded,
                                                      absl::Span<const OptimizerPart> parts, ParallelFor* parallel);

}  // namespace leeway

#endif  // LEEWAY_TRAINER_PARALLEL_SHARDED_OPTIMIZER_H_
