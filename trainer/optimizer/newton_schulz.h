#ifndef LEEWAY_TRAINER_OPTIMIZER_NEWTON_SCHULZ_H_
#define LEEWAY_TRAINER_OPTIMIZER_NEWTON_SCHULZ_H_

#include <cstdint>

#include "base/executor.h"

namespace leeway {

// Replaces a row-major matrix by an approximation of its nearest semi-orthogonal one (U V^T of its singular value
// decomposition), as Muon wants it: five steps of
//   X <- 3.4445 X - 4.7750 (X X^T) X + 2.0315 (X X^T)^2 X      from X = G / max(|G|_F, 1e-7), transposed where rows >
//   columns,
// which bring every singular value that is not tiny to about 0.7 .. 1.2 (K. Jordan, "Muon: an optimizer for hidden
// layers in neural networks", kellerjordan.github.io/posts/muon, and torch.optim.Muon).
//
// Uses the model's product kernel: the same bits at every thread count and instruction set. Real = float or double.
template <typename Real>
void Orthogonalise(int64_t rows, int64_t columns, Real* matrix, ParallelFor* parallel);

// Multiply-adds of it: what owners are balanced by.
double OrthogonaliseCost(int64_t rows, int64_t columns);

}  // namespace leeway

#endif  // LEEWAY_TRAINER_OPTIMIZER_NEWTON_SCHULZ_H_
