#include "trainer/checkpoint/state_gathering.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/failpoint.h"
#include "base/status_macros.h"
#include "model/tensor_parallel.h"
#include "trainer/optimizer/element_storage.h"

namespace leeway {
namespace {

constexpr char kMaster[] = "master";

// Where a rank's part of one array lies in the whole parameter.
struct Rectangle {
  int64_t parameter = 0;  // index into the whole layout
  int64_t offset = 0;     // of its first element in the parameter
  int64_t stride = 0;     // elements between two rows of the parameter
  int64_t rows = 0;
  int64_t columns = 0;
};

// The rectangles of `parts`, in their order.
std::vector<Rectangle> RectanglesOf(const ModelShape& model, const Mesh& mesh,
                                    const std::vector<OptimizerPart>& parts) {
  const std::vector<ParameterInfo> layout = ParameterLayout(model);
  const std::vector<ShardSlice> slices = TensorShardSlices(model, mesh.tensor_rank(), mesh.shape().tensor);
  std::map<std::string, int64_t> index_of;
  for (size_t i = 0; i < layout.size(); ++i) index_of[layout[i].name] = static_cast<int64_t>(i);
  std::vector<Rectangle> rectangles;
  for (const OptimizerPart& part : parts) {
    const int64_t index = index_of.at(part.parameter.name);
    const ShardSlice& slice = slices[index];
    rectangles.push_back({index, slice.whole_offset - layout[index].offset + part.first_row * slice.whole_stride,
                          slice.whole_stride, part.count / slice.columns, slice.columns});
  }
  return rectangles;
}

template <typename Real>
void CopyOut(const Rectangle& place, const Real* parameter, Real* part) {
  for (int64_t row = 0; row < place.rows; ++row) {
    std::copy_n(parameter + place.offset + row * place.stride, place.columns, part + row * place.columns);
  }
}

template <typename Real>
void CopyIn(const Rectangle& place, const Real* part, Real* parameter) {
  for (int64_t row = 0; row < place.rows; ++row) {
    std::copy_n(part + row * place.columns, place.columns, parameter + place.offset + row * place.stride);
  }
}

std::string ArrayName(const ParameterInfo& parameter, absl::string_view array) {
  return absl::StrCat(parameter.name, ".", array);
}

// One rank's contribution, as it travels: five numbers a piece, the arrays' names, and all values.
template <typename Real>
struct Contribution {
  std::vector<int64_t> places;  // {parameter, offset, stride, rows, columns} a piece
  std::string arrays;           // the pieces' array names, each behind a newline
  std::vector<Real> values;
};

template <typename Real>
Contribution<Real> OwnContribution(const ModelShape& model, const Mesh& mesh, ShardedState<Real>* own) {
  Contribution<Real> contribution;
  // Replicas hold the same bits: the first one's count.
  const bool is_replica = own->plan().ranks() == 1 && mesh.data_rank() > 0;
  if (is_replica) return contribution;
  const std::vector<OptimizerPart>& parts = own->parts();
  const std::vector<Rectangle> rectangles = RectanglesOf(model, mesh, parts);
  for (const PartState<Real>& state : own->PartStates()) {
    if (mesh.tensor_rank() > 0 && IsReplicated(parts[state.part].parameter)) continue;
    if (state.values.empty()) continue;
    const Rectangle& place = rectangles[state.part];
    contribution.places.insert(contribution.places.end(),
                               {place.parameter, place.offset, place.stride, place.rows, place.columns});
    absl::StrAppend(&contribution.arrays, "\n", state.name);
    contribution.values.insert(contribution.values.end(), state.values.begin(), state.values.end());
  }
  return contribution;
}

template <typename Real>
void Take(const std::vector<ParameterInfo>& layout, const Contribution<Real>& contribution,
          BasicTrainingState<Real>* whole) {
  const Real* values = contribution.values.data();
  size_t name_begin = 0;
  for (size_t i = 0; i < contribution.places.size(); i += 5) {
    const int64_t* const p = &contribution.places[i];
    const Rectangle place{p[0], p[1], p[2], p[3], p[4]};
    const size_t name_end = std::min(contribution.arrays.find('\n', name_begin + 1), contribution.arrays.size());
    const std::string array = contribution.arrays.substr(name_begin + 1, name_end - name_begin - 1);
    name_begin = name_end;
    const ParameterInfo& parameter = layout[place.parameter];
    Real* to = whole->parameters.data() + parameter.offset;
    if (array != kMaster) {
      std::vector<Real>& values_of_array = whole->optimizer[ArrayName(parameter, array)];
      values_of_array.resize(static_cast<size_t>(parameter.element_count));
      to = values_of_array.data();
    }
    CopyIn(place, values, to);
    values += place.rows * place.columns;
  }
}

}  // namespace

template <typename Real>
absl::Status SetOwnState(const ModelShape& model, const Mesh& mesh, const BasicTrainingState<Real>& whole,
                         ShardedState<Real>* own) {
  const std::vector<ParameterInfo> layout = ParameterLayout(model);
  const std::vector<OptimizerPart>& parts = own->parts();
  const std::vector<PartState<Real>> states = own->PartStates();
  std::set<std::string> arrays;
  for (const PartState<Real>& state : states) arrays.insert(state.name);
  for (const auto& [name, values] : whole.optimizer) {
    const std::string array = name.substr(name.rfind('.') + 1);
    if (arrays.count(array) == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("the state has ", name,
                       ", which is not of this optimizer: it was made with another "
                       "optimizer.name; use that one, or begin a new run from the weights"));
    }
  }
  const std::vector<Rectangle> rectangles = RectanglesOf(model, mesh, parts);
  for (const PartState<Real>& state : states) {
    if (std::string(state.name) == kMaster) continue;
    const ParameterInfo& parameter = layout[rectangles[state.part].parameter];
    const auto found = whole.optimizer.find(ArrayName(parameter, state.name));
    if (whole.optimizer.empty()) {
      std::fill(state.values.begin(), state.values.end(), Real(0));
    } else if (found == whole.optimizer.end() ||
               static_cast<int64_t>(found->second.size()) != parameter.element_count) {
      return absl::InvalidArgumentError(absl::StrCat("the state lacks ", ArrayName(parameter, state.name),
                                                     ", or has it in another size: it was made with another "
                                                     "optimizer.name or other frozen parameters"));
    } else {
      CopyOut(rectangles[state.part], found->second.data(), state.values.data());
    }
  }
  // What has arrays begins anew without them.
  own->set_updates(whole.optimizer.empty() && arrays.size() > 1 ? 0 : whole.updates);
  std::vector<Real> shard(TensorShard(model, mesh.tensor_rank(), mesh.shape().tensor).ParameterCount());
  CopyToShard<Real>(TensorShardSlices(model, mesh.tensor_rank(), mesh.shape().tensor), whole.parameters,
                    absl::MakeSpan(shard));
  own->SetParameters(shard);
  return absl::OkStatus();
}

