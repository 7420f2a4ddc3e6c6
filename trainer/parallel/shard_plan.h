#ifndef LEEWAY_TRAINER_PARALLEL_SHARD_PLAN_H_
#define LEEWAY_TRAINER_PARALLEL_SHARD_PLAN_H_

// How the data-parallel ranks cut a flat parameter order (reference: FSDP2's per-parameter sharding on dimension 0).
//
// The order is cut twice. Along it lie *units*, contiguous runs of parameters that are gathered and freed together: the
// embedding (with the tied head), each layer, the final norm with the untied head. Across it, rank r of N holds of
// every parameter the rows [R*r/N, R*(r+1)/N) of its R rows (of a one-dimensional one, elements): without padding, some
// perhaps none. A rank's share of a unit is its parts of the unit's parameters back to back, and the shares of all
// ranks back to back, rank 0 first, are the unit in *rank-major* order: what collectives send and receive.
//
// Frozen parameters take part in kAll, not in kTrainable: gradients, masters and optimizer state do not exist for them.
// Immutable, without communication; any thread.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "model/shape.h"
#include "trainer/optimizer/optimizer.h"

namespace leeway {

// Which parameters an array holds. The full order of kTrainable is the flat order with the frozen ones left out.
enum class Held { kAll, kTrainable };

// A rank's part of one parameter, in elements.
struct ShardPart {
  int64_t parameter = 0;  // index into the layout
  int64_t first_row = 0;
  int64_t flat_offset = 0;   // in the flat order, frozen parameters included
  int64_t full_offset = 0;   // in the full order
  int64_t shard_offset = 0;  // in the rank's shares of all units; of RankMajorParts, in the unit's rank-major order
  int64_t count = 0;
};

struct ShardUnit {
  std::string name;  // "embedding", "layer 3", "head"
  int64_t parameter_begin = 0;
  int64_t parameter_end = 0;
};

class ShardPlan {
 public:
  // INVALID_ARGUMENT: ranks < 1, or names in `frozen` that are no parameter.
  static absl::StatusOr<ShardPlan> Create(std::vector<ParameterInfo> layout, int64_t ranks,
                                          absl::Span<const std::string> frozen);

  int64_t ranks() const { return ranks_; }
  const std::vector<ParameterInfo>& layout() const { return layout_; }
  const std::vector<ShardUnit>& units() const { return units_; }
  int64_t unit_count() const { return static_cast<int64_t>(units_.size()); }
  bool is_frozen(int64_t parameter) const { return is_frozen_[static_cast<size_t>(parameter)]; }

  // Elements of all units, of one unit, of rank's share of all units, of rank's share of one unit.
  int64_t FullCount(Held held) const { return FullOffset(unit_count(), held); }
  int64_t UnitCount(int64_t unit, Held held) const { return FullOffset(unit + 1, held) - FullOffset(unit, held); }
  int64_t ShardCount(int64_t rank, Held held) const { return ShardOffset(unit_count(), rank, held); }
  int64_t ShareCount(int64_t unit, int64_t rank, Held held) const {
    return ShardOffset(unit + 1, rank, held) - ShardOffset(unit, rank, held);
  }
  // Where a unit begins in the full order, and its share in rank's shares.
  int64_t FullOffset(int64_t unit, Held held) const;
  int64_t ShardOffset(int64_t unit, int64_t rank, Held held) const;
  // Shares of one unit by rank: the counts of its collectives.
  std::vector<int64_t> ShareCounts(int64_t unit, Held held) const;

  // Rank's parts of a unit, in order; also those without elements.
  std::vector<ShardPart> Parts(int64_t unit, int64_t rank, Held held) const;
  // All trainable parts of a rank, in order: what its optimizer is made with.
  std::vector<OptimizerPart> OptimizerParts(int64_t rank) const;

  // Those of all ranks, rank 0's first.
  std::vector<ShardPart> RankMajorParts(int64_t unit, Held held) const;
  // Whether a unit's rank-major order is its full order, so that nothing has to be copied around a collective.
  bool IsRankMajor(int64_t unit, Held held) const;

  // First row of `rank` among `rows`; rank = ranks() gives the end.
  int64_t RowBegin(int64_t rows, int64_t rank) const { return rows * rank / ranks_; }

 private:
  ShardPlan() = default;

  size_t index(Held held) const { return held == Held::kAll ? 0 : 1; }
  bool Includes(int64_t parameter, Held held) const { return held == Held::kAll || !is_frozen(parameter); }
  int64_t ranks_ = 1;
  std::vector<ParameterInfo> layout_;
  std::vector<bool> is_frozen_;
  std::vector<ShardUnit> units_;
  // By Held; unit_count + 1 entries, for shards by rank.
  std::vector<int64_t> full_offsets_[2];
  std::vector<std::vector<int64_t>> shard_offsets_[2];
};

}  // namespace leeway

#endif  // LEEWAY_TRAINER_PARALLEL_SHARD_PLAN_H_
