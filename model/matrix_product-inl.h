// Matrix products over packed panels, and sums of outer products. Included by kernels-inl.h.

#ifndef LEEWAY_MODEL_MATRIX_PRODUCT_INL_H_
#define LEEWAY_MODEL_MATRIX_PRODUCT_INL_H_

#include "model/vector-inl.h"

namespace leeway::internal {
namespace LEEWAY_KERNEL_NAMESPACE {

// How a register tile of sums begins and ends.
enum class TileMode {
  kStore,     // y = chain from zero
  kAdd,       // y = y + chain from zero
  kContinue,  // y = chain that goes on from y
  kJoin,      // y = y + (t + chain from zero)
};

// Registers for sums: AVX-512 has 32, the others 16 (the scalar table's number only bounds code size).
constexpr int kSumRegisters = LEEWAY_KERNEL_LEVEL == 2 ? 28 : LEEWAY_KERNEL_LEVEL == 1 ? 12 : 32;

template <typename Real>
constexpr int MaxTileRows() {
  constexpr int kParts = Vec<Real>::kParts;
  // One panel's double tile, or two panels where a panel is one register.
  return kParts == 1 ? kSumRegisters / 2 : kSumRegisters / kParts > 0 ? kSumRegisters / kParts : 1;
}

// Panels side by side for a tile of `rows` rows: enough independent chains to hide the latency of a fused multiply-add.
template <typename Real>
constexpr int TilePanels(int rows) {
  const int fit = kSumRegisters / (rows * Vec<Real>::kParts);
  return fit >= 8 ? 8 : fit >= 4 ? 4 : fit >= 2 ? 2 : 1;
}

// One register tile: kRows rows by kPanels panels, k steps.
template <typename Real, int kRows, int kPanels>
void ProductTile(const Real* x, int64_t x_stride, const Real* packed, int64_t panel_size, int64_t k, TileMode mode,
                 Real* y, int64_t y_stride, const Real* t, int64_t t_stride) {
  using R = Register<Real>;
  using Type = typename R::Type;
  constexpr int kParts = Vec<Real>::kParts;
  constexpr int kWidth = Vec<Real>::kWidth;
  constexpr int kColumns = kPanels * kParts;
  // Registers of one row, in column order: panel by panel, so that column c lies at offset c * kWidth of y.
  Type sum[kRows][kColumns];
  if (mode == TileMode::kContinue) {
    LEEWAY_UNROLL for (int r = 0; r < kRows; ++r) {
      LEEWAY_UNROLL for (int c = 0; c < kColumns; ++c) {
        __builtin_memcpy(&sum[r][c], y + r * y_stride + c * kWidth, sizeof(Type));
      }
    }
  } else {
    LEEWAY_UNROLL for (int r = 0; r < kRows; ++r) {
      LEEWAY_UNROLL for (int c = 0; c < kColumns; ++c) sum[r][c] = Type{};
    }
  }
  // Row pointers in groups of four, opaque to the compiler: four bases and two strides address 16 rows.
  constexpr int kGroups = (kRows + 3) / 4;
  const Real* base[kGroups];
  LEEWAY_UNROLL for (int g = 0; g < kGroups; ++g) {
    base[g] = x + 4 * g * x_stride;
    asm volatile("" : "+r"(base[g]));
  }
  int64_t stride3 = 3 * x_stride;
  asm volatile("" : "+r"(stride3));
  for (int64_t step = 0; step < k; ++step) {
    Type b[kColumns];
    LEEWAY_UNROLL for (int c = 0; c < kColumns; ++c) {
      __builtin_memcpy(&b[c], packed + (c / kParts) * panel_size + (c % kParts) * kWidth, sizeof(Type));
    }
    LEEWAY_UNROLL for (int r = 0; r < kRows; ++r) {
      const int64_t offset = r % 4 == 3 ? stride3 : (r % 4) * x_stride;
      const Type a = R::Set1(base[r / 4][offset]);
      LEEWAY_UNROLL for (int c = 0; c < kColumns; ++c) sum[r][c] = R::Fma(a, b[c], sum[r][c]);
    }
    packed += kLanes;
    LEEWAY_UNROLL for (int g = 0; g < kGroups; ++g)++ base[g];
  }
  LEEWAY_UNROLL for (int r = 0; r < kRows; ++r) {
    LEEWAY_UNROLL for (int c = 0; c < kColumns; ++c) {
      Real* out = y + r * y_stride + c * kWidth;
      Type value = sum[r][c];
      if (mode == TileMode::kJoin) {
        Type other;
        __builtin_memcpy(&other, t + r * t_stride + c * kWidth, sizeof(Type));
        value = other + value;
      }
      if (mode == TileMode::kAdd || mode == TileMode::kJoin) {
        Type old;
        __builtin_memcpy(&old, out, sizeof(Type));
        value = old + value;
      }
      __builtin_memcpy(out, &value, sizeof(Type));
    }
  }
}

// Steps of k that one pass over a tile takes: its panels then stay in the first-level cache for all rows of a block.
constexpr int64_t kDepth = 256;
// Rows of one block: its slice of x stays in the second-level cache for all panels.
constexpr int64_t kRowBlock = 336;

// All panels of one row tile for one range of k.
template <typename Real, int kRows, int kPanels>
LEEWAY_INLINE void ProductRows(const Real* x, int64_t x_stride, const Real* packed, int64_t panel_size, int64_t k,
                               int64_t k_blocks, int64_t panels, Real* y, int64_t y_stride) {
  int64_t panel = 0;
  for (; panel + kPanels <= panels; panel += kPanels) {
    const Real* w = packed + panel * panel_size;
    Real* out = y + panel * kLanes;
    if (k_blocks == 1) {
      for (int64_t begin = 0; begin < k; begin += kDepth) {
        const int64_t depth = k - begin < kDepth ? k - begin : kDepth;
        ProductTile<Real, kRows, kPanels>(x + begin, x_stride, w + begin * kLanes, panel_size, depth,
                                          begin == 0 ? TileMode::kStore : TileMode::kContinue, out, y_stride, nullptr,
                                          0);
      }
      continue;
    }
    alignas(64) Real third[kRows * kPanels * kLanes];
    constexpr int64_t kThirdStride = kPanels * kLanes;
    const TileMode kModes[4] = {TileMode::kStore, TileMode::kAdd, TileMode::kStore, TileMode::kJoin};
    for (int block = 0; block < 4; ++block) {
      const int64_t begin = k * block / 4;
      const int64_t end = k * (block + 1) / 4;
      Real* target = block == 2 ? third : out;
      ProductTile<Real, kRows, kPanels>(x + begin, x_stride, w + begin * kLanes, panel_size, end - begin, kModes[block],
                                        target, block == 2 ? kThirdStride : y_stride, third, kThirdStride);
    }
  }
  if constexpr (kPanels > 1) {
    if (panel < panels) {
      ProductRows<Real, kRows, kPanels / 2>(x, x_stride, packed + panel * panel_size, panel_size, k, k_blocks,
                                            panels - panel, y + panel * kLanes, y_stride);
    }
  }
}

template <typename Real>
using RowsFunction = void (*)(const Real* x, int64_t x_stride, const Real* packed, int64_t panel_size, int64_t k,
                              int64_t k_blocks, int64_t panels, Real* y, int64_t y_stride);

template <typename Real, int kRows>
void ProductRowsEntry(const Real* x, int64_t x_stride, const Real* packed, int64_t panel_size, int64_t k,
                      int64_t k_blocks, int64_t panels, Real* y, int64_t y_stride) {
  ProductRows<Real, kRows, TilePanels<Real>(kRows)>(x, x_stride, packed, panel_size, k, k_blocks, panels, y, y_stride);
}

template <typename Real, int kRows>
RowsFunction<Real> RowsFunctionFor(int64_t rows) {
  if constexpr (kRows == 1) {
    return &ProductRowsEntry<Real, 1>;
  } else {
    return rows == kRows ? &ProductRowsEntry<Real, kRows> : RowsFunctionFor<Real, kRows - 1>(rows);
  }
}

template <typename Real>
void Product(const Real* x, int64_t x_stride, int64_t rows, const Real* packed, int64_t k, int64_t k_blocks,
             int64_t panel_begin, int64_t panel_end, Real* y, int64_t y_stride) {
  constexpr int64_t kMaxRows = MaxTileRows<Real>();
  const int64_t panel_size = k * kLanes;
  // Panels in groups that fit the second-level cache, rows in tiles of nearly equal height.
  constexpr int64_t kGroup = 8;
  for (int64_t block = 0; block < rows; block += kRowBlock) {
    const int64_t block_rows = rows - block < kRowBlock ? rows - block : kRowBlock;
    const int64_t tiles = (block_rows + kMaxRows - 1) / kMaxRows;
    for (int64_t group = panel_begin; group < panel_end; group += kGroup) {
      const int64_t panels = panel_end - group < kGroup ? panel_end - group : kGroup;
      int64_t row = block;
      for (int64_t tile = 0; tile < tiles; ++tile) {
        const int64_t height = (block + block_rows - row + (tiles - tile) - 1) / (tiles - tile);
        RowsFunctionFor<Real, static_cast<int>(kMaxRows)>(height)(
            x + row * x_stride, x_stride, packed + group * panel_size, panel_size, k, k_blocks, panels,
            y + row * y_stride + group * kLanes, y_stride);
        row += height;
      }
    }
  }
}

// Rows in one chain of an outer product.
constexpr int64_t kChain = 256;

template <typename Real, int kRows, int kPanels>
void OuterTile(const Real* a, int64_t a_stride, const Real* b, int64_t b_stride, int64_t rows, Real* sum,
               int64_t sum_stride, int64_t columns) {
  using R = Register<Real>;
  using Type = typename R::Type;
  constexpr int kParts = Vec<Real>::kParts;
  constexpr int kWidth = Vec<Real>::kWidth;
  constexpr int kColumns = kPanels * kParts;
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
    a += a_stride;
    b += b_stride;
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

template <typename Real, int kRows>
void OuterRows(const Real* a, int64_t a_stride, const Real* b, int64_t b_stride, int64_t rows, int64_t columns,
               Real* sum, int64_t sum_stride) {
  constexpr int kPanels = TilePanels<Real>(kRows);
  int64_t column = 0;
  // The last panels may be partial: b is readable up to a multiple of 16 columns.
  for (; column + (kPanels - 1) * kLanes < columns; column += kPanels * kLanes) {
    OuterTile<Real, kRows, kPanels>(a, a_stride, b + column, b_stride, rows, sum + column, sum_stride,
                                    columns - column);
  }
  for (; column < columns; column += kLanes) {
    OuterTile<Real, kRows, 1>(a, a_stride, b + column, b_stride, rows, sum + column, sum_stride, columns - column);
  }
}

template <typename Real>
using OuterFunction = void (*)(const Real* a, int64_t a_stride, const Real* b, int64_t b_stride, int64_t rows,
                               int64_t columns, Real* sum, int64_t sum_stride);

template <typename Real, int kRows>
OuterFunction<Real> OuterFunctionFor(int64_t rows) {
  if constexpr (kRows == 1) {
    return &OuterRows<Real, 1>;
  } else {
    return rows == kRows ? &OuterRows<Real, kRows> : OuterFunctionFor<Real, kRows - 1>(rows);
  }
}

template <typename Real>
void OuterProduct(const Real* a, int64_t a_stride, const Real* b, int64_t b_stride, int64_t rows, int64_t i_begin,
                  int64_t i_end, int64_t columns, Real* sum, int64_t sum_stride) {
  constexpr int64_t kMaxRows = MaxTileRows<Real>();
  const int64_t tiles = (i_end - i_begin + kMaxRows - 1) / kMaxRows;
  for (int64_t begin = 0; begin < rows; begin += kChain) {
    const int64_t chain = rows - begin < kChain ? rows - begin : kChain;
    int64_t i = i_begin;
    for (int64_t tile = 0; tile < tiles; ++tile) {
      const int64_t height = (i_end - i + (tiles - tile) - 1) / (tiles - tile);
      OuterFunctionFor<Real, static_cast<int>(kMaxRows)>(height)(a + begin * a_stride + i, a_stride,
                                                                 b + begin * b_stride, b_stride, chain, columns,
                                                                 sum + i * sum_stride, sum_stride);
      i += height;
    }
  }
}

}  // namespace LEEWAY_KERNEL_NAMESPACE
}  // namespace leeway::internal

#endif  // LEEWAY_MODEL_MATRIX_PRODUCT_INL_H_
