#ifndef LEEWAY_TRAINER_LEARNER_H_
#define LEEWAY_TRAINER_LEARNER_H_

// One train step as a function: groups in, new parameters and numbers about them out. No queue, no clock, and no files
// but for reading a checkpoint.
//
// With one update a step the batch goes through the model once: the log-probabilities of that pass are prox and theta,
// and the check against the recorded ones uses them. With several, the whole batch is scored at the step's weights
// first, and a step that turns out not to be finite half-way is undone. Nothing is applied before the check has passed.
//
// On several ranks each has a Learner with its place in the mesh; all make the same calls with the same batches, each
// trains its part of the sequences, and all reports are equal. Calls then block on the other ranks within the
// communicators' timeouts; after an error of one of them the object is of no more use.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/executor.h"
#include "model/transformer/transformer.h"
#include "queue/queue_client.h"
#include "trainer/loss/gradient_pass.h"
#include "trainer/loss/mismatch.h"
#include "trainer/loss/train_batch.h"
#include "trainer/parallel/mesh.h"
#include "trainer/parallel/sharded_state.h"
#include "trainer/pieces/piece_reader.h"
#include "trainer/pieces/state_pieces.h"
#include "trainer/trainer_options.h"

namespace leeway {

// What one step did.
struct StepReport {
  // Not empty: nothing was changed, these groups have to be replaced and the step done again.
  std::vector<RefusedGroup> refused;
  // False: loss or gradients were not finite, and nothing was changed.
  bool is_finite = true;
  // Updates made; 0 also when no token was trained.
  int64_t updates = 0;
  ObjectiveSums sums;  // over all updates: normalised losses added up
  MismatchMetrics mismatch;
  double grad_norm = 0;  // before clipping; largest of the updates
  double learning_rate = 0;
};

// Owns parameters, optimizer and model. One caller at a time. Real = float (product) or double (the tests' oracle).
template <typename Real>
class BasicLearner {
 public:
  // All parameters are zero. Mesh and `parallel` outlive the object. INVALID_ARGUMENT: the model or the options do not
  // fit the mesh.
  static absl::StatusOr<std::unique_ptr<BasicLearner>> Create(const TrainerOptions& options, const Mesh* mesh,
                                                              ParallelFor* parallel);

  // Goes on from a checkpoint's state after `updates` updates of the optimizer; each rank reads its own part.
  // INVALID_ARGUMENT: it has arrays of another optimizer.
  absl::Status Restore(const PieceReader& state, int64_t updates);
  // Replaces the parameters (whole model, flat, ParameterLayout order) and forgets the optimizer's state.
  // INVALID_ARGUMENT: they are not as many as the model has.
  absl::Status Reset(absl::Span<const Real> parameters);

  // Trains step `step` on the batch. `report` says what became of it; parameters change only if nothing was refused and
  // everything was finite. Errors: INTERNAL (staleness bound), INVALID_ARGUMENT (the model refused the batch), the
  // communicators'.
  absl::Status Train(uint64_t step, const LeasedBatch& leased, StepReport* report);

  // The whole model as it computes, on rank 0 of the mesh; nothing elsewhere. Valid until the next call.
  absl::Span<const Real> parameters() const { return parameters_; }
  // Floating-point operations a second that the processors of all ranks can do at the same time at most; the same on
  // all ranks (model/compute_peak.h).
  absl::StatusOr<double> MeasurePeak();
  // A copy of this rank's part of the state, for a checkpoint. Without communication.
  StatePieces CopyPieces() { return CopyOwnPieces(options_.model, *mesh_, state_.get()); }
  // That the optimizer has made.
  int64_t updates() const { return state_->updates(); }

  // Ends what the ranks of the mesh are doing together, with this reason. Any thread.
  void Abort(absl::string_view reason) { mesh_->world()->Abort(reason); }

  const std::vector<ParameterInfo>& layout() const { return layout_; }
  // Of the last Train: the batch, and the log-probabilities at the step's weights before its first update.
  const TrainBatch& batch() const { return batch_; }
  absl::Span<const double> recomputed() const { return prox_; }

 private:
  BasicLearner(const TrainerOptions& options, const Mesh* mesh, ParallelFor* parallel,
               std::unique_ptr<ShardedState<Real>> state);

  // One optimizer update. False when loss or gradients are not finite; then the parameters are untouched.
  absl::StatusOr<bool> Update(const UpdateRange& range, bool is_first, StepReport* report);
  // Sums over the data-parallel ranks, in double and in the communicator's order.
  absl::Status SumOverData(absl::Span<double> values);
  absl::Status SumOverData(ObjectiveSums* sums);
  // The model computes with the state's parameters from here on.
  void UpdateModel();
  // parameters() are the state's from here on.
  absl::Status GatherParameters();

  const TrainerOptions options_;
  const std::vector<ParameterInfo> layout_;
  const Mesh* const mesh_;
  ParallelFor* const parallel_;
  const std::unique_ptr<ShardedState<Real>> state_;
  Transformer<Real> model_;
  GradientPass<Real> pass_;

  absl::Span<const Real> parameters_;
  std::vector<Real> whole_;  // where they lie, if not in the state
  TrainBatch batch_;
  std::vector<double> theta_;
  // Log-probabilities at the step's weights before its first update.
  std::vector<double> prox_;
};

using Learner = BasicLearner<float>;

extern template class BasicLearner<float>;
extern template class BasicLearner<double>;

}  // namespace leeway

#endif  // LEEWAY_TRAINER_LEARNER_H_
