#define LEEWAY_KERNEL_NAMESPACE scalar
#define LEEWAY_KERNEL_LEVEL 0
#include "model/kernels/kernels-inl.h"

namespace leeway::internal {

template <>
const Kernels<float>& ScalarKernels<float>() {
  static constexpr Kernels<float> kTable = scalar::MakeTable<float>();
  return kTable;
}

template <>
const Kernels<double>& ScalarKernels<double>() {
  static constexpr Kernels<double> kTable = scalar::MakeTable<double>();
  return kTable;
}

}  // namespace leeway::internal
