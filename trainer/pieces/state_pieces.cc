#include "trainer/pieces/state_pieces.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/logging.h"
#include "base/status_macros.h"
#include "model/tensor_parallel.h"
#include "trainer/optimizer/element_storage.h"

namespace leeway {
namespace {

constexpr char kMaster[] = "master";

// Where the parts of this rank lie in the whole parameters.
class OwnPlaces {
 public:
  OwnPlaces(const ModelShape& model, const Mesh& mesh)
      : layout_(ParameterLayout(model)), slices_(TensorShardSlices(model, mesh.tensor_rank(), mesh.shape().tensor)) {
    for (size_t i = 0; i < layout_.size(); ++i) index_of_[layout_[i].name] = i;
  }

  PiecePlace Of(const OptimizerPart& part) const {
    const size_t index = index_of_.at(part.parameter.name);
    const ShardSlice& slice = slices_[index];
    const int64_t offset = slice.whole_offset - layout_[index].offset;
    const int64_t row = offset / slice.whole_stride + part.first_row;
    const int64_t column = offset % slice.whole_stride;
    return {{row, row + part.count / slice.columns, column, column + slice.columns}, layout_[index].shape};
  }

 private:
  const std::vector<ParameterInfo> layout_;
  const std::vector<ShardSlice> slices_;
  std::map<std::string, size_t> index_of_;
};

// A new piece; the caller fills it.
template <typename Real>
absl::Span<Real> AddPiece(const std::string& name, const PiecePlace& place, PieceSet* set) {
  if (place.rectangle != WholeOf(place.whole_shape)) set->places[name] = FormatPlace(place);
  // Not zeroed first: training waits.
  const size_t count = static_cast<size_t>(place.rectangle.area());
  const std::shared_ptr<Real[]> memory = std::make_shared_for_overwrite<Real[]>(count);
  set->tensors.push_back(
      {name, NDArray(kTypeOf<Real>, place.shape(), reinterpret_cast<std::byte*>(memory.get()), memory)});
  return absl::MakeSpan(memory.get(), count);
}

}  // namespace

template <typename Real>
StatePieces CopyOwnPieces(const ModelShape& model, const Mesh& mesh, ShardedState<Real>* own) {
  const bool is_sharded = own->plan().ranks() > 1;
  StatePieces pieces;
  pieces.writers = is_sharded ? mesh.shape().ranks() : mesh.shape().tensor;
  pieces.writer = mesh.world()->rank();
  if (!pieces.is_writer()) return pieces;
  const OwnPlaces places(model, mesh);
  const auto is_stored_here = [&](const ParameterInfo& parameter) {
    return mesh.tensor_rank() == 0 || !IsReplicated(parameter);
  };
  for (const PartState<Real>& state : own->PartStates()) {
    const OptimizerPart& part = own->parts()[static_cast<size_t>(state.part)];
    if (state.values.empty() || !is_stored_here(part.parameter)) continue;
    const bool is_master = std::string(state.name) == kMaster;
    const std::string name = is_master ? part.parameter.name : absl::StrCat(part.parameter.name, ".", state.name);
    const absl::Span<Real> to = AddPiece<Real>(name, places.Of(part), is_master ? &pieces.weights : &pieces.optimizer);
    std::copy(state.values.begin(), state.values.end(), to.begin());
  }
  for (const FrozenPart& frozen : own->frozen_parts()) {
    // Either each replica has rows of its own, or all have the same whole.
    const bool is_own = frozen.is_shard || mesh.data_rank() == 0;
    if (frozen.part.count == 0 || !is_own || !is_stored_here(frozen.part.parameter)) continue;
    own->LoadFrozen(frozen, AddPiece<Real>(frozen.part.parameter.name, places.Of(frozen.part), &pieces.weights));
  }
  return pieces;
}

template <typename Real>
absl::Status RestoreOwnPieces(const ModelShape& model, const Mesh& mesh, const PieceReader& reader, int64_t updates,
                              ShardedState<Real>* own) {
  if (reader.type() != kTypeOf<Real>) {
    return absl::InvalidArgumentError(
        absl::StrCat("the state is ", DTypeName(reader.type()), ", expected ", DTypeName(kTypeOf<Real>)));
  }
  const std::vector<PartState<Real>> states = own->PartStates();
  std::set<std::string> kinds;
  for (const PartState<Real>& state : states) kinds.insert(state.name);
  for (const std::string& kind : reader.array_kinds()) {
    if (kinds.count(kind) > 0 && kind != kMaster) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("the state has arrays '", kind,
                     "', which are not of this optimizer: it was made with another optimizer.name; use that one, or "
                     "begin a new run from the weights"));
  }
  const bool begins_anew = reader.array_kinds().empty() && kinds.size() > 1;
  if (begins_anew && updates > 0) {
    LEEWAY_LOG_WARNING("the state has no arrays of an optimizer, after {} updates: the optimizer begins anew", updates);
  }
  const OwnPlaces places(model, mesh);
  for (const PartState<Real>& state : states) {
    const OptimizerPart& part = own->parts()[static_cast<size_t>(state.part)];
    const bool is_master = std::string(state.name) == kMaster;
    const std::string name = is_master ? part.parameter.name : absl::StrCat(part.parameter.name, ".", state.name);
    if (!is_master && begins_anew) {
      std::fill(state.values.begin(), state.values.end(), Real(0));
    } else if (!reader.Contains(name)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the state lacks ", name, ": it was made with another optimizer.name or other frozen parameters"));
    } else if (!state.values.empty()) {
      reader.Read(name, places.Of(part).rectangle, state.values.data());
    }
  }
  std::vector<Real> values;
  for (const FrozenPart& frozen : own->frozen_parts()) {
    values.resize(static_cast<size_t>(frozen.part.count));
    reader.Read(frozen.part.parameter.name, places.Of(frozen.part).rectangle, values.data());
    own->StoreFrozen(frozen, values);
  }
  // An optimizer with arrays begins anew without them.
  own->set_updates(begins_anew ? 0 : updates);
  return own->SyncParameters();
}

template StatePieces CopyOwnPieces<float>(const ModelShape&, const Mesh&, ShardedState<float>*);
template StatePieces CopyOwnPieces<double>(const ModelShape&, const Mesh&, ShardedState<double>*);
template absl::Status RestoreOwnPieces<float>(const ModelShape&, const Mesh&, const PieceReader&, int64_t,
                                              ShardedState<float>*);
template absl::Status RestoreOwnPieces<double>(const ModelShape&, const Mesh&, const PieceReader&, int64_t,
                                               ShardedState<double>*);

}  // namespace leeway
