#include "trainer/parallel/sharded_optimizer.h"

#include <map>
#include <string>
#include <utility>

#include "base/status_macros.h"
#include "model/tensor_parallel.h"
#include "trainer/optimizer/adamw.h"
#include "trainer/optimizer/sgd.h"

namespace leeway {

std::vector<SharedMatrix> PlaceMatrices(const ModelShape& model, int tensor_parts, int data_parts,
                                        absl::Span<const OptimizerPart> parts) {
  const std::vector<ParameterInfo> layout = ParameterLayout(model);
  std::map<std::string, size_t> index;
  for (size_t p = 0; p < layout.size(); ++p) index[layout[p].name] = p;
  std::vector<std::vector<ShardSlice>> slices;
  for (int t = 0; t < tensor_parts; ++t) slices.push_back(TensorShardSlices(model, t, tensor_parts));

  std::vector<SharedMatrix> matrices;
  for (size_t p = 0; p < parts.size(); ++p) {
    if (!IsHiddenMatrix(parts[p].parameter)) continue;
    const auto found = index.find(parts[p].parameter.name);
    LEEWAY_CHECK(found != index.end()) << parts[p].parameter.name;
    const ParameterInfo& whole = layout[found->second];
    SharedMatrix matrix{static_cast<int64_t>(p), whole.shape[0], whole.shape[1], {}};
    for (int d = 0; d < data_parts; ++d) {
      for (int t = 0; t < tensor_parts; ++t) {
        const ShardSlice& slice = slices[static_cast<size_t>(t)][found->second];
        const int64_t begin = slice.rows * d / data_parts;
        const int64_t end = slice.rows * (d + 1) / data_parts;
        const int64_t into = slice.whole_offset - whole.offset;
        matrix.held.push_back({into / whole.shape[1] + begin, end - begin, into % whole.shape[1], slice.columns});
      }
    }
    matrices.push_back(std::move(matrix));
  }
  return matrices;
}

template <typename Real>
std::unique_ptr<Optimizer<Real>> MakeShardedOptimizer(const OptimizerOptions& options, const ModelShape& model,
                                                      const Mesh& mesh, bool state_is_sharded,
                                                      absl::Span<const OptimizerPart> parts, ParallelFor* parallel) {
  if (options.kind == OptimizerKind::kAdamW) return std::make_unique<BasicAdamW<Real>>(options, parts, parallel);
  if (options.kind == OptimizerKind::kSgd) return std::make_unique<Sgd<Real>>(options, parts);
  // Replicas with the whole state do the same work each, within their tensor-parallel group.
  Communicator* const group = state_is_sharded ? mesh.world() : mesh.tensor();
  return std::make_unique<Muon<Real>>(
      options, parts, PlaceMatrices(model, mesh.shape().tensor, state_is_sharded ? mesh.shape().data : 1, parts), group,
      parallel);
}

template std::unique_ptr<Optimizer<float>> MakeShardedOptimizer(const OptimizerOptions&, const ModelShape&, const Mesh&,
                                                                bool, absl::Span<const OptimizerPart>, ParallelFor*);
template std::unique_ptr<Optimizer<double>> MakeShardedOptimizer(const OptimizerOptions&, const ModelShape&,
                                                                 const Mesh&, bool, absl::Span<const OptimizerPart>,
                                                                 ParallelFor*);

}  // namespace leeway
