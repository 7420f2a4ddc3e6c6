#include "trainer/optimizer/global_norm.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace leeway {
namespace {

constexpr int64_t kNormBlock = 4'096;
// Elements below which a second thread costs more than it saves.
constexpr int64_t kMinimumPerThread = 16'384;

// Eight accumulators so that it vectorises, joined in one fixed order.
template <typename Real>
double BlockSquares(const Real* values, int64_t count) {
  double lanes[8] = {};
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    for (int lane = 0; lane < 8; ++lane) {
      const double value = values[i + lane];
      lanes[lane] += value * value;
    }
  }
  for (; i < count; ++i) {
    const double value = values[i];
    lanes[0] += value * value;
  }
  return ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) + ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
}

}  // namespace

template <typename Real>
double SumOfSquares(absl::Span<const Real> values, ParallelFor* parallel) {
  const int64_t count = static_cast<int64_t>(values.size());
  const int64_t blocks = (count + kNormBlock - 1) / kNormBlock;
  std::vector<double> partial(static_cast<size_t>(blocks));
  parallel->Run(blocks, kMinimumPerThread / kNormBlock, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const int64_t first = block * kNormBlock;
      partial[static_cast<size_t>(block)] = BlockSquares(values.data() + first, std::min(kNormBlock, count - first));
    }
  });
  double sum = 0;
  for (const double value : partial) sum += value;
  return sum;
}

template double SumOfSquares(absl::Span<const float> values, ParallelFor* parallel);
template double SumOfSquares(absl::Span<const double> values, ParallelFor* parallel);

double GlobalNorm(absl::Span<const float> gradients, ParallelFor* parallel) {
  return std::sqrt(SumOfSquares(gradients, parallel));
}

}  // namespace leeway
