#ifndef LEEWAY_COLLECTIVE_OPERATION_TAG_H_
#define LEEWAY_COLLECTIVE_OPERATION_TAG_H_

// What the ranks of a communicator must agree on before bytes move, and the texts that name it. Without the comparison
// a rank that is one operation ahead would take another operation's bytes for its own.

#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "collective/communicator.h"

namespace leeway {

// Beside the values of Collective: a Split is an operation too.
constexpr uint8_t kSplitKind = kCollectiveCount;

// Travels as its bytes between processes of one build. No padding, so that equal tags have equal bytes.
struct OperationTag {
  uint64_t number = 0;    // of the operation on this communicator (send and receive: between these two ranks), from 1
  int64_t elements = 0;   // of the whole array; of the message
  uint64_t layout = 0;    // hash of the parts, where they may be uneven
  uint32_t step = 0;      // of the operation, from 0
  int16_t root = -1;      // broadcast only
  uint8_t kind = 0;       // Collective or kSplitKind
  uint8_t dtype = 0;      // DType
  uint8_t reduce_op = 0;  // ReduceOp
  uint8_t unused[7] = {};

  friend bool operator==(const OperationTag& a, const OperationTag& b);
};
static_assert(std::has_unique_object_representations_v<OperationTag>);

// "all_reduce #12 (sum, F32, 1000 elements)".
std::string DescribeOperation(const OperationTag& tag);

// "rank 2", "ranks 0, 2 and 3".
std::string DescribeRanks(absl::Span<const int> ranks);

// The errors that every implementation reports with the same words. `ranks` of a split communicator are those of the
// communicator that it comes from in the end, which are the ones an operator knows.
// DEADLINE_EXCEEDED: "data: all_reduce #12 (sum, F32, 1000 elements): rank 2 did not arrive within 30s".
absl::Status MissingRanksError(absl::string_view group, const OperationTag& tag, absl::Span<const int> ranks,
                               absl::Duration timeout);
// UNAVAILABLE: "…: rank 2 is gone (reason)"; no parenthesis for an empty reason.
absl::Status LostRanksError(absl::string_view group, const OperationTag& tag, absl::Span<const int> ranks,
                            absl::string_view reason);
// INTERNAL: "data: rank 0 calls all_reduce #12 (…), but rank 2 calls barrier #12".
absl::Status MismatchError(absl::string_view group, int rank, const OperationTag& tag, int other_rank,
                           const OperationTag& other_tag);
// INTERNAL: the tags agree, but `rank` sends `sent` bytes of which `other_rank` expects `expected`.
absl::Status SizeMismatchError(absl::string_view group, const OperationTag& tag, int rank, int64_t sent, int other_rank,
                               int64_t expected);
// ABORTED: "data: aborted by rank 1: reason".
absl::Status AbortError(absl::string_view group, int rank, absl::string_view reason);

}  // namespace leeway

#endif  // LEEWAY_COLLECTIVE_OPERATION_TAG_H_
