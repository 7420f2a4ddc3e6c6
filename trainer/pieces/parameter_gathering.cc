#include "trainer/pieces/parameter_gathering.h"

#include "base/status_macros.h"
#include "model/tensor_parallel.h"
#include "trainer/optimizer/element_storage.h"

namespace leeway {

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
  std::vector<Real> received, widened;
  for (int64_t u = 0; u < count; ++u) {
    // All ranks gather; the first replica hands over.
    LEEWAY_ASSIGN_OR_RETURN(const WeightSpan<Real> acquired, own->Acquire(u, u + 1 < count ? u + 1 : -1));
    if (mesh.data_rank() > 0) continue;
    absl::Span<const Real> values(acquired.reals(), static_cast<size_t>(acquired.size()));
    if (acquired.is_bf16()) {
      widened.resize(values.size());
      acquired.CopyTo(WeightFormat::kReal, widened.data());
      values = widened;
    }
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

template absl::Status GatherWholeParameters<float>(const ModelShape&, const Mesh&, ShardedState<float>*,
                                                   std::vector<float>*);
template absl::Status GatherWholeParameters<double>(const ModelShape&, const Mesh&, ShardedState<double>*,
                                                    std::vector<double>*);

}  // namespace leeway
