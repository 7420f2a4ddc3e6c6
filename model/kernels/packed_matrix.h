#ifndef LEEWAY_MODEL_KERNELS_PACKED_MATRIX_H_
#define LEEWAY_MODEL_KERNELS_PACKED_MATRIX_H_

#include <cstdint>

#include "base/executor.h"
#include "model/kernels/buffer.h"
#include "model/kernels/kernels.h"

namespace leeway {
namespace internal {

// A weight matrix as the product kernel reads it: panels of 16 outputs, [panel][depth][16]. Outputs beyond the true
// number are zero. Depth is what a product sums over.
template <typename Real>
class PackedMatrix {
 public:
  // Zero everywhere.
  PackedMatrix(int64_t outputs, int64_t depth) : panels_(RoundUpToPanel(outputs) / kPanel), depth_(depth) {
    data_.Reserve(panels_ * kPanel * depth_);
  }

  // Element (output_begin + r, depth_begin + c) = source[r * stride + c].
  void SetBlock(int64_t output_begin, int64_t depth_begin, const Real* source, int64_t stride, int64_t rows,
                int64_t columns) {
    // Column blocks keep the sixteen rows' lines of one panel in the cache while it is filled.
    constexpr int64_t kColumns = 16;
    for (int64_t begin = 0; begin < columns; begin += kColumns) {
      const int64_t end = begin + kColumns < columns ? begin + kColumns : columns;
      for (int64_t r = 0; r < rows; ++r) {
        const int64_t output = output_begin + r;
        Real* panel = data_.data() + (output / kPanel * depth_ + depth_begin) * kPanel + output % kPanel;
        for (int64_t c = begin; c < end; ++c) panel[c * kPanel] = source[r * stride + c];
      }
    }
  }

  // Becomes the transpose of other's outputs [first_output, first_output + depth), padded ones included.
  // REQUIRES: first_output is a multiple of 16.
  void SetTransposed(const PackedMatrix& other, ParallelFor* parallel, int64_t first_output = 0) {
    parallel->Run(panels_, 64 * 1024 / (depth_ * kPanel) + 1,
                  [&](int64_t begin, int64_t end) { SetTransposedPanels(other, first_output, begin, end); });
  }

  const Real* data() const { return data_.data(); }
  int64_t panels() const { return panels_; }
  int64_t depth() const { return depth_; }
  // Stride of a row of outputs.
  int64_t padded_outputs() const { return panels_ * kPanel; }

 private:
  void SetTransposedPanels(const PackedMatrix& other, int64_t first_output, int64_t panel_begin, int64_t panel_end) {
    for (int64_t panel = panel_begin; panel < panel_end; ++panel) {
      const int64_t first = panel * kPanel;
      const int64_t lanes = first + kPanel < other.depth_ ? kPanel : other.depth_ - first;
      for (int64_t output = 0; output < depth_; ++output) {
        const int64_t from_panel = (first_output + output) / kPanel;
        const Real* from = other.data_.data() + (from_panel * other.depth_ + first) * kPanel + output % kPanel;
        Real* to = data_.data() + (panel * depth_ + output) * kPanel;
        for (int64_t lane = 0; lane < lanes; ++lane) to[lane] = from[lane * kPanel];
      }
    }
  }

  int64_t panels_;
  int64_t depth_;
  Buffer<Real> data_;
};

}  // namespace internal
}  // namespace leeway

#endif  // LEEWAY_MODEL_KERNELS_PACKED_MATRIX_H_
