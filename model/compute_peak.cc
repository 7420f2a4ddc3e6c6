#include "model/compute_peak.h"

#include <vector>

#include "base/clock.h"
#include "model/instruction_set.h"
#include "model/kernels/kernels.h"

namespace leeway {
namespace {

constexpr int kTries = 8;
constexpr absl::Duration kTry = absl::Milliseconds(10);

}  // namespace

double MeasureComputePeak(ParallelFor* parallel) {
  const internal::Kernels<float>& kernels = internal::KernelsFor<float>(ActiveInstructionSet());
  const int threads = parallel->threads();
  std::vector<float> sinks(static_cast<size_t>(threads) * 16);
  std::vector<int64_t> operations(static_cast<size_t>(threads));
  const auto run = [&](int64_t steps) {
    const MonotonicTime begin = RealClock()->Now();
    parallel->Run(threads, 1, [&](int64_t first, int64_t last) {
      for (int64_t t = first; t < last; ++t) operations[t] = kernels.multiply_add_chains(steps, &sinks[t * 16]);
    });
    return absl::ToDoubleSeconds(RealClock()->Now() - begin);
  };
  // As many steps as fill a try.
  int64_t steps = 10'000;
  double seconds = run(steps);
  while (seconds < absl::ToDoubleSeconds(kTry) / 4 && steps < int64_t{1} << 40) {
    steps *= 4;
    seconds = run(steps);
  }
  // Together, not the best of them: where more ranks measure than there are cores, one of them is alone now and then.
  seconds = 0;
  double total = 0;
  for (int i = 0; i < kTries; ++i) {
    seconds += run(steps);
    for (const int64_t count : operations) total += static_cast<double>(count);
  }
  return total / seconds;
}

}  // namespace leeway
