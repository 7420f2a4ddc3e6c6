#include "trainer/optimizer/newton_schulz.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/types/span.h"
#include "model/instruction_set.h"
#include "model/kernels/buffer.h"
#include "model/kernels/kernels.h"
#include "model/kernels/packed_matrix.h"
#include "trainer/optimizer/global_norm.h"

namespace leeway {
namespace {

using internal::Buffer;
using internal::PackedMatrix;

constexpr int kSteps = 5;
constexpr double kLinear = 3.4445;
constexpr double kCubic = -4.7750;
constexpr double kQuintic = 2.0315;
constexpr double kSmallestNorm = 1e-7;
// Rows of a product below which a second thread costs more than it saves.
constexpr int64_t kMinimumRows = 8;

// Rows padded with zeros to whole panels, as the kernels want them.
template <typename Real>
struct PaddedRows {
  PaddedRows(int64_t row_count, int64_t column_count)
      : rows(row_count), columns(column_count), stride(internal::RoundUpToPanel(column_count)) {
    values.Reserve(rows * stride);
  }
  Real* row(int64_t r) { return values.data() + r * stride; }

  const int64_t rows;
  const int64_t columns;
  const int64_t stride;
  Buffer<Real> values;
};

// y = x * weights^T
template <typename Real>
void Multiply(PaddedRows<Real>* x, const PackedMatrix<Real>& weights, PaddedRows<Real>* y, ParallelFor* parallel) {
  const internal::Kernels<Real>& kernels = internal::KernelsFor<Real>(ActiveInstructionSet());
  parallel->Run(x->rows, kMinimumRows, [&](int64_t begin, int64_t end) {
    kernels.product(x->row(begin), x->stride, end - begin, weights.data(), weights.depth(), /*k_blocks=*/1, 0,
                    weights.panels(), y->row(begin), y->stride);
  });
}

template <typename Real>
void Pack(PaddedRows<Real>* x, PackedMatrix<Real>* packed, ParallelFor* parallel) {
  parallel->Run(packed->panels(), 1, [&](int64_t begin, int64_t end) {
    const int64_t first = begin * internal::kPanel;
    const int64_t last = std::min(end * internal::kPanel, x->rows);
    packed->SetBlock(first, 0, x->row(first), x->stride, last - first, x->columns);
  });
}

}  // namespace

template <typename Real>
void Orthogonalise(int64_t rows, int64_t columns, Real* matrix, ParallelFor* parallel) {
  const bool is_transposed = rows > columns;
  const int64_t n = std::min(rows, columns);
  const int64_t m = std::max(rows, columns);
  const int64_t count = rows * columns;
  if (count == 0) return;
  const double norm = std::sqrt(SumOfSquares(absl::MakeConstSpan(matrix, static_cast<size_t>(count)), parallel));
  const Real scale = static_cast<Real>(1.0 / std::max(norm, kSmallestNorm));

  PaddedRows<Real> x(n, m), product(n, m), gram(n, n), polynomial(n, n);
  PackedMatrix<Real> packed_x(n, m), packed_gram(n, n);
  PackedMatrix<Real> transposed_x(m, internal::RoundUpToPanel(n));
  const int64_t row_step = is_transposed ? 1 : columns;
  const int64_t column_step = is_transposed ? columns : 1;
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < m; ++j) x.row(i)[j] = matrix[i * row_step + j * column_step] * scale;
  }
  for (int step = 0; step < kSteps; ++step) {
    Pack(&x, &packed_x, parallel);
    Multiply(&x, packed_x, &gram, parallel);
    Pack(&gram, &packed_gram, parallel);
    // The Gram matrix is symmetric, so times its transpose is its square.
    Multiply(&gram, packed_gram, &polynomial, parallel);
    for (int64_t i = 0; i < n * gram.stride; ++i) {
      Real* const to = polynomial.row(0) + i;
      *to = static_cast<Real>(kCubic) * gram.row(0)[i] + static_cast<Real>(kQuintic) * *to;
    }
    transposed_x.SetTransposed(packed_x, parallel);
    Multiply(&polynomial, transposed_x, &product, parallel);
    for (int64_t i = 0; i < n * x.stride; ++i) {
      x.row(0)[i] = static_cast<Real>(kLinear) * x.row(0)[i] + product.row(0)[i];
    }
  }
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < m; ++j) matrix[i * row_step + j * column_step] = x.row(i)[j];
  }
}

double OrthogonaliseCost(int64_t rows, int64_t columns) {
  const double n = static_cast<double>(std::min(rows, columns));
  const double m = static_cast<double>(std::max(rows, columns));
  return kSteps * (2 * n * n * m + n * n * n);
}

template void Orthogonalise(int64_t rows, int64_t columns, float* matrix, ParallelFor* parallel);
template void Orthogonalise(int64_t rows, int64_t columns, double* matrix, ParallelFor* parallel);

}  // namespace leeway
