#include "trainer/optimizer/muon.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <type_traits>
#include <utility>

#include "absl/strings/match.h"
#include "base/status_macros.h"
#include "trainer/optimizer/newton_schulz.h"

namespace leeway {
namespace {

constexpr int64_t kMinimumPerThread = 16'384;

// AdamW keeps nothing for the matrices.
std::vector<OptimizerPart> WithoutMatrices(absl::Span<const OptimizerPart> parts) {
  std::vector<OptimizerPart> left(parts.begin(), parts.end());
  for (OptimizerPart& part : left) {
    if (IsHiddenMatrix(part.parameter)) part.count = 0;
  }
  return left;
}

}  // namespace

bool IsHiddenMatrix(const ParameterInfo& parameter) {
  return parameter.shape.size() == 2 && absl::StrContains(parameter.name, ".layers.");
}

int64_t OptimizerStateElements(OptimizerKind kind, absl::Span<const OptimizerPart> parts) {
  if (kind == OptimizerKind::kSgd) return 0;
  int64_t elements = 0;
  for (const OptimizerPart& part : parts) {
    elements += part.count * (kind == OptimizerKind::kMuon && IsHiddenMatrix(part.parameter) ? 1 : 2);
  }
  return elements;
}

template <typename Real>
Muon<Real>::Muon(const OptimizerOptions& options, absl::Span<const OptimizerPart> parts,
                 std::vector<SharedMatrix> matrices, Communicator* group, ParallelFor* parallel)
    : options_(options),
      group_(group),
      parallel_(parallel),
      parts_(parts.begin(), parts.end()),
      matrices_(std::move(matrices)),
      matrix_of_part_(parts.size(), -1),
      momentum_offsets_(parts.size(), 0),
      adamw_(options, WithoutMatrices(parts), parallel) {
  int64_t total = 0;
  for (size_t m = 0; m < matrices_.size(); ++m) {
    const size_t part = static_cast<size_t>(matrices_[m].part);
    LEEWAY_CHECK(static_cast<int>(matrices_[m].held.size()) == size()) << parts_[part].parameter.name;
    LEEWAY_CHECK(matrices_[m].held[static_cast<size_t>(rank())].count() == parts_[part].count)
        << parts_[part].parameter.name;
    matrix_of_part_[part] = static_cast<int64_t>(m);
    momentum_offsets_[part] = total;
    total += parts_[part].count;
  }
  for (size_t p = 0; p < parts_.size(); ++p) {
    LEEWAY_CHECK((matrix_of_part_[p] >= 0) == IsHiddenMatrix(parts_[p].parameter)) << parts_[p].parameter.name;
  }
  momentum_.assign(static_cast<size_t>(total), Real{0});
}

template <typename Real>
void Muon<Real>::Begin(double learning_rate, double gradient_scale) {
  learning_rate_ = learning_rate;
  gradient_scale_ = gradient_scale;
  adamw_.Begin(learning_rate, gradient_scale);
}

template <typename Real>
void Muon<Real>::ChooseOwners(std::vector<Item>* items) const {
  std::vector<size_t> order(items->size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto cost = [&](size_t i) { return OrthogonaliseCost((*items)[i].matrix->rows, (*items)[i].matrix->columns); };
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return cost(a) > cost(b); });
  std::vector<double> load(static_cast<size_t>(size()), 0.0);
  for (const size_t i : order) {
    const auto least = std::min_element(load.begin(), load.end());
    (*items)[i].owner = static_cast<int>(least - load.begin());
    *least += cost(i);
  }
  std::stable_sort(items->begin(), items->end(), [](const Item& a, const Item& b) { return a.owner < b.owner; });
}

template <typename Real>
void Muon<Real>::AdvanceMomentum(const Item& item, Real* direction) {
  const size_t part = static_cast<size_t>(item.update.part);
  Real* const momentum = momentum_.data() + momentum_offsets_[part];
  const Real beta = static_cast<Real>(options_.momentum);
  const Real scale = static_cast<Real>(gradient_scale_);
  parallel_->Run(parts_[part].count, kMinimumPerThread, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const Real gradient = item.update.gradients[i] * scale;
      momentum[i] = beta * momentum[i] + gradient;
      direction[i] = gradient + beta * momentum[i];
    }
  });
}

