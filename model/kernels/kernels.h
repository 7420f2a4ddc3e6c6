#ifndef LEEWAY_MODEL_KERNELS_KERNELS_H_
#define LEEWAY_MODEL_KERNELS_KERNELS_H_

// The table of kernels of one instruction set. The same source (*-inl.h) is compiled once per set; all tables give the
// same bits, since every sum is an explicit chain of fused multiply-adds over 16 virtual lanes, joined by a fixed tree.
//
// Layout: activations are rows of Reals with a stride that is a multiple of 16; columns beyond the true size hold
// zeros, so that kernels never treat a partial vector. Packed weights: panels of 16 output columns, [panel][k][16],
// zero-padded. Kernels hold no state, start no threads, allocate nothing, and may be called from any thread on disjoint
// outputs.

#include <cstdint>

// No other includes: this header is compiled with each instruction set's flags, and what it instantiated then could be
// the copy that the linker keeps.

namespace leeway {

enum class InstructionSet;

namespace internal {

// Lanes of a panel and of every padded row.
constexpr int64_t kPanel = 16;

constexpr __attribute__((always_inline)) inline int64_t RoundUpToPanel(int64_t n) {
  return (n + kPanel - 1) / kPanel * kPanel;
}

// Where a lane of a panel of bf16 lies, and which lane lies in a place: neighbours in a register of half as many floats
// then come from neighbours in its half of the load.
constexpr __attribute__((always_inline)) inline int64_t Bf16Lane(int64_t lane) {
  return (lane & 3) | ((lane & 4) << 1) | ((lane & 8) >> 1);
}

// Keys and values of sequences lie in tiles of 16 positions: tile t holds positions 16t to 16t+15, wherever a chunk
// began. Per layer and tile: [key_value_heads] x { keys [head_dim_padded][16 positions], values [head_dim_padded/16][16
// positions][16] }.
struct AttentionShape {
  int64_t heads = 0;
  int64_t key_value_heads = 0;
  int64_t head_dim = 0;
  int64_t head_dim_padded = 0;  // stride of a head in rows of queries, keys, values and outputs

  // Reals of one tile in one layer.
  __attribute__((always_inline)) int64_t tile_size() const { return 2 * kPanel * head_dim_padded * key_value_heads; }
  // Columns of a row of queries; of queries, keys and values side by side.
  __attribute__((always_inline)) int64_t query_width() const { return heads * head_dim_padded; }
  __attribute__((always_inline)) int64_t qkv_width() const { return (heads + 2 * key_value_heads) * head_dim_padded; }
};

// What the softmax of one row comes to: log p_i = (logit_i * inverse_temperature - max) - log_sum.
template <typename Real>
struct SoftmaxSummary {
  Real max;
  Real log_sum;
  Real entropy;
};

template <typename Real>
struct Kernels {
  // y[rows][panels of columns panel_begin..panel_end) = x[rows][k] times packed weights. k_blocks = 1: one chain over k
  // for every element; 4: four chains over [k*i/4, k*(i+1)/4), joined (b0+b1)+(b2+b3); 2: two chains over halves, as a
  // rank that holds two of the four has them. An element depends on its row and column only.
  void (*product)(const Real* x, int64_t x_stride, int64_t rows, const Real* packed, int64_t k, int64_t k_blocks,
                  int64_t panel_begin, int64_t panel_end, Real* y, int64_t y_stride);
  // The same over packed bf16 (each the upper half of a float): the bits of the product over the floats that they are.
  // Null where Real is double.
  void (*product_bf16)(const Real* x, int64_t x_stride, int64_t rows, const uint16_t* packed, int64_t k,
                       int64_t k_blocks, int64_t panel_begin, int64_t panel_end, Real* y, int64_t y_stride);

  // sum[i][j] += over rows m: a[m][i] * b[m][j], for i in [i_begin, i_end), j in [0, columns). Chains of 128 rows,
  // added in order. b's rows are readable up to the next multiple of 16 columns.
  void (*outer_product)(const Real* a, int64_t a_stride, const Real* b, int64_t b_stride, int64_t rows, int64_t i_begin,
                        int64_t i_end, int64_t columns, Real* sum, int64_t sum_stride);

  // y = x / sqrt(mean(x^2) + epsilon) * weight, for rows of `columns` true columns (weight padded with zeros).
  void (*rms_norm)(const Real* x, int64_t stride, int64_t rows, int64_t columns, const Real* weight, Real epsilon,
                   Real* y);

  // Adds the gradient to dx (same stride as x), given dy.
  void (*rms_norm_backward)(const Real* x, const Real* dy, int64_t stride, int64_t rows, int64_t columns,
                            const Real* weight, Real epsilon, Real* dx);

  // inverse[m] = 1 / sqrt(mean(x[m]^2) + epsilon).
  void (*rms_inverse)(const Real* x, int64_t stride, int64_t rows, int64_t columns, Real epsilon, Real* inverse);

