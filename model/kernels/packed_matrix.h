#ifndef LEEWAY_MODEL_KERNELS_PACKED_MATRIX_H_
#define LEEWAY_MODEL_KERNELS_PACKED_MATRIX_H_

#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "base/executor.h"
#include "base/status_macros.h"
#include "model/kernels/buffer.h"
#include "model/kernels/kernels.h"
#include "model/weight_format.h"

namespace leeway {
namespace internal {

// A weight matrix as the product kernels read it: panels of 16 outputs, [panel][depth][16], of Reals or of bf16.
// Outputs beyond the true number are zero. Depth is what a product sums over.
template <typename Real>
class PackedMatrix {
 public:
  // Zero everywhere.
  PackedMatrix(int64_t outputs, int64_t depth, WeightFormat format = WeightFormat::kReal)
      : format_(format), panels_(RoundUpToPanel(outputs) / kPanel), depth_(depth) {
    if (is_bf16()) {
      bf16_.Reserve(panels_ * kPanel * depth_);
    } else {
      reals_.Reserve(panels_ * kPanel * depth_);
    }
  }

  // Element (output_begin + r, depth_begin + c) = source[r * stride + c], in the matrix's format.
  void SetBlock(int64_t output_begin, int64_t depth_begin, const WeightSpan<Real>& source, int64_t stride, int64_t rows,
                int64_t columns) {
    const auto set = [&](auto* stored, const auto* from, const auto& convert) {
      SetBlockOf(output_begin, depth_begin, stored, from, convert, stride, rows, columns);
    };
    const auto widen = [](uint16_t value) { return static_cast<Real>(FromBf16(value)); };
    const auto round = [](Real value) { return ToBf16(static_cast<float>(value)); };
    if (source.is_bf16() && is_bf16()) {
      SetSameBlock(output_begin, depth_begin, bf16_.data(), source.bf16(), stride, rows, columns);
    } else if (source.is_bf16()) {
      set(reals_.data(), source.bf16(), widen);
    } else if (is_bf16()) {
      set(bf16_.data(), source.reals(), round);
    } else if (format_ == WeightFormat::kReal) {
      SetSameBlock(output_begin, depth_begin, reals_.data(), source.reals(), stride, rows, columns);
    } else {
      set(reals_.data(), source.reals(), [&](Real value) { return widen(round(value)); });
    }
  }
  void SetBlock(int64_t output_begin, int64_t depth_begin, const Real* source, int64_t stride, int64_t rows,
                int64_t columns) {
    if (rows <= 0) return;
    SetBlock(output_begin, depth_begin, absl::MakeConstSpan(source, (rows - 1) * stride + columns), stride, rows,
             columns);
  }

  // Becomes the transpose of other's outputs [first_output, first_output + depth), padded ones included.
  // REQUIRES: first_output is a multiple of 16, and the formats are one.
  void SetTransposed(const PackedMatrix& other, ParallelFor* parallel, int64_t first_output = 0) {
    LEEWAY_CHECK(format_ == other.format_);
    parallel->Run(panels_, 64 * 1024 / (depth_ * kPanel) + 1, [&](int64_t begin, int64_t end) {
      if (is_bf16()) {
        SetTransposedPanels(other, other.bf16_.data(), bf16_.data(), first_output, begin, end);
      } else {
        SetTransposedPanels(other, other.reals_.data(), reals_.data(), first_output, begin, end);
      }
    });
  }

  // y[rows][panels [panel_begin, panel_end)] = x times the matrix, see Kernels::product.
  void Product(const Kernels<Real>& kernels, const Real* x, int64_t x_stride, int64_t rows, int64_t depth_blocks,
               int64_t panel_begin, int64_t panel_end, Real* y) const {
    if (is_bf16()) {
      kernels.product_bf16(x, x_stride, rows, bf16_.data(), depth_, depth_blocks, panel_begin, panel_end, y,
                           padded_outputs());
    } else {
      kernels.product(x, x_stride, rows, reals_.data(), depth_, depth_blocks, panel_begin, panel_end, y,
                      padded_outputs());
    }
  }

