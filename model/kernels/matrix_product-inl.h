// Sums of outer products. Included by kernels-inl.h.

#ifndef LEEWAY_MODEL_KERNELS_MATRIX_PRODUCT_INL_H_
#define LEEWAY_MODEL_KERNELS_MATRIX_PRODUCT_INL_H_

#include "model/kernels/product-inl.h"
#include "model/kernels/vector-inl.h"

namespace leeway::internal {
namespace LEEWAY_KERNEL_NAMESPACE {

template <typename Real>
int64_t MultiplyAddChains(int64_t steps, Real* sink) {
  using R = Register<Real>;
  using Type = typename R::Type;
  // Enough to hide the latency of two units, and no more than there are registers.
  constexpr int kChains = kSumRegisters < 12 ? kSumRegisters : 12;
  Type chain[kChains];
  LEEWAY_UNROLL for (int c = 0; c < kChains; ++c) chain[c] = R::Set1(static_cast<Real>(c + 1));
  const Type factor = R::Set1(static_cast<Real>(0.999));
  const Type added = R::Set1(static_cast<Real>(0.001));
  for (int64_t step = 0; step < steps; ++step) {
    LEEWAY_UNROLL for (int c = 0; c < kChains; ++c) chain[c] = R::Fma(chain[c], factor, added);
  }
  Type sum = chain[0];
  LEEWAY_UNROLL for (int c = 1; c < kChains; ++c) sum = sum + chain[c];
  __builtin_memcpy(sink, &sum, sizeof(Real));
  return steps * kChains * static_cast<int64_t>(sizeof(Type) / sizeof(Real)) * 2;
}

// Rows in one chain of an outer product: short enough that the tiles below stay in the first-level cache.
constexpr int64_t kChain = 128;
// Columns of a that are copied at once: a multiple of every table's tile height.
constexpr int64_t kOuterBlock = 168;

// Of one chain: sum[kRows][columns] += a' b, both copied so that a step is one line or two of each: as they lie, a
// row's values would come from lines that compete for the same places in the cache. a: [rows][kRows], b: [rows][16 *
// kPanels].
template <typename Real, int kRows, int kPanels>
void OuterTile(const Real* a, const Real* b, int64_t rows, Real* sum, int64_t sum_stride, int64_t columns) {
  using R = Register<Real>;
  using Type = typename R::Type;
  constexpr int kParts = Vec<Real>::kParts;
  constexpr int kWidth = Vec<Real>::kWidth;
  constexpr int kColumns = kPanels * kParts;
  // They may come from far away; the chain gives them the time.
  LEEWAY_UNROLL for (int r = 0; r < kRows; ++r) {
    LEEWAY_UNROLL for (int p = 0; p < kPanels; ++p) __builtin_prefetch(sum + r * sum_stride + p * kLanes, 1);
  }
  Type total[kRows][kColumns];
  LEEWAY_UNROLL for (int r = 0; r < kRows; ++r) {
    LEEWAY_UNROLL for (int c = 0; c < kColumns; ++c) total[r][c] = Type{};
  }
  for (int64_t m = 0; m < rows; ++m) {
    Type right[kColumns];
    LEEWAY_UNROLL for (int c = 0; c < kColumns; ++c) __builtin_memcpy(&right[c], b + c * kWidth, sizeof(Type));
    LEEWAY_UNROLL for (int r = 0; r < kRows; ++r) {
      const Type left = R::Set1(a[r]);
      LEEWAY_UNROLL for (int c = 0; c < kColumns; ++c) total[r][c] = R::Fma(left, right[c], total[r][c]);
    }
    a += kRows;
    b += kPanels * kLanes;
  }
  if (columns >= kPanels * kLanes) {
    LEEWAY_UNROLL for (int r = 0; r < kRows; ++r) {
      LEEWAY_UNROLL for (int c = 0; c < kColumns; ++c) {
        Type old;
        __builtin_memcpy(&old, sum + r * sum_stride + c * kWidth, sizeof(Type));
        old = old + total[r][c];
        __builtin_memcpy(sum + r * sum_stride + c * kWidth, &old, sizeof(Type));
      }
    }
    return;
  }
  alignas(64) Real staged[kRows][kPanels * kLanes];
  LEEWAY_UNROLL for (int r = 0; r < kRows; ++r) {
    LEEWAY_UNROLL for (int c = 0; c < kColumns; ++c)
        __builtin_memcpy(&staged[r][c * kWidth], &total[r][c], sizeof(Type));
  }
  for (int r = 0; r < kRows; ++r) {
    for (int64_t j = 0; j < columns; ++j) sum[r * sum_stride + j] += staged[r][j];
  }
}

// to[m][r] = a[m][r]
template <typename Real, int kRows>
void CopyColumns(const Real* a, int64_t a_stride, int64_t rows, Real* to) {
  for (int64_t m = 0; m < rows; ++m) __builtin_memcpy(to + m * kRows, a + m * a_stride, kRows * sizeof(Real));
}

// What a tile of some height is done with.
template <typename Real>
struct OuterFunctions {
  void (*copy)(const Real* a, int64_t a_stride, int64_t rows, Real* to);
  void (*add)(const Real* a, const Real* b, int64_t rows, Real* sum, int64_t sum_stride, int64_t columns);
};

template <typename Real, int kRows, int kPanels>
OuterFunctions<Real> OuterFunctionsFor(int64_t rows) {
  if constexpr (kRows > 1) {
    if (rows < kRows) return OuterFunctionsFor<Real, kRows - 1, kPanels>(rows);
  }
  return {&CopyColumns<Real, kRows>, &OuterTile<Real, kRows, kPanels>};
}

template <typename Real>
void OuterProduct(const Real* a, int64_t a_stride, const Real* b, int64_t b_stride, int64_t rows, int64_t i_begin,
                  int64_t i_end, int64_t columns, Real* sum, int64_t sum_stride) {
  constexpr int64_t kMaxRows = MaxTileRows<Real>();
  constexpr int kPanels = TilePanels<Real>(static_cast<int>(kMaxRows));
  constexpr int64_t kTileColumns = kPanels * kLanes;
  alignas(64) Real a_copy[kChain * kOuterBlock];  // [tile][row][height]
  alignas(64) Real b_copy[kChain * kTileColumns];
  for (int64_t block = i_begin; block < i_end; block += kOuterBlock) {
    const int64_t block_end = i_end - block < kOuterBlock ? i_end : block + kOuterBlock;
    // Tiles of nearly equal height.
    const int64_t tiles = (block_end - block + kMaxRows - 1) / kMaxRows;
    const auto tile_begin = [&](int64_t tile) LEEWAY_LAMBDA { return block + (block_end - block) * tile / tiles; };
    const auto functions = [&](int64_t tile) LEEWAY_LAMBDA {
      return OuterFunctionsFor<Real, static_cast<int>(kMaxRows), kPanels>(tile_begin(tile + 1) - tile_begin(tile));
    };
    for (int64_t begin = 0; begin < rows; begin += kChain) {
      const int64_t chain = rows - begin < kChain ? rows - begin : kChain;
      const Real* const a_rows = a + begin * a_stride;
      for (int64_t tile = 0; tile < tiles; ++tile) {
        const int64_t first = tile_begin(tile);
        functions(tile).copy(a_rows + first, a_stride, chain, a_copy + (first - block) * kChain);
      }
      for (int64_t column = 0; column < columns; column += kTileColumns) {
        // The last panels may be partial, or missing: b is readable up to a multiple of 16 columns.
        const bool is_whole = column + kTileColumns - kLanes < columns;
        const Real* from = b + begin * b_stride + column;
        Real* to = b_copy;
        if (is_whole) {
          // The next columns of the row are asked for ahead; a stride hides them from the processor.
          const bool has_next = column + kTileColumns < columns;
          for (int64_t m = 0; m < chain; ++m, from += b_stride) {
            LEEWAY_UNROLL for (int p = 0; p < kPanels; ++p) {
              Store(Load(from + p * kLanes), to);
              if (has_next) __builtin_prefetch(from + kTileColumns + p * kLanes);
              to += kLanes;
            }
          }
        } else {
          for (int64_t m = 0; m < chain; ++m, from += b_stride) {
            for (int64_t p = 0; p < kPanels; ++p, to += kLanes) {
              Store(column + p * kLanes < columns ? Load(from + p * kLanes) : Set1(Real(0)), to);
            }
          }
        }
        // A share of what is copied for the next chain.
        const int64_t column_end = column + kTileColumns < columns ? column + kTileColumns : columns;
        for (int64_t m = kChain * column / columns; m < kChain * column_end / columns; ++m) {
          if (begin + kChain + m >= rows) break;
          const Real* const next = a_rows + (kChain + m) * a_stride;
          for (int64_t i = block; i < block_end; i += kLanes) __builtin_prefetch(next + i, 0, 2);
        }
        for (int64_t tile = 0; tile < tiles; ++tile) {
          const int64_t first = tile_begin(tile);
          functions(tile).add(a_copy + (first - block) * kChain, b_copy, chain, sum + first * sum_stride + column,
                              sum_stride, columns - column);
        }
      }
    }
  }
}

}  // namespace LEEWAY_KERNEL_NAMESPACE
}  // namespace leeway::internal

#endif  // LEEWAY_MODEL_KERNELS_MATRIX_PRODUCT_INL_H_
