#ifndef LEEWAY_TRAINER_PARALLEL_SHARDED_STATE_H_
#define LEEWAY_TRAINER_PARALLEL_SHARDED_STATE_H_

// One rank's parameters, gradients, master copies and optimizer state, cut over the data-parallel ranks as the ZeRO
// stage says (sharding_options.h). The model reads parameters from it and delivers gradients to it unit by unit; with
// stages 0 to 2 and Real parameters it may as well read and write the flat arrays.
//
//   ZeroGradients; micro-batches: {forward, backward: Acquire, Add}; FinishGradients; GradientNorm; Step
//
// Every rank of the mesh makes the same calls in the same order, whatever its sequences are (also none). Calls block on
// the other ranks within the communicators' timeouts and return their errors, which end the object's use. One caller at
// a time; at stage 3 a thread of its own gathers the next unit meanwhile.
//
// Sums over ranks have the communicator's order, so all ranks hold the same bits of what they share. Sharded AdamW fed
// the same gradients makes the same parameters to the bit at every stage and number of ranks.
//
// Real = float (product) or double (the tests' oracle).

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/executor.h"
#include "base/ndarray.h"
#include "collective/communication_thread.h"
#include "model/shape.h"
#include "model/transformer/parameter_stream.h"
#include "trainer/optimizer/optimizer.h"
#include "trainer/optimizer/optimizer_options.h"
#include "trainer/parallel/mesh.h"
#include "trainer/parallel/shard_plan.h"
#include "trainer/parallel/sharding_options.h"

namespace leeway {

// What a rank holds of a frozen parameter.
struct FrozenPart {
  OptimizerPart part;
  int64_t offset = 0;  // in the rank's parameters
  // Whether the other data-parallel ranks hold its other rows, and not the same.
  bool is_shard = false;
};

template <typename Real>
class ShardedState : public ParameterStream<Real>, public GradientSink<Real> {
 public:
  // A copy of all that changes, to go back to.
  struct Snapshot {
    std::vector<std::vector<Real>> arrays;
    int64_t updates = 0;
  };

  // Zero everywhere. `model`: the whole one, which the mesh can share. Mesh and parallel outlive the object.
  // INVALID_ARGUMENT: the options, by key.
  static absl::StatusOr<std::unique_ptr<ShardedState>> Create(const ModelShape& model, const ShardingOptions& sharding,
                                                              const OptimizerOptions& optimizer, const Mesh* mesh,
                                                              ParallelFor* parallel);

  // --- Parameters; flat = ParameterLayout order of this rank's tensor-parallel share.
  // Every rank gives the same values. Master copies become them too; optimizer state stays.
  void SetParameters(absl::Span<const Real> flat);
  // Empty where this rank does not hold all of them as Reals.
  absl::Span<const Real> FlatParameters() const;
  // What the model computes with (rounded to bf16 if they are kept so). Gathers at stage 3.
  absl::Status ExportParameters(absl::Span<Real> flat);
  // Of a unit, for the model; valid until the next call of Acquire, Step or SetParameters.
  absl::StatusOr<WeightSpan<Real>> Acquire(int64_t unit, int64_t next) override;

  // --- Gradients
  void ZeroGradients();
  // Adds the gradient of one micro-batch; at once over the ranks where gradients are sharded.
  absl::Status Add(int64_t unit, absl::Span<const Real> gradient) override;
  // Where a whole backward pass may add its gradients instead; empty where they are sharded, bf16 or partly frozen.
  absl::Span<Real> FlatGradients();
  // After the last micro-batch: what was not summed over the ranks yet is.
  absl::Status FinishGradients();
  // L2 norm of the finished gradients of the whole model, each element once; the same bits on all ranks.
  absl::StatusOr<double> GradientNorm();

  // --- Update
  // One optimizer update with the finished gradients times `gradient_scale`; then all ranks have the new parameters.
  absl::Status Step(double learning_rate, double gradient_scale);

