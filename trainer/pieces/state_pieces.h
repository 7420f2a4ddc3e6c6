#ifndef LEEWAY_TRAINER_PIECES_STATE_PIECES_H_
#define LEEWAY_TRAINER_PIECES_STATE_PIECES_H_

// A rank's own part of the training state as pieces of the whole arrays, out of its memory and back into it: what
// several ranks hold is stored by the first of them, and what a rank reads is what it holds.
//
// Real = float (product) or double (the tests' oracle).

#include <vector>

#include "absl/status/status.h"
#include "formats/safetensors.h"
#include "model/shape.h"
#include "trainer/parallel/mesh.h"
#include "trainer/parallel/sharded_state.h"
#include "trainer/pieces/piece.h"
#include "trainer/pieces/piece_reader.h"

namespace leeway {

// Pieces of one kind, with their places.
struct PieceSet {
  std::vector<NamedTensor> tensors;
  SafetensorsMetadata places;  // of those that are not whole arrays
};

// What one rank stores.
struct StatePieces {
  // The files of one checkpoint are those of writers 0 to writers-1; a rank that is none of them stores nothing.
  int writer = 0;
  int writers = 1;
  PieceSet weights;    // in full precision
  PieceSet optimizer;  // its arrays

  bool is_writer() const { return writer < writers; }
};

// A copy, in memory of its own. Without communication.
template <typename Real>
StatePieces CopyOwnPieces(const ModelShape& model, const Mesh& mesh, ShardedState<Real>* own);

// The state that `reader` holds, of any layout, becomes the rank's own, after `updates` updates; without arrays of the
// optimizer that one begins anew. Collective over the mesh. INVALID_ARGUMENT: arrays that the optimizer does not have,
// or lacks, or another dtype; others: the communicators' errors.
template <typename Real>
absl::Status RestoreOwnPieces(const ModelShape& model, const Mesh& mesh, const PieceReader& reader, int64_t updates,
                              ShardedState<Real>* own);

}  // namespace leeway

#endif  // LEEWAY_TRAINER_PIECES_STATE_PIECES_H_
