#ifndef LEEWAY_MODEL_TENSOR_PARALLEL_H_
#define LEEWAY_MODEL_TENSOR_PARALLEL_H_

// How a model is cut over tensor-parallel ranks (Shoeybi et al., "Megatron-LM", arXiv 1909.08053; sequence parallelism:
// Korthikanti et al., arXiv 2205.05198).
//
// A rank holds whole heads (rows of q, k, v; columns of o), a range of the intermediate size (rows of gate and up;
// columns of down) and a range of the vocabulary (rows of embedding and head); biases lie with their heads, norms are
// on every rank. Its share is itself the layout of a smaller ModelShape, so that everything that works on a flat
// parameter order works on a share.

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "collective/communicator.h"
#include "model/shape.h"

namespace leeway {

// The ranks that compute one model together. Without a communicator, or with one of size 1: the whole model is here.
struct TensorParallel {
  Communicator* ranks = nullptr;  // outlives the Transformer, which is its only caller during a call
  // Norms and residuals work on 1/size of the rows: less memory, the same volume forward, half more backward.
  bool sequence = false;
};

// INVALID_ARGUMENT naming every size of the model that `size` ranks can not share. Sizes are 1, 2 and 4: forward sums
// are formed in 4 fixed blocks, so that log-probabilities are the same bits at each of them.
absl::Status CheckTensorParallel(const ModelShape& shape, int64_t size);

// The shape of rank's share. REQUIRES: CheckTensorParallel is OK.
ModelShape TensorShard(const ModelShape& shape, int64_t rank, int64_t size);

// First id of the vocabulary that `rank` holds; rank = size gives the end. Ranges differ by at most one.
int64_t VocabularyBegin(int64_t vocabulary, int64_t rank, int64_t size);

// Whether every rank holds the whole parameter (its gradients are then equal on all ranks, to the bit).
bool IsReplicated(const ParameterInfo& parameter);

// A rectangle of one parameter, in elements: `rows` runs of `columns` values.
struct ShardSlice {
  int64_t whole_offset = 0;  // in the flat order of the whole model
  int64_t whole_stride = 0;
  int64_t shard_offset = 0;  // in the flat order of the share, where the runs lie back to back
  int64_t rows = 0;
  int64_t columns = 0;
};

// Where rank's share lies in the whole: one slice a parameter, in order; together they cover the share exactly.
std::vector<ShardSlice> TensorShardSlices(const ModelShape& shape, int64_t rank, int64_t size);

// Copies between the flat orders. REQUIRES: spans of the right sizes.
template <typename T>
void CopyToShard(absl::Span<const ShardSlice> slices, absl::Span<const T> whole, absl::Span<T> shard);
template <typename T>
void CopyFromShard(absl::Span<const ShardSlice> slices, absl::Span<const T> shard, absl::Span<T> whole);

}  // namespace leeway

#endif  // LEEWAY_MODEL_TENSOR_PARALLEL_H_
