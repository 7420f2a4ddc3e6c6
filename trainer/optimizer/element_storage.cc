#include "trainer/optimizer/element_storage.h"

#include <algorithm>

#include "base/status_macros.h"
#include "model/bfloat16.h"

namespace leeway {
namespace {

// Elements below which a second thread costs more than it saves.
constexpr int64_t kMinimumPerThread = 32'768;

template <typename Real>
void CheckType(DType type) {
  LEEWAY_CHECK(type == kTypeOf<Real> || type == DType::kBF16) << DTypeName(type);
}

}  // namespace

template <typename Real>
void LoadElements(DType type, const void* stored, int64_t count, Real* to, ParallelFor* parallel) {
  CheckType<Real>(type);
  parallel->Run(count, kMinimumPerThread, [&](int64_t begin, int64_t end) {
    if (type == DType::kBF16) {
      const uint16_t* const from = static_cast<const uint16_t*>(stored);
      for (int64_t i = begin; i < end; ++i) to[i] = static_cast<Real>(FromBf16(from[i]));
    } else {
      std::copy(static_cast<const Real*>(stored) + begin, static_cast<const Real*>(stored) + end, to + begin);
    }
  });
}

template <typename Real>
void StoreElements(const Real* from, int64_t count, DType type, void* stored, ParallelFor* parallel) {
  CheckType<Real>(type);
  parallel->Run(count, kMinimumPerThread, [&](int64_t begin, int64_t end) {
    if (type == DType::kBF16) {
      uint16_t* const to = static_cast<uint16_t*>(stored);
      for (int64_t i = begin; i < end; ++i) to[i] = ToBf16(static_cast<float>(from[i]));
    } else {
      std::copy(from + begin, from + end, static_cast<Real*>(stored) + begin);
    }
  });
}

template <typename Real>
void AddElements(const Real* from, int64_t count, DType type, void* stored, ParallelFor* parallel) {
  CheckType<Real>(type);
  parallel->Run(count, kMinimumPerThread, [&](int64_t begin, int64_t end) {
    if (type == DType::kBF16) {
      uint16_t* const to = static_cast<uint16_t*>(stored);
      for (int64_t i = begin; i < end; ++i) to[i] = ToBf16(FromBf16(to[i]) + static_cast<float>(from[i]));
    } else {
      Real* const to = static_cast<Real*>(stored);
      for (int64_t i = begin; i < end; ++i) to[i] += from[i];
    }
  });
}

template void LoadElements(DType, const void*, int64_t, float*, ParallelFor*);
template void LoadElements(DType, const void*, int64_t, double*, ParallelFor*);
template void StoreElements(const float*, int64_t, DType, void*, ParallelFor*);
template void StoreElements(const double*, int64_t, DType, void*, ParallelFor*);
template void AddElements(const float*, int64_t, DType, void*, ParallelFor*);
template void AddElements(const double*, int64_t, DType, void*, ParallelFor*);

}  // namespace leeway
