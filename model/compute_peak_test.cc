#include "model/compute_peak.h"

#include <vector>

#include "gtest/gtest.h"
#include "model/instruction_set.h"
#include "model/kernels/kernels.h"

namespace leeway {
namespace {

TEST(ComputePeakTest, CountsWhatItDoes) {
  for (const InstructionSet set : {InstructionSet::kScalar, InstructionSet::kAvx2, InstructionSet::kAvx512}) {
    if (!IsSupported(set)) continue;
    const internal::Kernels<double>& kernels = internal::KernelsFor<double>(set);
    double sink = 0;
    const int64_t one = kernels.multiply_add_chains(1, &sink);
    EXPECT_EQ(kernels.multiply_add_chains(1000, &sink), 1000 * one);
    // Chain c starts at c + 1 and goes to x * 0.999 + 0.001: all of them tend to 1.
    const double chains = 12;
    (void)kernels.multiply_add_chains(100'000, &sink);
    EXPECT_NEAR(sink, chains, 1e-6);
  }
}

TEST(ComputePeakTest, IsAboveAnythingScalarAndBelowAnythingPossible) {
  ParallelFor parallel(1);
  const double peak = MeasureComputePeak(&parallel);
  EXPECT_GT(peak, 1e8);
  EXPECT_LT(peak, 1e13);
}

}  // namespace
}  // namespace leeway
