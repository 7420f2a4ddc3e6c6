#include "trainer/pieces/piece.h"

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"

namespace leeway {
namespace {

absl::string_view PrefixOf(ShardKind kind) { return kind == ShardKind::kWeights ? "weights" : "optimizer"; }

constexpr absl::string_view kSuffix = ".safetensors";

// Takes a number of at most 18 digits from the front.
bool ConsumeNumber(absl::string_view* text, int64_t* number) {
  size_t digits = 0;
  while (digits < text->size() && digits < 18 && (*text)[digits] >= '0' && (*text)[digits] <= '9') ++digits;
  if (digits == 0 || !absl::SimpleAtoi(text->substr(0, digits), number)) return false;
  text->remove_prefix(digits);
  return true;
}

bool ConsumeRange(absl::string_view* text, int64_t* begin, int64_t* end) {
  return ConsumeNumber(text, begin) && absl::ConsumePrefix(text, ":") && ConsumeNumber(text, end);
}

}  // namespace

Rectangle Intersection(const Rectangle& a, const Rectangle& b) {
  return {std::max(a.row_begin, b.row_begin), std::min(a.row_end, b.row_end), std::max(a.column_begin, b.column_begin),
          std::min(a.column_end, b.column_end)};
}

Rectangle WholeOf(const std::vector<int64_t>& shape) { return {0, shape[0], 0, shape.size() > 1 ? shape[1] : 1}; }

std::vector<int64_t> PiecePlace::shape() const {
  std::vector<int64_t> shape = {rectangle.rows()};
  if (whole_shape.size() > 1) shape.push_back(rectangle.columns());
  return shape;
}

std::string FormatPlace(const PiecePlace& place) {
  std::string columns;
  if (place.whole_shape.size() > 1) {
    columns = absl::StrCat(", ", place.rectangle.column_begin, ":", place.rectangle.column_end);
  }
  return absl::StrCat("[", place.rectangle.row_begin, ":", place.rectangle.row_end, columns, "] of [",
                      absl::StrJoin(place.whole_shape, ", "), "]");
}

absl::StatusOr<PiecePlace> ParsePlace(absl::string_view text) {
  const absl::Status bad = absl::InvalidArgumentError(
      absl::StrCat("'", text, "' is not the place of a piece, such as '[16:32, 0:64] of [128, 64]'"));
  absl::string_view rest = text;
  PiecePlace place;
  Rectangle& rectangle = place.rectangle;
  rectangle.column_end = 1;
  if (!absl::ConsumePrefix(&rest, "[") || !ConsumeRange(&rest, &rectangle.row_begin, &rectangle.row_end)) return bad;
  const bool is_matrix = absl::ConsumePrefix(&rest, ", ");
  if (is_matrix && !ConsumeRange(&rest, &rectangle.column_begin, &rectangle.column_end)) return bad;
  place.whole_shape.resize(is_matrix ? 2 : 1);
  if (!absl::ConsumePrefix(&rest, "] of [") || !ConsumeNumber(&rest, &place.whole_shape[0])) return bad;
  if (is_matrix && (!absl::ConsumePrefix(&rest, ", ") || !ConsumeNumber(&rest, &place.whole_shape[1]))) return bad;
  if (rest != "]" || FormatPlace(place) != text) return bad;
  const Rectangle whole = WholeOf(place.whole_shape);
  const bool is_inside = rectangle.rows() > 0 && rectangle.columns() > 0 && Intersection(rectangle, whole) == rectangle;
  return is_inside ? absl::StatusOr<PiecePlace>(place) : bad;
}

std::string ShardFileName(ShardKind kind, int writer, int writers) {
  if (writers == 1) return absl::StrCat(PrefixOf(kind), kSuffix);
  return absl::StrFormat("%s-%05d-of-%05d%s", PrefixOf(kind), writer + 1, writers, kSuffix);
}

absl::StatusOr<std::vector<std::string>> ShardFilesAmong(ShardKind kind, const std::vector<std::string>& names) {
  std::vector<std::string> found;
  for (const std::string& name : names) {
    if (absl::StartsWith(name, PrefixOf(kind)) && absl::EndsWith(name, kSuffix)) found.push_back(name);
  }
  std::sort(found.begin(), found.end());
  const int writers = static_cast<int>(found.size());
  for (int writer = 0; writer < writers; ++writer) {
    const std::string expected = ShardFileName(kind, writer, writers);
    if (found[writer] == expected) continue;
    return absl::DataLossError(absl::StrCat("of its ", PrefixOf(kind), " files there are ", absl::StrJoin(found, ", "),
                                            ", which are not those of one checkpoint: ", expected, " is expected"));
  }
  if (found.empty()) {
    return absl::DataLossError(absl::StrCat("there is no ", ShardFileName(kind, 0, 1), " and no part of it"));
  }
  return found;
}

}  // namespace leeway