  bool is_bf16() const { return format_ == WeightFormat::kBf16; }
  // Null if it is of bf16.
  const Real* data() const { return reals_.data(); }
  int64_t panels() const { return panels_; }
  int64_t depth() const { return depth_; }
  // Stride of a row of outputs.
  int64_t padded_outputs() const { return panels_ * kPanel; }
  int64_t size_bytes() const {
    return padded_outputs() * depth_ * static_cast<int64_t>(is_bf16() ? sizeof(uint16_t) : sizeof(Real));
  }

 private:
  // SetBlock of what is stored as it is: whole panels by blocks of registers, as far as their columns are.
  template <typename Stored>
  void SetSameBlock(int64_t output_begin, int64_t depth_begin, Stored* stored, const Stored* source, int64_t stride,
                    int64_t rows, int64_t columns) {
    const auto as_it_is = [](Stored value) { return value; };
    int64_t whole = 0;
    if constexpr (!std::is_same_v<Stored, double>) {
      if (output_begin % kPanel == 0) whole = rows / kPanel * kPanel;
      const int64_t whole_columns = columns / kPanel * kPanel;
      for (int64_t r = 0; r < whole; r += kPanel) {
        Stored* const panel = stored + ((output_begin + r) / kPanel * depth_ + depth_begin) * kPanel;
        for (int64_t c = 0; c < whole_columns; c += kPanel) {
          if constexpr (std::is_same_v<Stored, float>) {
            TransposeBlock(source + r * stride + c, stride, panel + c * kPanel);
          } else {
            TransposeBlock</*kIsPacked=*/false>(source + r * stride + c, stride, panel + c * kPanel);
          }
        }
      }
      SetBlockOf(output_begin, depth_begin + whole_columns, stored, source + whole_columns, as_it_is, stride, whole,
                 columns - whole_columns);
    }
    SetBlockOf(output_begin + whole, depth_begin, stored, source + whole * stride, as_it_is, stride, rows - whole,
               columns);
  }

  // Where a lane lies in its panel's step.
  static constexpr int64_t Place(const Real*, int64_t lane) { return lane; }
  static constexpr int64_t Place(const uint16_t*, int64_t lane) { return Bf16Lane(lane); }

  template <typename Stored, typename Source, typename Convert>
  void SetBlockOf(int64_t output_begin, int64_t depth_begin, Stored* stored, const Source* source,
                  const Convert& convert, int64_t stride, int64_t rows, int64_t columns) {
    // Column blocks keep the sixteen rows' lines of one panel in the cache while it is filled.
    constexpr int64_t kColumns = 16;
    for (int64_t begin = 0; begin < columns; begin += kColumns) {
      const int64_t end = begin + kColumns < columns ? begin + kColumns : columns;
      for (int64_t r = 0; r < rows; ++r) {
        const int64_t output = output_begin + r;
        Stored* panel = stored + (output / kPanel * depth_ + depth_begin) * kPanel + Place(stored, output % kPanel);
        for (int64_t c = begin; c < end; ++c) panel[c * kPanel] = convert(source[r * stride + c]);
      }
    }
  }

  // to[j][i] = from[i][j], 16 by 16; rows of `from` are `stride` apart.
  static void TransposeBlock(const float* from, int64_t stride, float* to) {
    typedef float Four __attribute__((vector_size(16)));
    for (int64_t i = 0; i < kPanel; i += 4) {
      for (int64_t j = 0; j < kPanel; j += 4) {
        Four row[4];
        for (int r = 0; r < 4; ++r) std::memcpy(&row[r], from + (i + r) * stride + j, sizeof(Four));
        const Four low01 = __builtin_shufflevector(row[0], row[1], 0, 4, 1, 5);
        const Four high01 = __builtin_shufflevector(row[0], row[1], 2, 6, 3, 7);
        const Four low23 = __builtin_shufflevector(row[2], row[3], 0, 4, 1, 5);
        const Four high23 = __builtin_shufflevector(row[2], row[3], 2, 6, 3, 7);
        row[0] = __builtin_shufflevector(low01, low23, 0, 1, 4, 5);
        row[1] = __builtin_shufflevector(low01, low23, 2, 3, 6, 7);
        row[2] = __builtin_shufflevector(high01, high23, 0, 1, 4, 5);
        row[3] = __builtin_shufflevector(high01, high23, 2, 3, 6, 7);
        for (int r = 0; r < 4; ++r) std::memcpy(to + (j + r) * kPanel + i, &row[r], sizeof(Four));
      }
    }
  }

