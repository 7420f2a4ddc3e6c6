// The table of one instruction set. Included by kernels_*.cc only.

#ifndef LEEWAY_MODEL_KERNELS_KERNELS_INL_H_
#define LEEWAY_MODEL_KERNELS_KERNELS_INL_H_

#include "model/kernels/attention-inl.h"
#include "model/kernels/elementwise-inl.h"
#include "model/kernels/kernels.h"
#include "model/kernels/matrix_product-inl.h"
#include "model/kernels/product-inl.h"
#include "model/kernels/vector-inl.h"

namespace leeway::internal {
namespace LEEWAY_KERNEL_NAMESPACE {

template <typename Real>
constexpr Kernels<Real> MakeTable() {
  Kernels<Real> table{};
  table.product = &Product<Real, Real>;
  if constexpr (sizeof(Real) == sizeof(float)) table.product_bf16 = &Product<Real, uint16_t>;
  table.outer_product = &OuterProduct<Real>;
  table.rms_norm = &RmsNorm<Real>;
  table.rms_norm_backward = &RmsNormBackward<Real>;
  table.rms_inverse = &RmsInverse<Real>;
  table.rms_weight_gradient = &RmsWeightGradient<Real>;
  table.add = &Add<Real>;
  table.rotate = &Rotate<Real>;
  table.store_key_value = &StoreKeyValue<Real>;
  table.attention = &Attention<Real>;
  table.attention_backward = &AttentionBackward<Real>;
  table.swiglu = &SwiGlu<Real>;
  table.swiglu_backward = &SwiGluBackward<Real>;
  table.softmax_summary = &SoftmaxSummaryOf<Real>;
  table.softmax_max = &SoftmaxMax<Real>;
  table.softmax_sums = &SoftmaxSums<Real>;
  table.summary_of_sums = &SummaryOfSums<Real>;
  table.log_probabilities = &LogProbabilities<Real>;
  table.softmax_gradient = &SoftmaxGradient<Real>;
  table.multiply_add_chains = &MultiplyAddChains<Real>;
  table.exponential = &Exponential<Real>;
  table.logarithm = &Logarithm;
  return table;
}

}  // namespace LEEWAY_KERNEL_NAMESPACE
}  // namespace leeway::internal

#endif  // LEEWAY_MODEL_KERNELS_KERNELS_INL_H_