// `pieces`: what rank 0 sent of every owned matrix, then rank 1, ...; replaced by the updates.
template <typename Real>
void Muon<Real>::OrthogonaliseOwned(absl::Span<const Item> items, absl::Span<const int64_t> receive_counts,
                                    Real* pieces) const {
  std::vector<int64_t> places(receive_counts.size(), 0);
  for (size_t r = 1; r < places.size(); ++r) places[r] = places[r - 1] + receive_counts[r - 1];
  std::vector<Real> whole;
  for (const Item& item : items) {
    if (item.owner != rank()) continue;
    const SharedMatrix& matrix = *item.matrix;
    whole.resize(static_cast<size_t>(matrix.rows * matrix.columns));
    const auto for_rows = [&](const auto& fn) {
      for (size_t r = 0; r < matrix.held.size(); ++r) {
        const MatrixRange& range = matrix.held[r];
        for (int64_t row = 0; row < range.rows; ++row) {
          fn(whole.data() + (range.row_begin + row) * matrix.columns + range.column_begin,
             pieces + places[r] + row * range.columns, range.columns);
        }
      }
    };
    for_rows([](Real* into, Real* piece, int64_t columns) { std::copy_n(piece, columns, into); });
    Orthogonalise(matrix.rows, matrix.columns, whole.data(), parallel_);
    for_rows([](Real* from, Real* piece, int64_t columns) { std::copy_n(from, columns, piece); });
    for (size_t r = 0; r < places.size(); ++r) places[r] += matrix.held[r].count();
  }
}

template <typename Real>
absl::Status Muon<Real>::Exchange(const std::vector<Real>& input, absl::Span<const int64_t> send_counts,
                                  absl::Span<const int64_t> receive_counts, std::vector<Real>* output) const {
  const DType type = std::is_same_v<Real, float> ? DType::kF32 : DType::kF64;
  return group_->AllToAll(type, input.data(), send_counts, output->data(), receive_counts);
}

template <typename Real>
absl::Status Muon<Real>::Update(absl::Span<const PartUpdate<Real>> parts) {
  std::vector<Item> items;
  std::vector<PartUpdate<Real>> others;
  for (const PartUpdate<Real>& update : parts) {
    const int64_t matrix = matrix_of_part_[static_cast<size_t>(update.part)];
    if (matrix < 0) {
      others.push_back(update);
    } else {
      items.push_back({&matrices_[static_cast<size_t>(matrix)], update});
    }
  }
  LEEWAY_RETURN_IF_ERROR(adamw_.Update(others));
  if (items.empty()) return absl::OkStatus();

  ChooseOwners(&items);
  std::vector<int64_t> send_counts(static_cast<size_t>(size()), 0), receive_counts = send_counts;
  for (const Item& item : items) {
    send_counts[static_cast<size_t>(item.owner)] += parts_[static_cast<size_t>(item.update.part)].count;
    if (item.owner != rank()) continue;
    for (size_t r = 0; r < receive_counts.size(); ++r) receive_counts[r] += item.matrix->held[r].count();
  }
  const auto sum = [](const std::vector<int64_t>& counts) {
    return static_cast<size_t>(std::accumulate(counts.begin(), counts.end(), int64_t{0}));
  };
  std::vector<Real> own(sum(send_counts));
  Real* place = own.data();
  for (const Item& item : items) {
    AdvanceMomentum(item, place);
    place += parts_[static_cast<size_t>(item.update.part)].count;
  }
  if (size() == 1) {
    OrthogonaliseOwned(items, receive_counts, own.data());
  } else {
    std::vector<Real> pieces(sum(receive_counts));
    LEEWAY_RETURN_IF_ERROR(Exchange(own, send_counts, receive_counts, &pieces));
    OrthogonaliseOwned(items, receive_counts, pieces.data());
    LEEWAY_RETURN_IF_ERROR(Exchange(pieces, receive_counts, send_counts, &own));
  }

  const Real keep = static_cast<Real>(1.0 - learning_rate_ * options_.weight_decay);
  place = own.data();
  for (const Item& item : items) {
    const double longest = static_cast<double>(std::max(item.matrix->rows, item.matrix->columns));
    const Real step = static_cast<Real>(learning_rate_ * 0.2 * std::sqrt(longest));
    const int64_t count = parts_[static_cast<size_t>(item.update.part)].count;
    for (int64_t i = 0; i < count; ++i) item.update.values[i] = item.update.values[i] * keep - step * place[i];
    place += count;
  }
  return absl::OkStatus();
}

template <typename Real>
std::vector<PartState<Real>> Muon<Real>::PartStates() {
  std::vector<PartState<Real>> states;
  for (size_t p = 0; p < parts_.size(); ++p) {
    if (matrix_of_part_[p] < 0) continue;
    states.push_back({"momentum", static_cast<int64_t>(p),
                      absl::MakeSpan(momentum_).subspan(static_cast<size_t>(momentum_offsets_[p]),
                                                        static_cast<size_t>(parts_[p].count))});
  }
  for (const PartState<Real>& state : adamw_.PartStates()) {
    if (matrix_of_part_[static_cast<size_t>(state.part)] < 0) states.push_back(state);
  }
  return states;
}

template <typename Real>
int64_t Muon<Real>::state_bytes() const {
  return adamw_.state_bytes() + static_cast<int64_t>(momentum_.size() * sizeof(Real));
}

template class Muon<float>;
template class Muon<double>;

}  // namespace leeway