template <typename Real>
absl::Status GatherWholeParameters(const ModelShape& model, const Mesh& mesh, ShardedState<Real>* own,
                                   std::vector<Real>* whole) {
  const int tensor = mesh.shape().tensor;
  const bool is_first = mesh.world()->rank() == 0;
  if (is_first) whole->resize(static_cast<size_t>(model.ParameterCount()));
  // Of each tensor-parallel rank: where its units lie, and what they are in the whole.
  std::vector<std::vector<ParameterUnit>> units;
  std::vector<std::vector<ShardSlice>> slices;
  for (int rank = 0; rank < tensor; ++rank) {
    units.push_back(ParameterUnits(TensorShard(model, rank, tensor)));
    slices.push_back(TensorShardSlices(model, rank, tensor));
  }
  const int64_t count = static_cast<int64_t>(units[0].size());
  std::vector<Real> received;
  for (int64_t u = 0; u < count; ++u) {
    // All ranks gather; the first replica hands over.
    LEEWAY_ASSIGN_OR_RETURN(const absl::Span<const Real> values, own->Acquire(u, u + 1 < count ? u + 1 : -1));
    if (mesh.data_rank() > 0) continue;
    if (!is_first) {
      LEEWAY_RETURN_IF_ERROR(mesh.tensor()->Send(kTypeOf<Real>, values.data(), static_cast<int64_t>(values.size()), 0));
      continue;
    }
    for (int rank = 0; rank < tensor; ++rank) {
      const ParameterUnit& unit = units[rank][u];
      const Real* from = values.data();
      if (rank > 0) {
        received.resize(static_cast<size_t>(unit.element_count()));
        LEEWAY_RETURN_IF_ERROR(mesh.tensor()->Receive(kTypeOf<Real>, received.data(), unit.element_count(), rank));
        from = received.data();
      }
      for (ShardSlice slice : slices[rank]) {
        if (slice.shard_offset < unit.begin || slice.shard_offset >= unit.end) continue;
        slice.shard_offset -= unit.begin;
        CopyFromShard<Real>({slice}, absl::MakeConstSpan(from, static_cast<size_t>(unit.element_count())),
                            absl::MakeSpan(*whole));
      }
    }
  }
  return absl::OkStatus();
}

