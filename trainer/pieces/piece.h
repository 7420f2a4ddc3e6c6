#ifndef LEEWAY_TRAINER_PIECES_PIECE_H_
#define LEEWAY_TRAINER_PIECES_PIECE_H_

// The pieces that a training state is stored in. A piece is a rectangle of one array: a parameter, under its name, or
// an array of the optimizer, "<parameter>.<array>", which is as large as its parameter. Ranks store the pieces that
// they hold, each in files of its own:
//
//   weights.safetensors                  of one rank: whole arrays, as any other program writes them
//   weights-00002-of-00004.safetensors   of the second of four; likewise optimizer...
//
// Where a piece lies is in the file's metadata, under its name: "[16:32, 0:64] of [128, 64]", rows and columns from the
// first to before the last, and the whole array's shape. A piece without an entry is a whole array.

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace leeway {

// Rows [row_begin, row_end) and columns [column_begin, column_end) of a matrix. A vector is a matrix of one column.
struct Rectangle {
  int64_t row_begin = 0;
  int64_t row_end = 0;
  int64_t column_begin = 0;
  int64_t column_end = 0;

  int64_t rows() const { return std::max<int64_t>(row_end - row_begin, 0); }
  int64_t columns() const { return std::max<int64_t>(column_end - column_begin, 0); }
  int64_t area() const { return rows() * columns(); }
  friend bool operator==(const Rectangle&, const Rectangle&) = default;
};

// Empty (area 0) where they do not meet.
Rectangle Intersection(const Rectangle& a, const Rectangle& b);

// The whole of an array of one or two dimensions.
Rectangle WholeOf(const std::vector<int64_t>& shape);

struct PiecePlace {
  Rectangle rectangle;
  std::vector<int64_t> whole_shape;  // one or two dimensions

  // Of the array that holds the piece.
  std::vector<int64_t> shape() const;
  friend bool operator==(const PiecePlace&, const PiecePlace&) = default;
};

std::string FormatPlace(const PiecePlace& place);
// Exactly what FormatPlace gives of a rectangle with elements that lies in the whole; else INVALID_ARGUMENT.
absl::StatusOr<PiecePlace> ParsePlace(absl::string_view text);

// What a file holds.
enum class ShardKind { kWeights, kOptimizer };
constexpr ShardKind kShardKinds[] = {ShardKind::kWeights, ShardKind::kOptimizer};

// Of writer 0 <= `writer` < `writers`.
std::string ShardFileName(ShardKind kind, int writer, int writers);
// Those of `names` that hold the kind; DATA_LOSS: they are not the files of all writers of one checkpoint.
absl::StatusOr<std::vector<std::string>> ShardFilesAmong(ShardKind kind, const std::vector<std::string>& names);

}  // namespace leeway

#endif  // LEEWAY_TRAINER_PIECES_PIECE_H_
