#ifndef LEEWAY_TRAINER_PARALLEL_BALANCED_PACKING_H_
#define LEEWAY_TRAINER_PARALLEL_BALANCED_PACKING_H_

// Which data-parallel rank trains which sequence, in which micro-batch.
//
// All ranks get the same number of micro-batches whatever the lengths, some perhaps empty: with sharded parameters
// every micro-batch is a round of collectives that all ranks take part in.
//
// Ranks are filled longest first, each sequence to the rank with the least cost (Graham's LPT). With N ranks, cost a
// rank at most
//   mean + (1 - 1/N) * largest sequence      and      (4/3 - 1/(3N)) * the best possible.
// Within a rank sequences are spread over the micro-batches the same way within the limit of tokens, and micro-batches
// are ordered by falling cost, so that those that run at the same time on different ranks are alike. A rank with t
// tokens needs at most 1 + 2 * t / limit micro-batches (any two would not fit into one), sequences beyond the limit
// counted apart: they lie alone.
//
// A pure function; ties go to the lower index, so that every rank computes the same packing.

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "trainer/parallel/flops.h"

namespace leeway {

struct PackingOptions {
  int64_t ranks = 1;
  // A micro-batch holds whole sequences, at most so many tokens, or one sequence.
  int64_t micro_batch_tokens = 0;
  LengthCost cost;
};

struct Packing {
  // [rank][micro-batch] -> indices of sequences, rising. Every rank has the same number of micro-batches, at least one.
  std::vector<std::vector<std::vector<int64_t>>> micro_batches;
  int64_t micro_batch_count = 0;

  // In units of the cost function. A step in which no rank waits takes `mean`; one that meets at the end only takes
  // `largest_rank`; one that meets after every micro-batch takes `in_step`.
  double mean = 0;
  double largest_rank = 0;
  double in_step = 0;
};

// INVALID_ARGUMENT: ranks or limit < 1, or a length < 0.
absl::StatusOr<Packing> PackBalanced(absl::Span<const int64_t> lengths, const PackingOptions& options);

}  // namespace leeway

#endif  // LEEWAY_TRAINER_PARALLEL_BALANCED_PACKING_H_
