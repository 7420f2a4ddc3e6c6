#ifndef LEEWAY_COLLECTIVE_TREE_REDUCE_H_
#define LEEWAY_COLLECTIVE_TREE_REDUCE_H_

// The one order in which values of ranks are joined, and the one way in which an array is cut among ranks.

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "collective/communicator.h"

namespace leeway {

// Whether ranks may sum values of this type: F32, F64, BF16, I64.
bool IsReducible(DType dtype);

// output[i] = sources[0][i] joined with … by the balanced tree ((0+1)+(2+3)): neighbours are joined level by level, one
// left over moves up unchanged ((0+1)+2). Sums of BF16 are formed in fp32 and rounded once, to the nearest even; of I64
// they wrap. kMax: a NaN wins, so that it is not hidden. Pointers need no alignment; output may be one of the sources
// but not overlap one otherwise. Requires at least one source and IsReducible(dtype).
void TreeReduce(ReduceOp op, DType dtype, absl::Span<const void* const> sources, int64_t count, void* output);

// `count` elements cut into `size` parts that differ by at most one, the larger ones first.
std::vector<int64_t> EvenParts(int64_t count, int size);

}  // namespace leeway

#endif  // LEEWAY_COLLECTIVE_TREE_REDUCE_H_
