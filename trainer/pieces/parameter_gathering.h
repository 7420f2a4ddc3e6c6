#ifndef LEEWAY_TRAINER_PIECES_PARAMETER_GATHERING_H_
#define LEEWAY_TRAINER_PIECES_PARAMETER_GATHERING_H_

#include <vector>

#include "absl/status/status.h"
#include "model/shape.h"
#include "trainer/parallel/mesh.h"
#include "trainer/parallel/sharded_state.h"

namespace leeway {

// The whole model's parameters as the ranks compute with them, on rank 0 of the world, to be published; `whole` is
// untouched elsewhere. Unit by unit, so that no other rank needs room for more than one. Collective over the mesh;
// errors are its communicators'. Checkpoints do without (state_pieces.h).
template <typename Real>
absl::Status GatherWholeParameters(const ModelShape& model, const Mesh& mesh, ShardedState<Real>* own,
                                   std::vector<Real>* whole);

}  // namespace leeway

#endif  // LEEWAY_TRAINER_PIECES_PARAMETER_GATHERING_H_
