#ifndef LEEWAY_TRAINER_OPTIMIZER_ELEMENT_STORAGE_H_
#define LEEWAY_TRAINER_OPTIMIZER_ELEMENT_STORAGE_H_

// Arrays that are kept in one type and computed with in another: bf16 parameters and gradients under float arithmetic.
// `type` is kBF16 or Real's own (kF32 for float, kF64 for double); anything else is a bug of the caller. Elementwise:
// threads change no bit.

#include <cstdint>
#include <type_traits>

#include "base/executor.h"
#include "base/ndarray.h"

namespace leeway {

template <typename Real>
constexpr DType kTypeOf = std::is_same_v<Real, float> ? DType::kF32 : DType::kF64;

// to[i] = stored[i]
template <typename Real>
void LoadElements(DType type, const void* stored, int64_t count, Real* to, ParallelFor* parallel);

// stored[i] = from[i], rounded to nearest, ties to even.
template <typename Real>
void StoreElements(const Real* from, int64_t count, DType type, void* stored, ParallelFor* parallel);

// stored[i] = stored[i] + from[i], rounded as above.
template <typename Real>
void AddElements(const Real* from, int64_t count, DType type, void* stored, ParallelFor* parallel);

}  // namespace leeway

#endif  // LEEWAY_TRAINER_OPTIMIZER_ELEMENT_STORAGE_H_
