#ifndef LEEWAY_TRAINER_OPTIMIZER_MUON_H_
#define LEEWAY_TRAINER_OPTIMIZER_MUON_H_

// Muon for the matrices inside the layers, AdamW for embedding, head and everything one-dimensional.
//
//   B <- momentum * B + G;   O = Orthogonalise(G + momentum * B);   W <- (1 - lr * decay) W - lr * 0.2 sqrt(max(rows,
//   columns)) O
//
// (K. Jordan, kellerjordan.github.io/posts/muon, with Nesterov's momentum; the factor 0.2 sqrt(max) gives updates of
// AdamW's usual size, so that one learning rate serves both: Liu et al., "Muon is scalable for LLM training", arXiv
// 2502.16982; torch.optim.Muon with adjust_lr_fn="match_rms_adamw".) O needs the whole matrix, also where ranks hold
// pieces of it.
//
// Each matrix is sent to one owner and its update sent back: with n elements on N ranks a rank sends 2n(N-1)/N^2,
// against n(N-1)/N for gathering it everywhere; as much on 2 ranks, half of it on 4, and the products are formed once
// instead of N times. Owners are chosen by cost, so that the matrices of one call are spread evenly.

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "base/executor.h"
#include "collective/communicator.h"
#include "model/shape.h"
#include "trainer/optimizer/adamw.h"
#include "trainer/optimizer/optimizer.h"
#include "trainer/optimizer/optimizer_options.h"

namespace leeway {

// Whether Muon treats it: two-dimensional and inside a layer.
bool IsHiddenMatrix(const ParameterInfo& parameter);

// Elements of optimizer state for these parts: two an element with AdamW, one for a hidden matrix with Muon,
// none with SGD.
int64_t OptimizerStateElements(OptimizerKind kind, absl::Span<const OptimizerPart> parts);

// A rectangle of a matrix.
struct MatrixRange {
  int64_t row_begin = 0;
  int64_t rows = 0;
  int64_t column_begin = 0;
  int64_t columns = 0;
  int64_t count() const { return rows * columns; }
};

// A matrix whose rectangles the ranks of a group hold, each as the row-major memory of its part.
struct SharedMatrix {
  int64_t part = 0;  // index into the optimizer's parts
  int64_t rows = 0;  // of the whole
  int64_t columns = 0;
  std::vector<MatrixRange> held;  // by rank; disjoint, together the whole
};

template <typename Real>
class Muon : public Optimizer<Real> {
 public:
  // Zero state. `matrices`: one for every part that is a hidden matrix, the same on all ranks of `group` but for the
  // index. `group` and `parallel` outlive the object; a null group: this rank holds everything.
  Muon(const OptimizerOptions& options, absl::Span<const OptimizerPart> parts, std::vector<SharedMatrix> matrices,
       Communicator* group, ParallelFor* parallel);

  void Begin(double learning_rate, double gradient_scale) override;
  // Collective over the group; its matrices have to be the same on all ranks.
  absl::Status Update(absl::Span<const PartUpdate<Real>> parts) override;

  int64_t updates() const override { return adamw_.updates(); }
  void set_updates(int64_t updates) override { adamw_.set_updates(updates); }
  // "momentum" of matrices, AdamW's moments of the others.
  std::vector<PartState<Real>> PartStates() override;
  int64_t state_bytes() const override;

 private:
  // A matrix in one call.
  struct Item {
    const SharedMatrix* matrix = nullptr;
    PartUpdate<Real> update;
    int owner = 0;
  };

  int rank() const { return group_ == nullptr ? 0 : group_->rank(); }
  int size() const { return group_ == nullptr ? 1 : group_->size(); }
  void ChooseOwners(std::vector<Item>* items) const;
  void AdvanceMomentum(const Item& item, Real* direction);
  void OrthogonaliseOwned(absl::Span<const Item> items, absl::Span<const int64_t> receive_counts, Real* pieces) const;
  absl::Status Exchange(const std::vector<Real>& input, absl::Span<const int64_t> send_counts,
                        absl::Span<const int64_t> receive_counts, std::vector<Real>* output) const;

  const OptimizerOptions options_;
  Communicator* const group_;
  ParallelFor* const parallel_;
  const std::vector<OptimizerPart> parts_;
  const std::vector<SharedMatrix> matrices_;
  // By part: index into matrices_, -1 = AdamW's; and where its momentum begins.
  std::vector<int64_t> matrix_of_part_;
  std::vector<int64_t> momentum_offsets_;
  std::vector<Real> momentum_;
  BasicAdamW<Real> adamw_;
  double learning_rate_ = 0;
  double gradient_scale_ = 1;
};

extern template class Muon<float>;
extern template class Muon<double>;

}  // namespace leeway

#endif  // LEEWAY_TRAINER_OPTIMIZER_MUON_H_
