// Causal attention over tiles of 16 positions, forward for one row and backward for one sequence. Included by
// kernels-inl.h.

#ifndef LEEWAY_MODEL_KERNELS_ATTENTION_INL_H_
#define LEEWAY_MODEL_KERNELS_ATTENTION_INL_H_

#include "model/kernels/kernels.h"
#include "model/kernels/matrix_product-inl.h"
#include "model/kernels/vector-inl.h"

namespace leeway::internal {
namespace LEEWAY_KERNEL_NAMESPACE {

template <typename Real>
void StoreKeyValue(const AttentionShape& shape, const Real* keys, const Real* values, int64_t position, Real* tile) {
  const int64_t lane = position % kLanes;
  const int64_t padded = shape.head_dim_padded;
  for (int64_t head = 0; head < shape.key_value_heads; ++head) {
    for (int64_t d = 0; d < padded; ++d) tile[d * kLanes + lane] = keys[d];
    Real* rows = tile + padded * kLanes;
    for (int64_t d = 0; d < padded; d += kLanes) Store(Load(values + d), rows + d * kLanes + lane * kLanes);
    keys += padded;
    values += padded;
    tile += 2 * padded * kLanes;
  }
}

// scores[16 t ..] = scale * query . keys of the tiles [first, first + kTiles): one chain over the head's dimensions a
// position.
template <typename Real, int kTiles>
LEEWAY_INLINE void TileScores(const Real* query, int64_t head_dim, Real* const* tiles, int64_t offset, Real scale,
                              Real* scores) {
  Vec<Real> sum[kTiles];
  const Real* keys[kTiles];
  LEEWAY_UNROLL for (int t = 0; t < kTiles; ++t) {
    sum[t] = Set1(Real(0));
    keys[t] = tiles[t] + offset;
  }
  for (int64_t d = 0; d < head_dim; ++d) {
    const Vec<Real> q = Set1(query[d]);
    LEEWAY_UNROLL for (int t = 0; t < kTiles; ++t) sum[t] = Fma(q, Load(keys[t] + d * kLanes), sum[t]);
  }
  LEEWAY_UNROLL for (int t = 0; t < kTiles; ++t) Store(sum[t] * Set1(scale), scores + t * kLanes);
}

// Scores of positions 0..position, -infinity in the rest of the last tile.
template <typename Real>
LEEWAY_INLINE void RowScores(const Real* query, int64_t head_dim, Real* const* tiles, int64_t offset, int64_t position,
                             Real scale, Real* scores) {
  const int64_t count = position / kLanes + 1;
  int64_t tile = 0;
  // Enough chains to hide a multiply-add's latency, where there are the registers.
  if constexpr (kSumRegisters >= 8 * Vec<Real>::kParts) {
    for (; tile + 8 <= count; tile += 8)
      TileScores<Real, 8>(query, head_dim, tiles + tile, offset, scale, scores + tile * kLanes);
  }
  for (; tile + 4 <= count; tile += 4)
    TileScores<Real, 4>(query, head_dim, tiles + tile, offset, scale, scores + tile * kLanes);
  for (; tile < count; ++tile)
    TileScores<Real, 1>(query, head_dim, tiles + tile, offset, scale, scores + tile * kLanes);
  Real* last = scores + (count - 1) * kLanes;
  Store(KeepFirst(Load(last), static_cast<int>(position % kLanes) + 1, -static_cast<Real>(__builtin_inf())), last);
}

// In place: scores to exp(score - max). Returns their sum: lane by lane over the tiles, then the fixed tree.
template <typename Real>
LEEWAY_INLINE Real Exponentials(int64_t count, Real* scores) {
  Vec<Real> highest = Load(scores);
  for (int64_t i = kLanes; i < count * kLanes; i += kLanes) highest = Max(Load(scores + i), highest);
  const Vec<Real> max = Set1(JoinMax(highest));
  Vec<Real> sum = Set1(Real(0));
  for (int64_t i = 0; i < count * kLanes; i += kLanes) {
    const Vec<Real> e = Exp(Load(scores + i) - max);
    Store(e, scores + i);
    sum = sum + e;
  }
  return JoinSum(sum);
}

// output[d] = sum over j <= position of weights[j] * value_j[d], times inverse; one chain over j, kPanels panels of d
// at once.
template <typename Real, int kPanels>
LEEWAY_INLINE void WeightedValues(const Real* weights, Real* const* tiles, int64_t offset, int64_t position,
                                  Real inverse, Real* output) {
  Vec<Real> sum[kPanels];
  LEEWAY_UNROLL for (int p = 0; p < kPanels; ++p) sum[p] = Set1(Real(0));
  for (int64_t first = 0; first <= position; first += kLanes) {
    const Real* values = tiles[first / kLanes] + offset;
    const int64_t rows = position + 1 - first < kLanes ? position + 1 - first : kLanes;
    for (int64_t j = 0; j < rows; ++j) {
      const Vec<Real> weight = Set1(weights[first + j]);
      LEEWAY_UNROLL for (int p = 0; p < kPanels; ++p) sum[p] =
          Fma(weight, Load(values + (p * kLanes + j) * kLanes), sum[p]);
    }
  }
  LEEWAY_UNROLL for (int p = 0; p < kPanels; ++p) Store(sum[p] * Set1(inverse), output + p * kLanes);
}

template <typename Real>
void Attention(const AttentionShape& shape, const Real* queries, Real* const* tiles, int64_t tile_offset,
               int64_t position, Real scale, Real* output, Real* scratch) {
  const int64_t padded = shape.head_dim_padded;
  const int64_t group = shape.heads / shape.key_value_heads;
  for (int64_t head = 0; head < shape.heads; ++head, queries += padded, output += padded) {
    const int64_t keys = tile_offset + head / group * 2 * padded * kLanes;
    const int64_t values = keys + padded * kLanes;
    RowScores(queries, shape.head_dim, tiles, keys, position, scale, scratch);
    const Real inverse = Real(1) / Exponentials(position / kLanes + 1, scratch);
    int64_t d = 0;
    for (; d + 4 * kLanes <= padded; d += 4 * kLanes) {
      WeightedValues<Real, 4>(scratch, tiles, values + d * kLanes, position, inverse, output + d);
    }
    switch ((padded - d) / kLanes) {
      case 3:
        WeightedValues<Real, 3>(scratch, tiles, values + d * kLanes, position, inverse, output + d);
        break;
      case 2:
        WeightedValues<Real, 2>(scratch, tiles, values + d * kLanes, position, inverse, output + d);
        break;
      case 1:
        WeightedValues<Real, 1>(scratch, tiles, values + d * kLanes, position, inverse, output + d);
        break;
    }
  }
}

// A register tile of the products below: rows, and panels side by side.
constexpr int kTileRows = LEEWAY_KERNEL_LEVEL == 2 ? 4 : 2;
template <typename Real>
constexpr int kTilePanels = kSumRegisters / (kTileRows * Vec<Real>::kParts) >= 4   ? 4
                            : kSumRegisters / (kTileRows * Vec<Real>::kParts) >= 2 ? 2
                                                                                   : 1;

// c[r][16 p ..] = scale * sum over i < k of a[r * a_row + i * a_step] * b(p)[i * b_step ..], one chain over i an
// element; with kAdds: the chain begins with what is in c, and there is no scale.
template <typename Real, int kRows, int kPanels, bool kAdds, typename Panel>
LEEWAY_INLINE void ProductOfTile(const Real* a, int64_t a_row, int64_t a_step, const Panel& b, int64_t panel,
                                 int64_t b_step, int64_t k, Real scale, Real* c, int64_t c_row) {
  Vec<Real> sum[kRows][kPanels];
  const Real* right[kPanels];
  LEEWAY_UNROLL for (int p = 0; p < kPanels; ++p) right[p] = b(panel + p);
  LEEWAY_UNROLL for (int r = 0; r < kRows; ++r) {
    LEEWAY_UNROLL for (int p = 0; p < kPanels; ++p) {
      sum[r][p] = kAdds ? Load(c + r * c_row + p * kLanes) : Set1(Real(0));
    }
  }
  for (int64_t i = 0; i < k; ++i) {
    Vec<Real> values[kPanels];
    LEEWAY_UNROLL for (int p = 0; p < kPanels; ++p) values[p] = Load(right[p] + i * b_step);
    LEEWAY_UNROLL for (int r = 0; r < kRows; ++r) {
      const Vec<Real> left = Set1(a[r * a_row + i * a_step]);
      LEEWAY_UNROLL for (int p = 0; p < kPanels; ++p) sum[r][p] = Fma(left, values[p], sum[r][p]);
    }
  }
  LEEWAY_UNROLL for (int r = 0; r < kRows; ++r) {
    LEEWAY_UNROLL for (int p = 0; p < kPanels; ++p) {
      Store(kAdds ? sum[r][p] : sum[r][p] * Set1(scale), c + r * c_row + p * kLanes);
    }
  }
}

// The same for some rows and all panels.
template <typename Real, int kRows, bool kAdds, typename Panel>
LEEWAY_INLINE void ProductOfRows(const Real* a, int64_t a_row, int64_t a_step, const Panel& b, int64_t panels,
                                 int64_t b_step, int64_t k, Real scale, Real* c, int64_t c_row) {
  constexpr int kMost = kTilePanels<Real>;
  int64_t p = 0;
  for (; p + kMost <= panels; p += kMost) {
    ProductOfTile<Real, kRows, kMost, kAdds>(a, a_row, a_step, b, p, b_step, k, scale, c + p * kLanes, c_row);
  }
  if constexpr (kMost > 2) {
    if (panels - p == 3) {
      ProductOfTile<Real, kRows, 3, kAdds>(a, a_row, a_step, b, p, b_step, k, scale, c + p * kLanes, c_row);
      return;
    }
    if (panels - p == 2) {
      ProductOfTile<Real, kRows, 2, kAdds>(a, a_row, a_step, b, p, b_step, k, scale, c + p * kLanes, c_row);
      return;
    }
  }
  for (; p < panels; ++p) {
    ProductOfTile<Real, kRows, 1, kAdds>(a, a_row, a_step, b, p, b_step, k, scale, c + p * kLanes, c_row);
  }
}

// The same for all rows.
template <typename Real, bool kAdds, typename Panel>
LEEWAY_INLINE void SmallProduct(const Real* a, int64_t a_row, int64_t a_step, int64_t rows, const Panel& b,
                                int64_t panels, int64_t b_step, int64_t k, Real scale, Real* c, int64_t c_row) {
  int64_t r = 0;
  for (; r + kTileRows <= rows; r += kTileRows) {
    ProductOfRows<Real, kTileRows, kAdds>(a + r * a_row, a_row, a_step, b, panels, b_step, k, scale, c + r * c_row,
                                          c_row);
  }
  for (; r < rows; ++r) {
    ProductOfRows<Real, 1, kAdds>(a + r * a_row, a_row, a_step, b, panels, b_step, k, scale, c + r * c_row, c_row);
  }
}

// With P = softmax(S), S = scale Q K', O = P V:  dV = P' dO;  dP = dO V';  dS = P (dP - rowsum(P dP)) scale;  dQ = dS
// K;  dK = dS' Q. Rows are taken in blocks of 16, so that dK and dV are loaded and stored once a block.
template <typename Real>
void AttentionBackward(const AttentionShape& shape, int64_t key_value_head, int64_t length, const Real* qkv,
                       Real* const* tiles, int64_t tile_offset, const Real* output, const Real* d_output, Real scale,
                       Real* d_qkv, Real* scratch) {
  const int64_t padded = shape.head_dim_padded;
  const int64_t group = shape.heads / shape.key_value_heads;
  const int64_t row_stride = shape.qkv_width();
  const int64_t output_stride = shape.query_width();
  const int64_t padded_length = (length + kLanes - 1) / kLanes * kLanes;
  const int64_t key_column = (shape.heads + key_value_head) * padded;
  const int64_t value_column = (shape.heads + shape.key_value_heads + key_value_head) * padded;
  const int64_t key_offset = tile_offset + key_value_head * 2 * padded * kLanes;

  Real* values_transposed = scratch;                          // [tile][padded][16]
  Real* d_keys = values_transposed + padded_length * padded;  // [position][padded]
  Real* d_values = d_keys + padded_length * padded;           // [position][padded]
  Real* probabilities = d_values + padded_length * padded;    // [16 rows][padded_length]
  Real* d_scores = probabilities + kLanes * padded_length;    // [16 rows][padded_length]

  for (int64_t j = 0; j < padded_length; ++j) {
    Real* lane = values_transposed + j / kLanes * padded * kLanes + j % kLanes;
    const Real* value = qkv + j * row_stride + value_column;
    for (int64_t d = 0; d < padded; ++d) lane[d * kLanes] = j < length ? value[d] : Real(0);
  }
  for (int64_t i = 0; i < 2 * padded_length * padded; ++i) d_keys[i] = 0;

  for (int64_t first = 0; first < length; first += kLanes) {
    const int64_t rows = length - first < kLanes ? length - first : kLanes;
    const int64_t tile_count = first / kLanes + 1;
    for (int64_t member = 0; member < group; ++member) {
      const int64_t head_column = (key_value_head * group + member) * padded;
      const Real* const queries = qkv + first * row_stride + head_column;
      const Real* const d_outputs = d_output + first * output_stride + head_column;
      const auto key_tile = [&](int64_t tile) LEEWAY_LAMBDA { return tiles[tile] + key_offset; };
      const auto value_tile = [&](int64_t tile) LEEWAY_LAMBDA { return values_transposed + tile * padded * kLanes; };
      SmallProduct<Real, false>(queries, row_stride, 1, rows, key_tile, tile_count, kLanes, shape.head_dim, scale,
                                probabilities, padded_length);
      SmallProduct<Real, false>(d_outputs, output_stride, 1, rows, value_tile, tile_count, kLanes, shape.head_dim,
                                Real(1), d_scores, padded_length);
      for (int64_t row = 0; row < rows; ++row) {
        Real* p = probabilities + row * padded_length;
        Real* ds = d_scores + row * padded_length;
        Real* const last = p + (tile_count - 1) * kLanes;
        Store(KeepFirst(Load(last), static_cast<int>(row) + 1, -static_cast<Real>(__builtin_inf())), last);
        const Vec<Real> inverse = Set1(Real(1) / Exponentials(tile_count, p));
        Vec<Real> products = Set1(Real(0));
        for (int64_t j = 0; j < tile_count * kLanes; j += kLanes) {
          const Vec<Real> probability = Load(p + j) * inverse;
          Store(probability, p + j);
          products = Fma(probability, Load(ds + j), products);
        }
        const Vec<Real> delta = Set1(JoinSum(products));
        const Vec<Real> scale_vector = Set1(scale);
        for (int64_t j = 0; j < tile_count * kLanes; j += kLanes) {
          Store(Load(p + j) * (Load(ds + j) - delta) * scale_vector, ds + j);
        }
      }
      // Beyond its own position a row's weights are zero.
      const int64_t seen = first + rows;
      const int64_t panels = padded / kLanes;
      const auto key_panel = [&](int64_t p) LEEWAY_LAMBDA { return qkv + key_column + p * kLanes; };
      const auto query_panel = [&](int64_t p) LEEWAY_LAMBDA { return queries + p * kLanes; };
      const auto d_output_panel = [&](int64_t p) LEEWAY_LAMBDA { return d_outputs + p * kLanes; };
      SmallProduct<Real, false>(d_scores, padded_length, 1, rows, key_panel, panels, row_stride, seen, Real(1),
                                d_qkv + first * row_stride + head_column, row_stride);
      SmallProduct<Real, true>(d_scores, 1, padded_length, seen, query_panel, panels, row_stride, rows, Real(1), d_keys,
                               padded);
      SmallProduct<Real, true>(probabilities, 1, padded_length, seen, d_output_panel, panels, output_stride, rows,
                               Real(1), d_values, padded);
    }
  }
  for (int64_t j = 0; j < length; ++j) {
    for (int64_t d = 0; d < padded; d += kLanes) {
      Store(Load(d_keys + j * padded + d), d_qkv + j * row_stride + key_column + d);
      Store(Load(d_values + j * padded + d), d_qkv + j * row_stride + value_column + d);
    }
  }
}

}  // namespace LEEWAY_KERNEL_NAMESPACE
}  // namespace leeway::internal

#endif  // LEEWAY_MODEL_KERNELS_ATTENTION_INL_H_
