#define LEEWAY_KERNEL_NAMESPACE avx512
#define LEEWAY_KERNEL_LEVEL 2
#include "model/kernels/kernels-inl.h"

namespace leeway::internal {

template <>
const Kernels<float>& Avx512Kernels<float>() {
  static constexpr Kernels<float> kTable = avx512::MakeTable<float>();
  return kTable;
}

template <>
const Kernels<double>& Avx512Kernels<double>() {
  static constexpr Kernels<double> kTable = avx512::MakeTable<double>();
  return kTable;
}

}  // namespace leeway::internal
