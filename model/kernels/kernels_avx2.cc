#define LEEWAY_KERNEL_NAMESPACE avx2
#define LEEWAY_KERNEL_LEVEL 1
#include "model/kernels/kernels-inl.h"

namespace leeway::internal {

template <>
const Kernels<float>& Avx2Kernels<float>() {
  static constexpr Kernels<float> kTable = avx2::MakeTable<float>();
  return kTable;
}

template <>
const Kernels<double>& Avx2Kernels<double>() {
  static constexpr Kernels<double> kTable = avx2::MakeTable<double>();
  return kTable;
}

}  // namespace leeway::internal