  // The same for 16 rows of bf16, whose lanes lie in their places in `to`; in `from` too if that is packed.
  template <bool kIsPacked>
  static void TransposeBlock(const uint16_t* from, int64_t stride, uint16_t* to) {
    typedef uint16_t Eight __attribute__((vector_size(16)));
    for (int64_t i = 0; i < kPanel; i += 8) {
      for (int64_t j = 0; j < kPanel; j += 8) {
        Eight row[8], pair[8], four[8];
        for (int r = 0; r < 8; ++r) std::memcpy(&row[r], from + Bf16Lane(i + r) * stride + j, sizeof(Eight));
        for (int r = 0; r < 8; r += 2) {
          pair[r] = __builtin_shufflevector(row[r], row[r + 1], 0, 8, 1, 9, 2, 10, 3, 11);
          pair[r + 1] = __builtin_shufflevector(row[r], row[r + 1], 4, 12, 5, 13, 6, 14, 7, 15);
        }
        // four[4 * h + q]: columns 2q and 2q + 1 of rows 4h to 4h + 3.
        for (int h = 0; h < 2; ++h) {
          for (int q = 0; q < 2; ++q) {
            const Eight first = pair[4 * h + q], second = pair[4 * h + 2 + q];
            four[4 * h + 2 * q] = __builtin_shufflevector(first, second, 0, 1, 8, 9, 2, 3, 10, 11);
            four[4 * h + 2 * q + 1] = __builtin_shufflevector(first, second, 4, 5, 12, 13, 6, 7, 14, 15);
          }
        }
        for (int q = 0; q < 4; ++q) {
          const Eight even = __builtin_shufflevector(four[q], four[4 + q], 0, 1, 2, 3, 8, 9, 10, 11);
          const Eight odd = __builtin_shufflevector(four[q], four[4 + q], 4, 5, 6, 7, 12, 13, 14, 15);
          const int64_t column = j + 2 * q;
          std::memcpy(to + (kIsPacked ? Bf16Lane(column) : column) * kPanel + i, &even, sizeof(Eight));
          std::memcpy(to + (kIsPacked ? Bf16Lane(column + 1) : column + 1) * kPanel + i, &odd, sizeof(Eight));
        }
      }
    }
  }

  template <typename Stored>
  void SetTransposedPanels(const PackedMatrix& other, const Stored* source, Stored* stored, int64_t first_output,
                           int64_t panel_begin, int64_t panel_end) {
    for (int64_t panel = panel_begin; panel < panel_end; ++panel) {
      const int64_t first = panel * kPanel;
      const int64_t lanes = first + kPanel < other.depth_ ? kPanel : other.depth_ - first;
      int64_t output = 0;
      if constexpr (!std::is_same_v<Stored, double>) {
        for (; lanes == kPanel && output + kPanel <= depth_; output += kPanel) {
          const int64_t from_panel = (first_output + output) / kPanel;
          const Stored* const from = source + (from_panel * other.depth_ + first) * kPanel;
          Stored* const to = stored + (panel * depth_ + output) * kPanel;
          if constexpr (std::is_same_v<Stored, float>) {
            TransposeBlock(from, kPanel, to);
          } else {
            TransposeBlock</*kIsPacked=*/true>(from, kPanel, to);
          }
        }
      }
      for (; output < depth_; ++output) {
        const int64_t from_panel = (first_output + output) / kPanel;
        const Stored* from = source + (from_panel * other.depth_ + first) * kPanel + Place(stored, output % kPanel);
        Stored* to = stored + (panel * depth_ + output) * kPanel;
        for (int64_t lane = 0; lane < lanes; ++lane) to[Place(stored, lane)] = from[lane * kPanel];
      }
    }
  }

  WeightFormat format_;
  int64_t panels_;
  int64_t depth_;
  // One of them.
  Buffer<Real> reals_;
  Buffer<uint16_t> bf16_;
};

}  // namespace internal
}  // namespace leeway

#endif  // LEEWAY_MODEL_KERNELS_PACKED_MATRIX_H_