template <typename Real>
absl::StatusOr<BasicTrainingState<Real>> GatherWholeState(const ModelShape& model, const Mesh& mesh,
                                                          ShardedState<Real>* own) {
  BasicTrainingState<Real> whole;
  // Frozen parameters have no master.
  LEEWAY_RETURN_IF_ERROR(GatherWholeParameters(model, mesh, own, &whole.parameters));
  Contribution<Real> contribution = OwnContribution(model, mesh, own);
  Communicator* const world = mesh.world();
  LEEWAY_FAILPOINT("trainer_in_gathering");
  // A turn a rank, all of them waiting for its end: a wait is as long as one rank's part takes.
  const auto end_turns = [world](int begin, int end) -> absl::Status {
    for (int turn = begin; turn < end; ++turn) LEEWAY_RETURN_IF_ERROR(world->Barrier());
    return absl::OkStatus();
  };
  if (world->rank() > 0) {
    LEEWAY_RETURN_IF_ERROR(end_turns(1, world->rank()));
    const int64_t sizes[] = {static_cast<int64_t>(contribution.places.size()),
                             static_cast<int64_t>(contribution.arrays.size()),
                             static_cast<int64_t>(contribution.values.size())};
    LEEWAY_RETURN_IF_ERROR(world->Send(DType::kI64, sizes, 3, 0));
    LEEWAY_RETURN_IF_ERROR(world->Send(DType::kI64, contribution.places.data(), sizes[0], 0));
    LEEWAY_RETURN_IF_ERROR(world->Send(DType::kU8, contribution.arrays.data(), sizes[1], 0));
    LEEWAY_RETURN_IF_ERROR(world->Send(kTypeOf<Real>, contribution.values.data(), sizes[2], 0));
    LEEWAY_RETURN_IF_ERROR(end_turns(world->rank(), world->size()));
    LEEWAY_FAILPOINT("trainer_after_gathering");
    return BasicTrainingState<Real>();
  }
  const std::vector<ParameterInfo> layout = ParameterLayout(model);
  whole.updates = own->updates();
  Take(layout, contribution, &whole);
  for (int rank = 1; rank < world->size(); ++rank) {
    int64_t sizes[3];
    LEEWAY_RETURN_IF_ERROR(world->Receive(DType::kI64, sizes, 3, rank));
    contribution.places.resize(static_cast<size_t>(sizes[0]));
    contribution.arrays.resize(static_cast<size_t>(sizes[1]));
    contribution.values.resize(static_cast<size_t>(sizes[2]));
    LEEWAY_RETURN_IF_ERROR(world->Receive(DType::kI64, contribution.places.data(), sizes[0], rank));
    LEEWAY_RETURN_IF_ERROR(world->Receive(DType::kU8, contribution.arrays.data(), sizes[1], rank));
    LEEWAY_RETURN_IF_ERROR(world->Receive(kTypeOf<Real>, contribution.values.data(), sizes[2], rank));
    Take(layout, contribution, &whole);
    LEEWAY_RETURN_IF_ERROR(end_turns(rank, rank + 1));
  }
  LEEWAY_FAILPOINT("trainer_after_gathering");
  return whole;
}

template absl::Status SetOwnState<float>(const ModelShape&, const Mesh&, const BasicTrainingState<float>&,
                                         ShardedState<float>*);
template absl::Status SetOwnState<double>(const ModelShape&, const Mesh&, const BasicTrainingState<double>&,
                                          ShardedState<double>*);
template absl::Status GatherWholeParameters<float>(const ModelShape&, const Mesh&, ShardedState<float>*,
                                                   std::vector<float>*);
template absl::Status GatherWholeParameters<double>(const ModelShape&, const Mesh&, ShardedState<double>*,
                                                    std::vector<double>*);
template absl::StatusOr<BasicTrainingState<float>> GatherWholeState<float>(const ModelShape&, const Mesh&,
                                                                           ShardedState<float>*);
template absl::StatusOr<BasicTrainingState<double>> GatherWholeState<double>(const ModelShape&, const Mesh&,
                                                                             ShardedState<double>*);

}  // namespace leeway
