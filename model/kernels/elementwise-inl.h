// Norms, rotary positions, SwiGLU and softmax. Included by kernels-inl.h.

#ifndef LEEWAY_MODEL_KERNELS_ELEMENTWISE_INL_H_
#define LEEWAY_MODEL_KERNELS_ELEMENTWISE_INL_H_

#include "model/kernels/kernels.h"
#include "model/kernels/vector-inl.h"

namespace leeway::internal {
namespace LEEWAY_KERNEL_NAMESPACE {

LEEWAY_INLINE float SquareRoot(float x) { return __builtin_sqrtf(x); }
LEEWAY_INLINE double SquareRoot(double x) { return __builtin_sqrt(x); }

template <typename Real>
LEEWAY_INLINE Real InverseNorm(const Real* x, int64_t stride, int64_t columns, Real epsilon) {
  Vec<Real> squares = Set1(Real(0));
  for (int64_t i = 0; i < stride; i += kLanes) {
    const Vec<Real> v = Load(x + i);
    squares = Fma(v, v, squares);
  }
  return Real(1) / SquareRoot(JoinSum(squares) / static_cast<Real>(columns) + epsilon);
}

template <typename Real>
void RmsNorm(const Real* x, int64_t stride, int64_t rows, int64_t columns, const Real* weight, Real epsilon, Real* y) {
  for (int64_t row = 0; row < rows; ++row, x += stride, y += stride) {
    const Vec<Real> inverse = Set1(InverseNorm(x, stride, columns, epsilon));
    for (int64_t i = 0; i < stride; i += kLanes) Store(Load(x + i) * inverse * Load(weight + i), y + i);
  }
}

template <typename Real>
void RmsInverse(const Real* x, int64_t stride, int64_t rows, int64_t columns, Real epsilon, Real* inverse) {
  for (int64_t row = 0; row < rows; ++row) inverse[row] = InverseNorm(x + row * stride, stride, columns, epsilon);
}

// y = x s w with s = (mean(x^2) + e)^(-1/2): dx = s (w dy) - x s^3 mean(x w dy).
template <typename Real>
void RmsNormBackward(const Real* x, const Real* dy, int64_t stride, int64_t rows, int64_t columns, const Real* weight,
                     Real epsilon, Real* dx) {
  for (int64_t row = 0; row < rows; ++row, x += stride, dy += stride, dx += stride) {
    const Real inverse = InverseNorm(x, stride, columns, epsilon);
    Vec<Real> products = Set1(Real(0));
    for (int64_t i = 0; i < stride; i += kLanes) products = Fma(Load(dy + i) * Load(weight + i), Load(x + i), products);
    const Real mean = JoinSum(products) / static_cast<Real>(columns);
    const Vec<Real> along = Set1(-mean * inverse * inverse * inverse);
    const Vec<Real> scale = Set1(inverse);
    for (int64_t i = 0; i < stride; i += kLanes) {
      const Vec<Real> direct = Fma(Load(dy + i) * Load(weight + i), scale, Load(dx + i));
      Store(Fma(Load(x + i), along, direct), dx + i);
    }
  }
}

template <typename Real>
void RmsWeightGradient(const Real* x, const Real* dy, const Real* inverse, int64_t stride, int64_t rows, int64_t begin,
                       int64_t end, Real* gradient) {
  constexpr int64_t kRowsOfChain = 256;
  for (int64_t j = begin; j < end; j += kLanes) {
    for (int64_t first = 0; first < rows; first += kRowsOfChain) {
      const int64_t last = first + kRowsOfChain < rows ? first + kRowsOfChain : rows;
      Vec<Real> sum = Set1(Real(0));
      for (int64_t row = first; row < last; ++row) {
        sum = Fma(Load(x + row * stride + j) * Set1(inverse[row]), Load(dy + row * stride + j), sum);
      }
      alignas(64) Real lanes[kLanes];
      Store(sum, lanes);
      for (int64_t i = j; i < end && i < j + kLanes; ++i) gradient[i] += lanes[i - j];
    }
  }
}

template <typename Real>
void Add(const Real* x, int64_t count, Real* y) {
  for (int64_t i = 0; i < count; i += kLanes) Store(Load(y + i) + Load(x + i), y + i);
}

// Products and sums rounded one by one: the same bits in groups of eight, which small heads need, and one by one.
template <typename Real>
void Rotate(Real* row, int64_t heads, int64_t head_dim, int64_t head_stride, const Real* cosines, const Real* sines,
            Real sign) {
  constexpr int64_t kGroup = 8;
  typedef Real Group __attribute__((vector_size(kGroup * sizeof(Real))));
  const int64_t half = head_dim / 2;
  const int64_t grouped = half / kGroup * kGroup;
  for (int64_t head = 0; head < heads; ++head, row += head_stride) {
    Real* const first = row;
    Real* const second = row + half;
    for (int64_t i = 0; i < grouped; i += kGroup) {
      Group a, b, cosine, sine;
      __builtin_memcpy(&a, first + i, sizeof(Group));
      __builtin_memcpy(&b, second + i, sizeof(Group));
      __builtin_memcpy(&cosine, cosines + i, sizeof(Group));
      __builtin_memcpy(&sine, sines + i, sizeof(Group));
      sine *= sign;
      const Group turned = a * cosine - b * sine;
      const Group other = b * cosine + a * sine;
      __builtin_memcpy(first + i, &turned, sizeof(Group));
      __builtin_memcpy(second + i, &other, sizeof(Group));
    }
    for (int64_t i = grouped; i < half; ++i) {
      const Real a = first[i];
      const Real b = second[i];
      const Real sine = sign * sines[i];
      first[i] = a * cosines[i] - b * sine;
      second[i] = b * cosines[i] + a * sine;
    }
  }
}

template <typename Real>
LEEWAY_INLINE Vec<Real> Sigmoid(const Vec<Real>& x) {
  const Vec<Real> one = Set1(Real(1));
  return one / (one + Exp(Set1(Real(0)) - x));
}

template <typename Real>
void SwiGlu(const Real* gate_up, int64_t rows, int64_t width, Real* y) {
  for (int64_t row = 0; row < rows; ++row, gate_up += 2 * width, y += width) {
    for (int64_t i = 0; i < width; i += kLanes) {
      const Vec<Real> gate = Load(gate_up + i);
      Store(gate * Sigmoid(gate) * Load(gate_up + width + i), y + i);
    }
  }
}

template <typename Real>
void SwiGluBackward(const Real* gate_up, const Real* dy, int64_t rows, int64_t width, Real* d_gate_up) {
  const Vec<Real> one = Set1(Real(1));
  for (int64_t row = 0; row < rows; ++row, gate_up += 2 * width, d_gate_up += 2 * width, dy += width) {
    for (int64_t i = 0; i < width; i += kLanes) {
      const Vec<Real> gate = Load(gate_up + i);
      const Vec<Real> up = Load(gate_up + width + i);
      const Vec<Real> d = Load(dy + i);
      const Vec<Real> sigmoid = Sigmoid(gate);
      // d silu(g) / dg = s (1 + g (1 - s))
      Store(d * up * sigmoid * Fma(gate, one - sigmoid, one), d_gate_up + i);
      Store(d * gate * sigmoid, d_gate_up + width + i);
    }
  }
}

// Calls body(vector of logits * inverse_temperature, index) over [begin, end); lanes beyond the end hold -infinity.
template <typename Real, typename Body>
LEEWAY_INLINE void ForLogits(const Real* logits, int64_t begin, int64_t end, Real inverse_temperature, Body body) {
  const Vec<Real> scale = Set1(inverse_temperature);
  int64_t i = begin;
  for (; i + kLanes <= end; i += kLanes) body(Load(logits + i) * scale, i);
  if (i < end) {
    alignas(64) Real lanes[kLanes];
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      lanes[lane] = i + lane < end ? logits[i + lane] : -static_cast<Real>(__builtin_inf());
    }
    body(Load(lanes) * scale, i);
  }
}

template <typename Real>
Real SoftmaxMax(const Real* logits, int64_t count, Real inverse_temperature) {
  Vec<Real> highest = Set1(-static_cast<Real>(__builtin_inf()));
  ForLogits(logits, 0, count, inverse_temperature,
            [&](const Vec<Real>& z, int64_t) LEEWAY_LAMBDA { highest = Max(z, highest); });
  return JoinMax(highest);
}

template <typename Real>
void SoftmaxSums(const Real* logits, int64_t count, int64_t blocks, Real inverse_temperature, Real max, Real* sum,
                 Real* weighted_sum) {
  const Vec<Real> max_vector = Set1(max);
  // A forbidden logit adds exp(-infinity) = 0 to the sum, and must add 0, not 0 * infinity, to the entropy.
  const Vec<Real> floor = Set1(Real(-1e30));
  // Blocks that are elsewhere add nothing.
  Real sums[4] = {};
  Real weighted[4] = {};
  for (int64_t block = 0; block < blocks; ++block) {
    Vec<Real> block_sum = Set1(Real(0));
    Vec<Real> block_weighted = Set1(Real(0));
    ForLogits(logits, count * block / blocks, count * (block + 1) / blocks, inverse_temperature,
              [&](const Vec<Real>& z, int64_t) LEEWAY_LAMBDA {
                const Vec<Real> below = z - max_vector;
                const Vec<Real> e = Exp(below);
                block_sum = block_sum + e;
                block_weighted = Fma(e, Max(floor, below), block_weighted);
              });
    sums[block] = JoinSum(block_sum);
    weighted[block] = JoinSum(block_weighted);
  }
  *sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  *weighted_sum = (weighted[0] + weighted[1]) + (weighted[2] + weighted[3]);
}

template <typename Real>
SoftmaxSummary<Real> SummaryOfSums(Real max, Real sum, Real weighted_sum) {
  const Real log_sum = static_cast<Real>(Log(static_cast<double>(sum)));
  // H = -sum p log p, log p = (z - max) - log_sum.
  return {max, log_sum, log_sum - weighted_sum / sum};
}

template <typename Real>
void SoftmaxSummaryOf(const Real* logits, int64_t count, Real inverse_temperature, SoftmaxSummary<Real>* summary) {
  const Real max = SoftmaxMax(logits, count, inverse_temperature);
  Real sum, weighted_sum;
  SoftmaxSums(logits, count, 4, inverse_temperature, max, &sum, &weighted_sum);
  *summary = SummaryOfSums(max, sum, weighted_sum);
}

// Stores the first `count` (1 to 16) lanes.
template <typename Real>
LEEWAY_INLINE void StoreFirst(const Vec<Real>& v, int64_t count, Real* p) {
  if (count >= kLanes) {
    Store(v, p);
    return;
  }
  alignas(64) Real lanes[kLanes];
  Store(v, lanes);
  for (int64_t i = 0; i < count; ++i) p[i] = lanes[i];
}

template <typename Real>
void LogProbabilities(Real* logits, int64_t count, Real inverse_temperature, const SoftmaxSummary<Real>& summary) {
  const Vec<Real> max = Set1(summary.max);
  const Vec<Real> log_sum = Set1(summary.log_sum);
  ForLogits(logits, 0, count, inverse_temperature, [&](const Vec<Real>& z, int64_t i) LEEWAY_LAMBDA {
    StoreFirst((z - max) - log_sum, count - i, logits + i);
  });
}

// d logprob_t / dz_i = [i = t] - p_i;  dH / dz_i = -p_i (log p_i + H);  z = logit * inverse_temperature.
template <typename Real>
void SoftmaxGradient(Real* logits, int64_t count, Real inverse_temperature, const SoftmaxSummary<Real>& summary,
                     int64_t target, Real logprob_gradient, Real entropy_gradient) {
  const Vec<Real> max = Set1(summary.max);
  const Vec<Real> log_sum = Set1(summary.log_sum);
  const Vec<Real> entropy = Set1(summary.entropy);
  const Vec<Real> floor = Set1(Real(-1e30));
  const Vec<Real> for_logprob = Set1(-logprob_gradient);
  const Vec<Real> for_entropy = Set1(-entropy_gradient);
  const Vec<Real> scale = Set1(inverse_temperature);
  ForLogits(logits, 0, count, inverse_temperature, [&](const Vec<Real>& z, int64_t i) LEEWAY_LAMBDA {
    const Vec<Real> logprob = Max(floor, (z - max) - log_sum);
    const Vec<Real> p = Exp(logprob);
    const Vec<Real> weight = Fma(for_entropy, logprob + entropy, for_logprob);
    StoreFirst(p * weight * scale, count - i, logits + i);
  });
  if (target >= 0) logits[target] += logprob_gradient * inverse_temperature;
}

template <typename Real>
void Exponential(const Real* x, int64_t count, Real* y) {
  for (int64_t i = 0; i < count; i += kLanes) {
    alignas(64) Real lanes[kLanes] = {};
    for (int64_t j = 0; j < kLanes && i + j < count; ++j) lanes[j] = x[i + j];
    StoreFirst(Exp(Load(lanes)), count - i, y + i);
  }
}

inline double Logarithm(double x) { return Log(x); }

}  // namespace LEEWAY_KERNEL_NAMESPACE
}  // namespace leeway::internal

#endif  // LEEWAY_MODEL_KERNELS_ELEMENTWISE_INL_H_
