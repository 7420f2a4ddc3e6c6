#ifndef LEEWAY_MODEL_TRANSFORMER_SHARD_EXCHANGE_H_
#define LEEWAY_MODEL_TRANSFORMER_SHARD_EXCHANGE_H_

// What tensor-parallel ranks exchange during a pass. An activation that is replicated over the ranks has a gradient
// that is replicated too, never partial: partial rows are summed exactly once, right behind the product that made them.
//
// Rows travel with their padding: volumes are those of a hidden size rounded up to 16.
//
// Nothing here returns an error: the first one is kept, later exchanges are left out, and the pass reports it at its
// end. All ranks run the same exchanges in the same order.

#include <cstdint>
#include <type_traits>
#include <vector>

#include "absl/status/status.h"
#include "collective/communicator.h"
#include "model/tensor_parallel.h"

namespace leeway {
namespace internal {

struct RowRange {
  int64_t begin = 0;
  int64_t count = 0;
};

template <typename Real>
class ShardExchange {
 public:
  explicit ShardExchange(const TensorParallel& tensor_parallel)
      : ranks_(tensor_parallel.ranks), splits_rows_(size() > 1 && tensor_parallel.sequence) {}

  int64_t rank() const { return ranks_ == nullptr ? 0 : ranks_->rank(); }
  int64_t size() const { return ranks_ == nullptr ? 1 : ranks_->size(); }
  // Sequence parallelism.
  bool splits_rows() const { return splits_rows_; }
  const absl::Status& status() const { return status_; }

  RowRange OwnRows(int64_t count) const {
    if (!splits_rows_) return {0, count};
    const int64_t begin = count * rank() / size();
    return {begin, count * (rank() + 1) / size() - begin};
  }

  // Sums `partial` [count][width] over the ranks, in place; without sequence parallelism all rows are valid then, with
  // it only the own ones.
  void SumRows(Real* partial, int64_t count, int64_t width) {
    if (size() == 1 || !status_.ok()) return;
    if (!splits_rows_) {
      SumAll(partial, count * width);
      return;
    }
    status_ = ranks_->ReduceScatter(ReduceOp::kSum, kType, partial, Counts(count, width),
                                    partial + OwnRows(count).begin * width);
  }

  // With sequence parallelism: the own rows of `rows` [count][width] go to all ranks, and theirs come.
  void GatherRows(Real* rows, int64_t count, int64_t width) {
    if (!splits_rows_ || !status_.ok()) return;
    status_ = ranks_->AllGather(kType, rows + OwnRows(count).begin * width, Counts(count, width), rows);
  }

  void SumAll(Real* values, int64_t count) { Reduce(ReduceOp::kSum, values, count); }
  void MaxAll(Real* values, int64_t count) { Reduce(ReduceOp::kMax, values, count); }

 private:
  static constexpr DType kType = std::is_same_v<Real, float> ? DType::kF32 : DType::kF64;

  void Reduce(ReduceOp op, Real* values, int64_t count) {
    if (size() == 1 || !status_.ok()) return;
    status_ = ranks_->AllReduce(op, kType, values, count);
  }

  absl::Span<const int64_t> Counts(int64_t count, int64_t width) {
    counts_.resize(static_cast<size_t>(size()));
    for (int64_t r = 0; r < size(); ++r) {
      counts_[r] = (count * (r + 1) / size() - count * r / size()) * width;
    }
    return counts_;
  }

  Communicator* const ranks_;
  const bool splits_rows_;
  absl::Status status_;
  std::vector<int64_t> counts_;
};

}  // namespace internal
}  // namespace leeway

#endif  // LEEWAY_MODEL_TRANSFORMER_SHARD_EXCHANGE_H_
