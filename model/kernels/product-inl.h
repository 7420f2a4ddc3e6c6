// Matrix products over packed panels, of Reals or of bf16 under float arithmetic. Included by matrix_product-inl.h.

#ifndef LEEWAY_MODEL_KERNELS_PRODUCT_INL_H_
#define LEEWAY_MODEL_KERNELS_PRODUCT_INL_H_

#include "model/kernels/kernels.h"
#include "model/kernels/vector-inl.h"

namespace leeway::internal {
namespace LEEWAY_KERNEL_NAMESPACE {

// The registers of a panel's step as the arithmetic has them.
template <typename Real>
LEEWAY_INLINE void LoadWeights(const Real* p, typename Register<Real>::Type* to) {
  constexpr int kWidth = Vec<Real>::kWidth;
  LEEWAY_UNROLL for (int i = 0; i < Vec<Real>::kParts; ++i) __builtin_memcpy(&to[i], p + i * kWidth, sizeof(to[i]));
}

// A bf16 is the upper half of a float: zeros below it, one shuffle a register in the order of lanes that Bf16Lane
// gives.
LEEWAY_INLINE void LoadWeights(const uint16_t* p, Register<float>::Type* to) {
#if LEEWAY_KERNEL_LEVEL == 2
  const __m512i words = _mm512_castsi256_si512(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  // Word 2i + 1 of the result is where lane i lies.
  const __m512i places = _mm512_set_epi16(15, 0, 14, 0, 13, 0, 12, 0, 7, 0, 6, 0, 5, 0, 4, 0,  //
                                          11, 0, 10, 0, 9, 0, 8, 0, 3, 0, 2, 0, 1, 0, 0, 0);
  to[0] = _mm512_castsi512_ps(_mm512_maskz_permutexvar_epi16(0xaaaaaaaa, places, words));
#elif LEEWAY_KERNEL_LEVEL == 1
  const __m256i words = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  to[0] = _mm256_castsi256_ps(_mm256_unpacklo_epi16(_mm256_setzero_si256(), words));
  to[1] = _mm256_castsi256_ps(_mm256_unpackhi_epi16(_mm256_setzero_si256(), words));
#else
  for (int lane = 0; lane < kLanes; ++lane) {
    const uint32_t bits = static_cast<uint32_t>(p[Bf16Lane(lane)]) << 16;
    __builtin_memcpy(to + lane, &bits, sizeof(bits));
  }
#endif
}

// Where the chains of a register tile begin and go: y = chain; with `continues` the chain goes on from y; with `adds`:
// y = y + chain; with `join`: y = y + (join + chain). `widened`: where the weights go as Reals too, if they are bf16.
template <typename Real>
struct TileTarget {
  Real* y;
  int64_t y_stride;
  bool continues = false;
  bool adds = false;
  const Real* join = nullptr;
  int64_t join_stride = 0;
  Real* widened = nullptr;
  int64_t widened_size = 0;  // of a panel
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
template <typename Real, typename Weight, int kRows, int kPanels>
void ProductTile(const Real* x, int64_t x_stride, const Weight* packed, int64_t panel_size, int64_t k,
                 const TileTarget<Real>& target) {
  using R = Register<Real>;
  using Type = typename R::Type;
  constexpr int kParts = Vec<Real>::kParts;
  constexpr int kWidth = Vec<Real>::kWidth;
  constexpr int kColumns = kPanels * kParts;
  // Registers of one row in column order, panel by panel, so that register c lies at offset c * kWidth of y.
  Type sum[kRows][kColumns];
  LEEWAY_UNROLL for (int r = 0; r < kRows; ++r) { LEEWAY_UNROLL for (int c = 0; c < kColumns; ++c) sum[r][c] = Type{}; }
  if (target.continues) {
    LEEWAY_UNROLL for (int r = 0; r < kRows; ++r) {
      LEEWAY_UNROLL for (int c = 0; c < kColumns; ++c) {
        __builtin_memcpy(&sum[r][c], target.y + r * target.y_stride + c * kWidth, sizeof(Type));
      }
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
  [[maybe_unused]] Real* widened = target.widened;
  for (int64_t step = 0; step < k; ++step) {
    Type b[kColumns];
    LEEWAY_UNROLL for (int p = 0; p < kPanels; ++p) LoadWeights(packed + p * panel_size, b + p * kParts);
    if constexpr (sizeof(Weight) < sizeof(Real)) {
      if (widened != nullptr) {
        LEEWAY_UNROLL for (int c = 0; c < kColumns; ++c) {
          __builtin_memcpy(widened + c / kParts * target.widened_size + c % kParts * kWidth, &b[c], sizeof(Type));
        }
        widened += kLanes;
      }
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

template <typename Real, typename Weight>
using TileFunction = void (*)(const Real* x, int64_t x_stride, const Weight* packed, int64_t panel_size, int64_t k,
                              const TileTarget<Real>& target);

constexpr int kWidestTileLog = 3;
constexpr int kWidestTile = 1 << kWidestTileLog;

// Tiles by height (from 1) and log2 of the panels side by side.
template <typename Real, typename Weight>
struct TileTable {
  TileFunction<Real, Weight> tile[MaxTileRows<Real>() + 1][kWidestTileLog + 1] = {};
};

template <typename Real, typename Weight, int kRows, int kPanels>
constexpr void FillTiles(TileTable<Real, Weight>* table) {
  table->tile[kRows][kPanels == 8 ? 3 : kPanels / 2] = &ProductTile<Real, Weight, kRows, kPanels>;
  if constexpr (kPanels > 1) {
    FillTiles<Real, Weight, kRows, kPanels / 2>(table);
  } else if constexpr (kRows > 1) {
    FillTiles<Real, Weight, kRows - 1, TilePanels<Real>(kRows - 1)>(table);
  }
}

template <typename Real, typename Weight>
constexpr TileTable<Real, Weight> MakeTiles() {
  TileTable<Real, Weight> table;
  FillTiles<Real, Weight, MaxTileRows<Real>(), TilePanels<Real>(MaxTileRows<Real>())>(&table);
  return table;
}

// A run of the depth that all rows of a group of panels pass over before the next.
struct DepthPiece {
  int64_t begin;
  int64_t end;
  // Blocks of the depth in it, equally long but for rounding: 1, or 2 neighbours.
  int64_t blocks;
  // Whether y holds what came before.
  bool is_later;
};

// Where the rows and panels of a piece are.
template <typename Real>
struct PieceOperands {
  const Real* x;  // its first step
  int64_t x_stride;
  int64_t panels;
  Real* y;
  int64_t y_stride;
  // Room for the piece's weights as Reals, [panel][step][16], that the first row tile fills for the others; or null.
  Real* widened;
};

// Rows [row, row + height) over all panels of a piece of the depth k of k_blocks blocks. `packed`: the first panel's
// first step; panel_size: what lies between two panels.
template <typename Real, typename Weight>
void ProductOfRows(const PieceOperands<Real>& operands, int64_t row, int64_t height, const Weight* packed,
                   int64_t panel_size, int64_t k, int64_t k_blocks, const DepthPiece& piece) {
  static constexpr TileTable<Real, Weight> kTable = MakeTiles<Real, Weight>();
  const auto& by_width = kTable.tile[height];
  const Real* const x = operands.x + row * operands.x_stride;
  const int64_t steps = piece.end - piece.begin;
  int width_log = kWidestTileLog;
  for (int64_t panel = 0; panel < operands.panels; panel += int64_t{1} << width_log) {
    while (by_width[width_log] == nullptr || panel + (int64_t{1} << width_log) > operands.panels) --width_log;
    const TileFunction<Real, Weight> run = by_width[width_log];
    const Weight* const w = packed + panel * panel_size;
    TileTarget<Real> target{operands.y + row * operands.y_stride + panel * kLanes, operands.y_stride};
    if (operands.widened != nullptr) {
      target.widened = operands.widened + panel * steps * kLanes;
      target.widened_size = steps * kLanes;
    }
    if (piece.blocks == 1) {
      target.continues = piece.is_later;
      run(x, operands.x_stride, w, panel_size, steps, target);
      continue;
    }
    // The first two blocks: y = b0; y += b1. The last two: third = b2; y += third + b3.
    alignas(64) Real third[kSumRegisters * kLanes];
    const int64_t middle = k * (piece.is_later ? 3 : 1) / k_blocks - piece.begin;
    TileTarget<Real> first = target;
    target.adds = true;
    if (piece.is_later) {
      first.y = third;
      first.y_stride = kLanes << width_log;
      target.join = third;
      target.join_stride = first.y_stride;
    }
    if (target.widened != nullptr) target.widened += middle * kLanes;
    run(x, operands.x_stride, w, panel_size, middle, first);
    run(x + middle, operands.x_stride, w + middle * kLanes, panel_size, steps - middle, target);
  }
}

// Bytes of packed weights that all rows pass over before the next: they stay in the second-level cache meanwhile.
constexpr int64_t kGroupBytes = LEEWAY_KERNEL_LEVEL == 2 ? 1 << 19 : 1 << 18;
// Steps of a piece at most, so that a row tile's part of x stays in the first-level cache.
constexpr int64_t kPieceSteps = 640;

template <typename Real, typename Weight>
void Product(const Real* x, int64_t x_stride, int64_t rows, const Weight* packed, int64_t k, int64_t k_blocks,
             int64_t panel_begin, int64_t panel_end, Real* y, int64_t y_stride) {
  constexpr bool kIsNarrow = sizeof(Weight) < sizeof(Real);
  constexpr int64_t kGroupReals = kGroupBytes / static_cast<int64_t>(sizeof(Real));
  // Room for a group of panels as Reals. Not a byte of it where weights are Reals.
  alignas(64) Real widened[kIsNarrow ? kGroupReals : 1];
  const int64_t tiles = (rows + MaxTileRows<Real>() - 1) / MaxTileRows<Real>();
  const int64_t pieces = k_blocks > 1 ? k_blocks / 2 : tiles == 1 ? 1 : (k + kPieceSteps - 1) / kPieceSteps;
  int64_t group = kGroupReals / (((k + pieces - 1) / pieces + 1) * kLanes);
  const bool widens = kIsNarrow && tiles > 1 && group > 0;
  if (group >= kWidestTile || !widens) group = group < kWidestTile ? kWidestTile : group / kWidestTile * kWidestTile;
  const int64_t packed_size = k * kLanes;
  for (int64_t begin = panel_begin; begin < panel_end; begin += group) {
    const int64_t end = begin + group < panel_end ? begin + group : panel_end;
    for (int64_t p = 0; p < pieces; ++p) {
      const DepthPiece piece{k * p / pieces, k * (p + 1) / pieces, k_blocks > 1 ? 2 : 1, p > 0};
      const Weight* const from = packed + begin * packed_size + piece.begin * kLanes;
      PieceOperands<Real> operands{x + piece.begin,    x_stride, end - begin,
                                   y + begin * kLanes, y_stride, widens ? widened : nullptr};
      int64_t row = 0;
      // Tiles of nearly equal height.
      for (int64_t tile = 0; tile < tiles; ++tile) {
        const int64_t height = (rows - row + tiles - tile - 1) / (tiles - tile);
        if (tile == 0 || !widens) {
          ProductOfRows<Real, Weight>(operands, row, height, from, packed_size, k, k_blocks, piece);
        } else if constexpr (kIsNarrow) {
          operands.widened = nullptr;
          ProductOfRows<Real, Real>(operands, row, height, widened, (piece.end - piece.begin) * kLanes, k, k_blocks,
                                    piece);
        }
        row += height;
      }
    }
  }
}

}  // namespace LEEWAY_KERNEL_NAMESPACE
}  // namespace leeway::internal

#endif  // LEEWAY_MODEL_KERNELS_PRODUCT_INL_H_