  // --- State of this rank, for checkpoints: "master" (the parameters in full precision) and the optimizer's arrays;
  // frozen parameters, which have neither, by themselves. After writing into them: SyncParameters.
  const std::vector<OptimizerPart>& parts() const { return optimizer_parts_; }
  std::vector<PartState<Real>> PartStates();
  const std::vector<FrozenPart>& frozen_parts() const { return frozen_parts_; }
  void LoadFrozen(const FrozenPart& frozen, absl::Span<Real> values);
  void StoreFrozen(const FrozenPart& frozen, absl::Span<const Real> values);
  int64_t updates() const { return optimizer_->updates(); }
  void set_updates(int64_t updates) { optimizer_->set_updates(updates); }
  // Makes the parameters of all ranks those of the masters.
  absl::Status SyncParameters();
  Snapshot Save();
  absl::Status Restore(const Snapshot& snapshot);

  const ShardPlan& plan() const { return plan_; }
  // As allocated.
  StateBytes bytes() const;

 private:
  // This rank's part of a trainable parameter: where it lies in each array.
  struct OwnPart {
    int64_t count = 0;
    int64_t flat = 0;
    int64_t parameter = 0;
    int64_t master = 0;
    int64_t gradient = 0;
    // Whether this rank's copy counts in the norm: one of the replicas does.
    bool is_counted = false;
  };

  ShardedState(const ShardingOptions& sharding, ShardPlan plan, const Mesh* mesh, ParallelFor* parallel);

  int data_ranks() const { return mesh_->shape().data; }
  DType parameter_type() const { return parameters_.dtype(); }
  std::byte* ParameterAt(int64_t offset) { return At(parameters_, offset); }
  std::byte* GradientAt(int64_t offset) { return At(gradients_, offset); }
  static std::byte* At(NDArray& array, int64_t offset) {
    return array.data() + static_cast<size_t>(offset) * DTypeBytes(array.dtype());
  }
  Real* MasterAt(const OwnPart& part);
  Real* scratch() { return reinterpret_cast<Real*>(scratch_.data()); }

  // Sums a unit's gradients, of `type` in the full order of `order`, over the ranks; `share` gets where this rank's
  // share of the sum lies: at `in_place` where nothing has to be rearranged, else in scratch.
  absl::Status ReduceUnit(int64_t unit, DType type, const void* full, Held order, Real* in_place, Real** share);
  absl::Status AllReduceGradients();
  // Makes the parameters of one unit its masters', on all ranks.
  absl::Status SyncUnit(int64_t unit);
  // Stage 3. Begins to gather a unit in rank-major order.
  void Gather(int64_t unit, NDArray* into);
  // Waits for the gathering that is under way, of whatever unit.
  absl::Status FinishGathering();

  const ShardingOptions sharding_;
  const Mesh* const mesh_;
  ParallelFor* const parallel_;
  const ShardedKinds sharded_;
  // Over the data-parallel ranks, or one rank where nothing is sharded.
  const ShardPlan plan_;
  const int64_t rank_;  // in plan_
  std::vector<OptimizerPart> optimizer_parts_;
  std::vector<FrozenPart> frozen_parts_;
  std::vector<std::vector<OwnPart>> own_parts_;  // by unit, in the order of optimizer_parts_
  std::unique_ptr<Optimizer<Real>> optimizer_;

  NDArray parameters_;  // flat order, or this rank's shares of kAll
  NDArray master_;      // this rank's shares of kTrainable; empty = the parameters are it
  NDArray gradients_;   // full order of kTrainable, or this rank's shares of it
  bool is_finished_ = false;

  NDArray unit_;      // what Acquire lends
  NDArray gathered_;  // a unit in rank-major order, on its way
  NDArray scratch_;   // bytes
  struct Gathering {
    int64_t unit = 0;
    PendingOperation operation;
  };
  std::optional<Gathering> gathering_;  // under way
  std::unique_ptr<CommunicationThread> gather_thread_;
};

extern template class ShardedState<float>;
extern template class ShardedState<double>;

}  // namespace leeway

#endif  // LEEWAY_TRAINER_PARALLEL_SHARDED_STATE_H_
