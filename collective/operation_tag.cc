#include "collective/operation_tag.h"

#include <cstring>

#include "absl/strings/str_cat.h"

namespace leeway {

bool operator==(const OperationTag& a, const OperationTag& b) { return std::memcmp(&a, &b, sizeof(a)) == 0; }

std::string DescribeOperation(const OperationTag& tag) {
  if (tag.kind == kSplitKind) return absl::StrCat("split #", tag.number);
  const Collective collective = static_cast<Collective>(tag.kind);
  std::string text = absl::StrCat(CollectiveName(collective), " #", tag.number);
  if (collective == Collective::kBarrier) return text;
  absl::StrAppend(&text, " (");
  if (collective == Collective::kAllReduce || collective == Collective::kReduceScatter) {
    absl::StrAppend(&text, static_cast<ReduceOp>(tag.reduce_op) == ReduceOp::kSum ? "sum, " : "max, ");
  }
  absl::StrAppend(&text, DTypeName(static_cast<DType>(tag.dtype)));
  // The ranks of an uneven all-to-all send different amounts: the tag names none.
  if (collective != Collective::kAllToAll) absl::StrAppend(&text, ", ", tag.elements, " elements");
  if (tag.layout != 0) absl::StrAppend(&text, ", parts ", absl::Hex(tag.layout & 0xffff, absl::kZeroPad4));
  if (tag.root >= 0) absl::StrAppend(&text, ", root ", tag.root);
  return absl::StrCat(text, ")");
}

std::string DescribeRanks(absl::Span<const int> ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) {
    absl::StrAppend(&text, i == 0 ? "" : i + 1 == ranks.size() ? " and " : ", ", ranks[i]);
  }
  return text;
}

absl::Status MissingRanksError(absl::string_view group, const OperationTag& tag, absl::Span<const int> ranks,
                               absl::Duration timeout) {
  return absl::DeadlineExceededError(absl::StrCat(group, ": ", DescribeOperation(tag), ": ", DescribeRanks(ranks),
                                                  " did not arrive within ", absl::FormatDuration(timeout)));
}

absl::Status LostRanksError(absl::string_view group, const OperationTag& tag, absl::Span<const int> ranks,
                            absl::string_view reason) {
  return absl::UnavailableError(absl::StrCat(group, ": ", DescribeOperation(tag), ": ", DescribeRanks(ranks),
                                             ranks.size() == 1 ? " is gone" : " are gone",
                                             reason.empty() ? "" : absl::StrCat(" (", reason, ")")));
}

absl::Status MismatchError(absl::string_view group, int rank, const OperationTag& tag, int other_rank,
                           const OperationTag& other_tag) {
  return absl::InternalError(absl::StrCat(group, ": rank ", rank, " calls ", DescribeOperation(tag), ", but rank ",
                                          other_rank, " calls ", DescribeOperation(other_tag)));
}

absl::Status SizeMismatchError(absl::string_view group, const OperationTag& tag, int rank, int64_t sent, int other_rank,
                               int64_t expected) {
  return absl::InternalError(absl::StrCat(group, ": ", DescribeOperation(tag), ": rank ", rank, " sends ", sent,
                                          " bytes to rank ", other_rank, ", which expects ", expected));
}

absl::Status AbortError(absl::string_view group, int rank, absl::string_view reason) {
  return absl::AbortedError(absl::StrCat(group, ": aborted by rank ", rank, ": ", reason));
}

}  // namespace leeway