  // gradient[j] += over rows: dy * x * inverse, for columns [begin, end), in row order (chains of 256 rows).
  void (*rms_weight_gradient)(const Real* x, const Real* dy, const Real* inverse, int64_t stride, int64_t rows,
                              int64_t begin, int64_t end, Real* gradient);

  // y += x over rows * stride values.
  void (*add)(const Real* x, int64_t count, Real* y);

  // Rotates `heads` heads of a row in place: pairs (i, i + head_dim/2) by the angle of cos/sin[i]; sign -1 turns back.
  void (*rotate)(Real* row, int64_t heads, int64_t head_dim, int64_t head_stride, const Real* cosines,
                 const Real* sines, Real sign);

  // Stores the keys and values of one position (rows of key_value_heads heads) into its tile.
  void (*store_key_value)(const AttentionShape& shape, const Real* keys, const Real* values, int64_t position,
                          Real* tile);

  // One row of queries at `position` against positions 0..position; tiles[t] + tile_offset is tile t of the layer.
  // scratch: 16 * tile count Reals.
  void (*attention)(const AttentionShape& shape, const Real* queries, Real* const* tiles, int64_t tile_offset,
                    int64_t position, Real scale, Real* output, Real* scratch);

  // Gradients of a whole sequence for one key/value head: qkv and d_qkv are rows [length][qkv_width] (rotated), output
  // and d_output rows [length][query_width]. Writes this head's columns of d_qkv. scratch: AttentionBackwardScratch
  // Reals.
  void (*attention_backward)(const AttentionShape& shape, int64_t key_value_head, int64_t length, const Real* qkv,
                             Real* const* tiles, int64_t tile_offset, const Real* output, const Real* d_output,
                             Real scale, Real* d_qkv, Real* scratch);

  // y = silu(gate) * up; rows of [gate (width) | up (width)].
  void (*swiglu)(const Real* gate_up, int64_t rows, int64_t width, Real* y);
  void (*swiglu_backward)(const Real* gate_up, const Real* dy, int64_t rows, int64_t width, Real* d_gate_up);

  // Softmax of logits * inverse_temperature over `count` logits, in 4 fixed blocks joined (b0+b1)+(b2+b3); -infinity =
  // not allowed.
  void (*softmax_summary)(const Real* logits, int64_t count, Real inverse_temperature, SoftmaxSummary<Real>* summary);
  // The same for a rank that holds `blocks` (1, 2 or 4) of the four: the largest logit * inverse_temperature, then,
  // given the largest of all ranks, the rank's sums of exp and of exp * log exp. summary_of_sums makes the summary of
  // the sums.
  Real (*softmax_max)(const Real* logits, int64_t count, Real inverse_temperature);
  void (*softmax_sums)(const Real* logits, int64_t count, int64_t blocks, Real inverse_temperature, Real max, Real* sum,
                       Real* weighted_sum);
  SoftmaxSummary<Real> (*summary_of_sums)(Real max, Real sum, Real weighted_sum);
  // In place: logits to log-probabilities.
  void (*log_probabilities)(Real* logits, int64_t count, Real inverse_temperature, const SoftmaxSummary<Real>& summary);
  // In place: logits to gradients of logprob_gradient * logprob(target) + entropy_gradient * entropy; target -1 = not
  // among these logits.
  void (*softmax_gradient)(Real* logits, int64_t count, Real inverse_temperature, const SoftmaxSummary<Real>& summary,
                           int64_t target, Real logprob_gradient, Real entropy_gradient);

  // `steps` fused multiply-adds on independent chains that fill the registers, with nothing to load: what the processor
  // can do at most. Returns the operations done (a multiply-add is two); *sink keeps the compiler from leaving them
  // out.
  int64_t (*multiply_add_chains)(int64_t steps, Real* sink);

  // y[i] = exp(x[i]); for tests of the routine that all of the above share.
  void (*exponential)(const Real* x, int64_t count, Real* y);
  double (*logarithm)(double x);
};

// Scratch of attention_backward for a sequence of `length` positions.
__attribute__((always_inline)) inline int64_t AttentionBackwardScratch(const AttentionShape& shape, int64_t length) {
  const int64_t padded = RoundUpToPanel(length);
  return padded * shape.head_dim_padded * 3 + 2 * kPanel * padded;
}

// The table of a supported set. Instantiated for float and double.
template <typename Real>
const Kernels<Real>& KernelsFor(InstructionSet set);

// One function per file compiled for that set.
template <typename Real>
const Kernels<Real>& ScalarKernels();
template <typename Real>
const Kernels<Real>& Avx2Kernels();
template <typename Real>
const Kernels<Real>& Avx512Kernels();

}  // namespace internal
}  // namespace leeway

#endif  // LEEWAY_MODEL_KERNELS_KERNELS_H_
