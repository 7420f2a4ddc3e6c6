#ifndef LEEWAY_TRAINER_PIECES_PIECE_READER_H_
#define LEEWAY_TRAINER_PIECES_PIECE_READER_H_

// The training state in a checkpoint's files, whatever ranks wrote it, as one set of whole arrays of which any part can
// be read. The one reader of checkpoints' weights; OpenCheckpoint (checkpoint_manifest.h) opens those of a folder.

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/ndarray.h"
#include "formats/safetensors.h"
#include "model/shape.h"
#include "trainer/pieces/piece.h"

namespace leeway {

// Immutable; any thread. Files are mapped: what is not asked for is not read.
class PieceReader {
 public:
  // Opens the files `names` of `folder` and looks at all of their headers. DATA_LOSS, naming file and array: the pieces
  // do not cover every array exactly once, or do not say where they belong. INVALID_ARGUMENT: they are those of another
  // model than `layout`. Digests are not its business (VerifyCheckpoint).
  static absl::StatusOr<PieceReader> Open(const std::string& folder, const std::vector<std::string>& names,
                                          const std::vector<ParameterInfo>& layout);

  // Of all elements: kF32 or kF64.
  DType type() const { return type_; }
  // Of the optimizer, without the parameters' names ("first_moment"); empty: it has none, or none are stored.
  const std::set<std::string>& array_kinds() const { return array_kinds_; }
  bool Contains(const std::string& name) const { return arrays_.count(name) > 0; }

  // Row by row into `values`. REQUIRES: Contains(name), the rectangle lies in the array, Real is type().
  template <typename Real>
  void Read(const std::string& name, const Rectangle& rectangle, Real* values) const;
  // All parameters, flat, in the layout's order. INVALID_ARGUMENT: they are not of type Real.
  template <typename Real>
  absl::StatusOr<std::vector<Real>> ReadParameters() const;

 private:
  struct Piece {
    std::string file;
    Rectangle place;
    NDArray values;
  };

  PieceReader() = default;
  // All tensors of one file. `kind` says what names it may hold.
  absl::Status AddFile(const std::string& folder, const std::string& name, ShardKind kind,
                       const std::map<std::string, const ParameterInfo*>& parameters);
  absl::Status AddPiece(const SafetensorsFile& file, const std::string& name, const ParameterInfo& parameter,
                        const std::string* place_text);
  absl::Status CheckCover(const std::string& folder, const std::string& name, const ParameterInfo& parameter) const;

  std::vector<ParameterInfo> layout_;
  std::map<std::string, std::vector<Piece>> arrays_;
  std::set<std::string> array_kinds_;
  bool has_type_ = false;
  DType type_ = DType::kF32;
};

}  // namespace leeway

#endif  // LEEWAY_TRAINER_PIECES_PIECE_READER_H_
