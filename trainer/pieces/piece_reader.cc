#include "trainer/pieces/piece_reader.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/file_system.h"
#include "base/status_macros.h"
#include "trainer/optimizer/element_storage.h"

namespace leeway {
namespace {

std::string ShapeText(const std::vector<int64_t>& shape) { return absl::StrCat("[", absl::StrJoin(shape, ", "), "]"); }

}  // namespace

absl::StatusOr<PieceReader> PieceReader::Open(const std::string& folder, const std::vector<std::string>& names,
                                              const std::vector<ParameterInfo>& layout) {
  PieceReader reader;
  reader.layout_ = layout;
  std::map<std::string, const ParameterInfo*> parameters;
  for (const ParameterInfo& parameter : layout) parameters[parameter.name] = &parameter;
  for (const ShardKind kind : kShardKinds) {
    const absl::StatusOr<std::vector<std::string>> shards = ShardFilesAmong(kind, names);
    if (!shards.ok()) {
      return absl::DataLossError(absl::StrCat(folder, ": ", std::string(shards.status().message())));
    }
    for (const std::string& name : *shards) {
      LEEWAY_RETURN_IF_ERROR(reader.AddFile(folder, name, kind, parameters));
    }
  }
  for (const ParameterInfo& parameter : layout) {
    if (!reader.Contains(parameter.name)) {
      return absl::InvalidArgumentError(
          absl::StrCat(folder, ": has no ", parameter.name, ": it is the checkpoint of another model"));
    }
    LEEWAY_RETURN_IF_ERROR(reader.CheckCover(folder, parameter.name, parameter));
    for (const std::string& kind : reader.array_kinds_) {
      const std::string name = absl::StrCat(parameter.name, ".", kind);
      if (reader.Contains(name)) LEEWAY_RETURN_IF_ERROR(reader.CheckCover(folder, name, parameter));
    }
  }
  return reader;
}

absl::Status PieceReader::AddFile(const std::string& folder, const std::string& name, ShardKind kind,
                                  const std::map<std::string, const ParameterInfo*>& parameters) {
  const absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Open(JoinPath(folder, name));
  if (!file.ok()) return absl::DataLossError(std::string(file.status().message()));
  for (const auto& [array, place] : file->metadata()) {
    if (!file->Contains(array)) {
      return absl::DataLossError(absl::StrCat(file->path(), ": says where ", array, " lies, but does not hold it"));
    }
  }
  for (const SafetensorsEntry& entry : file->entries()) {
    std::string parameter_name = entry.name;
    if (kind == ShardKind::kOptimizer) {
      const size_t dot = std::min(entry.name.rfind('.'), entry.name.size());
      parameter_name = entry.name.substr(0, dot);
      array_kinds_.insert(entry.name.substr(std::min(dot + 1, entry.name.size())));
    }
    const auto parameter = parameters.find(parameter_name);
    if (parameter == parameters.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat(file->path(), ": ", entry.name, " belongs to no parameter of the model"));
    }
    const auto place = file->metadata().find(entry.name);
    LEEWAY_RETURN_IF_ERROR(
        AddPiece(*file, entry.name, *parameter->second, place == file->metadata().end() ? nullptr : &place->second));
  }
  return absl::OkStatus();
}

absl::Status PieceReader::AddPiece(const SafetensorsFile& file, const std::string& name, const ParameterInfo& parameter,
                                   const std::string* place_text) {
  const std::string where = absl::StrCat(file.path(), ": ", name);
  absl::StatusOr<NDArray> values = file.Tensor(name);
  if (!values.ok()) return absl::DataLossError(std::string(values.status().message()));
  PiecePlace place;
  if (place_text == nullptr) {
    place.whole_shape = values->shape();
    if (place.whole_shape == parameter.shape) place.rectangle = WholeOf(parameter.shape);
  } else {
    absl::StatusOr<PiecePlace> parsed = ParsePlace(*place_text);
    if (!parsed.ok()) return absl::DataLossError(absl::StrCat(where, ": ", std::string(parsed.status().message())));
    place = *std::move(parsed);
    if (place.shape() != values->shape()) {
      return absl::DataLossError(
          absl::StrCat(where, " has the shape ", ShapeText(values->shape()), " and is said to lie at ", *place_text));
    }
  }
  if (place.whole_shape != parameter.shape) {
    return absl::InvalidArgumentError(absl::StrCat(where,
                                                   " has another shape than the model: ", ShapeText(place.whole_shape),
                                                   " and not ", ShapeText(parameter.shape)));
  }
  if (!has_type_) {
    has_type_ = true;
    type_ = values->dtype();
  }
  if (values->dtype() != type_ || (type_ != DType::kF32 && type_ != DType::kF64)) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, " has another dtype than a training state: ", DTypeName(values->dtype())));
  }
  std::vector<Piece>& pieces = arrays_[name];
  for (const Piece& other : pieces) {
    if (Intersection(other.place, place.rectangle).area() == 0) continue;
    return absl::DataLossError(absl::StrCat(where, " at ", FormatPlace(place), " is also in ", other.file, " at ",
                                            FormatPlace({other.place, place.whole_shape})));
  }
  pieces.push_back({file.path(), place.rectangle, *std::move(values)});
  return absl::OkStatus();
}

absl::Status PieceReader::CheckCover(const std::string& folder, const std::string& name,
                                     const ParameterInfo& parameter) const {
  // Pieces do not overlap: their sizes tell.
  int64_t covered = 0;
  std::vector<std::string> files;
  for (const Piece& piece : arrays_.at(name)) {
    covered += piece.place.area();
    files.push_back(piece.file.substr(piece.file.rfind('/') + 1));
  }
  if (covered == parameter.element_count) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(folder, ": of ", name, " only ", covered, " of ", parameter.element_count,
                                          " elements are there, in ", absl::StrJoin(files, ", ")));
}

template <typename Real>
void PieceReader::Read(const std::string& name, const Rectangle& rectangle, Real* values) const {
  for (const Piece& piece : arrays_.at(name)) {
    const Rectangle part = Intersection(piece.place, rectangle);
    if (part.area() == 0) continue;
    const Real* const from = piece.values.values<Real>().data();
    for (int64_t row = part.row_begin; row < part.row_end; ++row) {
      std::copy_n(
          from + (row - piece.place.row_begin) * piece.place.columns() + (part.column_begin - piece.place.column_begin),
          part.columns(),
          values + (row - rectangle.row_begin) * rectangle.columns() + (part.column_begin - rectangle.column_begin));
    }
  }
}

template <typename Real>
absl::StatusOr<std::vector<Real>> PieceReader::ReadParameters() const {
  if (type_ != kTypeOf<Real>) {
    return absl::InvalidArgumentError(
        absl::StrCat("the state is ", DTypeName(type_), ", expected ", DTypeName(kTypeOf<Real>)));
  }
  std::vector<Real> parameters;
  for (const ParameterInfo& parameter : layout_) {
    parameters.resize(parameters.size() + static_cast<size_t>(parameter.element_count));
    Read(parameter.name, WholeOf(parameter.shape), parameters.data() + parameter.offset);
  }
  return parameters;
}

template void PieceReader::Read<float>(const std::string&, const Rectangle&, float*) const;
template void PieceReader::Read<double>(const std::string&, const Rectangle&, double*) const;
template absl::StatusOr<std::vector<float>> PieceReader::ReadParameters<float>() const;
template absl::StatusOr<std::vector<double>> PieceReader::ReadParameters<double>() const;

}  // namespace leeway
