#include "model/kernels/kernels.h"

#include <cstdlib>

#include "model/instruction_set.h"

namespace leeway::internal {

template <typename Real>
const Kernels<Real>& KernelsFor(InstructionSet set) {
  switch (set) {
    case InstructionSet::kScalar:
      return ScalarKernels<Real>();
    case InstructionSet::kAvx2:
      return Avx2Kernels<Real>();
    case InstructionSet::kAvx512:
      return Avx512Kernels<Real>();
  }
  std::abort();
}

template const Kernels<float>& KernelsFor<float>(InstructionSet set);
template const Kernels<double>& KernelsFor<double>(InstructionSet set);

}  // namespace leeway::internal
