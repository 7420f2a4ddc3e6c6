#ifndef LEEWAY_TRAINER_OPTIMIZER_GLOBAL_NORM_H_
#define LEEWAY_TRAINER_OPTIMIZER_GLOBAL_NORM_H_

#include "absl/types/span.h"
#include "base/executor.h"

namespace leeway {

// In double, per block of 4,096 elements, blocks added in order: threads change no bit. Real = float or double.
template <typename Real>
double SumOfSquares(absl::Span<const Real> values, ParallelFor* parallel);

// L2 norm over all gradients of one process.
double GlobalNorm(absl::Span<const float> gradients, ParallelFor* parallel);

// What gradients are multiplied by so that their norm is at most `limit`; 1 when it is, or when limit is 0 (never).
inline double ClipScale(double norm, double limit) { return limit > 0 && norm > limit ? limit / norm : 1.0; }

}  // namespace leeway

#endif  // LEEWAY_TRAINER_OPTIMIZER_GLOBAL_NORM_H_
