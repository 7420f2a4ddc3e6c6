#ifndef LEEWAY_MODEL_COMPUTE_PEAK_H_
#define LEEWAY_MODEL_COMPUTE_PEAK_H_

#include "base/executor.h"

namespace leeway {

// Floating-point operations a second that the threads of `parallel` can do together in float at most: registers full of
// independent fused multiply-adds, for about 0.1 s in all. What model FLOPs are divided by
// for MFU on CPUs. Blocks the caller; other work on the machine lowers it.
double MeasureComputePeak(ParallelFor* parallel);

}  // namespace leeway

#endif  // LEEWAY_MODEL_COMPUTE_PEAK_H_
