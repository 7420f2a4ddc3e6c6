#ifndef LEEWAY_TRAINER_CHECKPOINT_STATE_GATHERING_H_
#define LEEWAY_TRAINER_CHECKPOINT_STATE_GATHERING_H_

// Between the ranks' parts of a training state and the whole: any state fits any mesh, since it is kept whole.
// Functions of the mesh are collective over it, and their errors are its communicators'.

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/shape.h"
#include "trainer/checkpoint/training_state.h"
#include "trainer/parallel/mesh.h"
#include "trainer/parallel/sharded_state.h"

namespace leeway {

// This rank's part of `whole` becomes its state; without arrays in `whole.optimizer` the optimizer begins anew.
// INVALID_ARGUMENT: arrays that the optimizer does not have, or lacks, or of another size. No communication.
template <typename Real>
absl::Status SetOwnState(const ModelShape& model, const Mesh& mesh, const BasicTrainingState<Real>& whole,
                         ShardedState<Real>* own);

// The whole model's parameters as the ranks compute with them, on rank 0 of the world; `whole` is untouched elsewhere.
// Unit by unit, so that no other rank needs room for more than one.
template <typename Real>
absl::Status GatherWholeParameters(const ModelShape& model, const Mesh& mesh, ShardedState<Real>* own,
                                   std::vector<Real>* whole);

// The whole state on rank 0 of the world, nothing elsewhere. One rank's part after the other, so that no rank but the
// first needs room for more than its own.
template <typename Real>
absl::StatusOr<BasicTrainingState<Real>> GatherWholeState(const ModelShape& model, const Mesh& mesh,
                                                          ShardedState<Real>* own);

}  // namespace leeway

#endif  // LEEWAY_TRAINER_CHECKPOINT_STATE_GATHERING_H_
