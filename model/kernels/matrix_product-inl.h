// Matrix products over packed panels, and sums of outer products. Included by kernels-inl.h.

#ifndef LEEWAY_MODEL_KERNELS_MATRIX_PRODUCT_INL_H_
#define LEEWAY_MODEL_KERNELS_MATRIX_PRODUCT_INL_H_

#include "model/kernels/vector-inl.h"

namespace leeway::internal {
namespace LEEWAY_KERNEL_NAMESPACE {

// Where the chains of a register tile go: y = chain; with `adds`: y = y + chain; with `join`: y = y + (join + chain).
template <typename Real>
struct TileTarget {
  Real* y;
  int64_t y_stride;
  bool adds;
  const Real* join;
  int64_t join_stride;
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
void ProductTile(const Real* x, int64_t x_stride, const Real* packed, int64_t panel_size, int64_t k,
                 const TileTarget<Real>& target) {
  using R = Register<Real>;
  using Type = typename R::Type;
  constexpr int kParts = Vec<Real>::kParts;
  constexpr int kWidth = Vec<Real>::kWidth;
  constexpr int kColumns = kPanels * kParts;
  // Registers of one row in column order, panel by panel, so that register c lies at offset c * kWidth of y.
  Type sum[kRows][kColumns];
  LEEWAY_UNROLL for (int r = 0; r < kRows; ++r) { LEEWAY_UNROLL for (int c = 0; c < kColumns; ++c) sum[r][c] = Type{}; }
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
      Real* out = target.y + r * target.y_stride + c * kWidth;
      Type value = sum[r][c];
      if (target.join != nullptr) {
        Type other;
        __builtin_memcpy(&other, target.join + r * target.join_stride + c * kWidth, sizeof(Type));
        value = other + value;
      }
      if (target.adds) {
        Type old;
        __builtin_memcpy(&old, out, sizeof(Type));
        value = old + value;
      }
      __builtin_memcpy(out, &value, sizeof(Type));
    }
  }
}

template <typename Real>
using TileFunction = void (*)(const Real* x, int64_t x_stride, const Real* packed, int64_t panel_size, int64_t k,
                              const TileTarget<Real>& target);

constexpr int kWidestTileLog = 3;
constexpr int kWidestTile = 1 << kWidestTileLog;

// Tiles by height (from 1) and log2 of the panels side by side.
template <typename Real>
struct TileTable {
  TileFunction<Real> tile[MaxTileRows<Real>() + 1][kWidestTileLog + 1] = {};
};

template <typename Real, int kRows, int kPanels>
constexpr void FillTiles(TileTable<Real>* table) {
  table->tile[kRows][kPanels == 8 ? 3 : kPanels / 2] = &ProductTile<Real, kRows, kPanels>;
  if constexpr (kPanels > 1) {
    FillTiles<Real, kRows, kPanels / 2>(table);
  } else if constexpr (kRows > 1) {
    FillTiles<Real, kRows - 1, TilePanels<Real>(kRows - 1)>(table);
  }
}

template <typename Real>
constexpr TileTable<Real> MakeTiles() {
  TileTable<Real> table;
  FillTiles<Real, MaxTileRows<Real>(), TilePanels<Real>(MaxTileRows<Real>())>(&table);
  return table;
}

// Bytes of packed weights that all rows pass over before the next: they stay in the second-level cache meanwhile, and
// the row tile's part of x in the first-level cache.
constexpr int64_t kGroupBytes = LEEWAY_KERNEL_LEVEL == 2 ? 1 << 19 : 1 << 18;

template <typename Real>
void Product(const Real* x, int64_t x_stride, int64_t rows, const Real* packed, int64_t k, int64_t k_blocks,
             int64_t panel_begin, int64_t panel_end, Real* y, int64_t y_stride) {
  static constexpr TileTable<Real> kTable = MakeTiles<Real>();
  constexpr int64_t kMaxRows = MaxTileRows<Real>();
  const int64_t panel_size = k * kLanes;
  int64_t group = kGroupBytes / (panel_size * static_cast<int64_t>(sizeof(Real))) / kWidestTile * kWidestTile;
  if (group < kWidestTile) group = kWidestTile;
  const int64_t tiles = (rows + kMaxRows - 1) / kMaxRows;
  for (int64_t group_begin = panel_begin; group_begin < panel_end; group_begin += group) {
    const int64_t group_end = group_begin + group < panel_end ? group_begin + group : panel_end;
    int64_t row = 0;
    // Tiles of nearly equal height.
    for (int64_t tile = 0; tile < tiles; ++tile) {
      const int64_t height = (rows - row + tiles - tile - 1) / (tiles - tile);
      const auto& by_width = kTable.tile[height];
      const Real* const x_tile = x + row * x_stride;
      int width_log = kWidestTileLog;
      for (int64_t panel = group_begin; panel < group_end; panel += int64_t{1} << width_log) {
        while (by_width[width_log] == nullptr || panel + (int64_t{1} << width_log) > group_end) --width_log;
        const TileFunction<Real> run = by_width[width_log];
        const Real* const w = packed + panel * panel_size;
        const TileTarget<Real> whole{y + row * y_stride + panel * kLanes, y_stride, false, nullptr, 0};
        if (k_blocks == 1) {
          run(x_tile, x_stride, w, panel_size, k, whole);
          continue;
        }
        // y = b0; y += b1; third = b2; y += third + b3.
        alignas(64) Real third[kSumRegisters * kLanes];
        const int64_t third_stride = kLanes << width_log;
        TileTarget<Real> added = whole;
        added.adds = true;
        TileTarget<Real> joined = added;
        joined.join = third;
        joined.join_stride = third_stride;
        const TileTarget<Real> targets[4] = {whole, added, {third, third_stride, false, nullptr, 0}, joined};
        for (int64_t block = 0; block < k_blocks; ++block) {
          const int64_t begin = k * block / k_blocks;
          run(x_tile + begin, x_stride, w + begin * kLanes, panel_size, k * (block + 1) / k_blocks - begin,
              targets[block]);
        }
      }
      row += height;
    }
  }
}

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
          for (int64_t m = 0; m < chain; ++m, from += b_stride) {
            LEEWAY_UNROLL for (int p = 0; p < kPanels; ++p, to += kLanes) Store(Load(from + p * kLanes), to);
          }
        } else {
          for (int64_t m = 0; m < chain; ++m, from += b_stride) {
            for (int64_t p = 0; p < kPanels; ++p, to += kLanes) {
              Store(column + p * kLanes < columns ? Load(from + p * kLanes) : Set1(Real(0)), to);
            }
          }
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
