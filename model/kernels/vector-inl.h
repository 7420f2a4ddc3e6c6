// Sixteen virtual lanes over the registers of one instruction set. Included by kernels_*.cc only, each of which defines
// LEEWAY_KERNEL_NAMESPACE and LEEWAY_KERNEL_LEVEL (0 scalar, 1 AVX2, 2 AVX-512).
//
// Every operation is one IEEE operation per lane, so the lanes hold the same bits whatever the register width. No
// standard library templates here: a function instantiated in such a file could be the copy that the linker keeps for
// everybody.

#ifndef LEEWAY_MODEL_KERNELS_VECTOR_INL_H_
#define LEEWAY_MODEL_KERNELS_VECTOR_INL_H_

#include <cstdint>

#if LEEWAY_KERNEL_LEVEL > 0
// GCC 12 takes the header's own "undefined" operands for a mistake (GCC bug 105593).
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#ifndef __clang__
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#pragma GCC diagnostic pop
#endif

#define LEEWAY_INLINE inline __attribute__((always_inline))
#define LEEWAY_LAMBDA __attribute__((always_inline))
// Loops over registers: must be unrolled, or the arrays of vectors end in memory. Scalars end there anyway, and
// unrolled they cost a compiler with sanitizers minutes.
#if LEEWAY_KERNEL_LEVEL > 0
#define LEEWAY_UNROLL _Pragma("GCC unroll 16")
#else
#define LEEWAY_UNROLL
#endif

namespace leeway::internal {
namespace LEEWAY_KERNEL_NAMESPACE {

constexpr int kLanes = 16;

// One hardware register of Reals: type, integer twin and the operations that operators do not give.
template <typename Real>
struct Register;

#if LEEWAY_KERNEL_LEVEL == 2

template <>
struct Register<float> {
  typedef float Type __attribute__((vector_size(64)));
  typedef int32_t Int __attribute__((vector_size(64)));
  static LEEWAY_INLINE Type Set1(float x) { return _mm512_set1_ps(x); }
  static LEEWAY_INLINE Type Fma(Type a, Type b, Type c) { return _mm512_fmadd_ps(a, b, c); }
  static LEEWAY_INLINE Type Max(Type a, Type b) { return _mm512_max_ps(a, b); }
  static LEEWAY_INLINE Type Min(Type a, Type b) { return _mm512_min_ps(a, b); }
  // All ones where a <= b.
  static LEEWAY_INLINE Int AtMost(Type a, Type b) { return a <= b; }
};

template <>
struct Register<double> {
  typedef double Type __attribute__((vector_size(64)));
  typedef int64_t Int __attribute__((vector_size(64)));
  static LEEWAY_INLINE Type Set1(double x) { return _mm512_set1_pd(x); }
  static LEEWAY_INLINE Type Fma(Type a, Type b, Type c) { return _mm512_fmadd_pd(a, b, c); }
  static LEEWAY_INLINE Type Max(Type a, Type b) { return _mm512_max_pd(a, b); }
  static LEEWAY_INLINE Type Min(Type a, Type b) { return _mm512_min_pd(a, b); }
  // All ones where a <= b.
  static LEEWAY_INLINE Int AtMost(Type a, Type b) { return a <= b; }
};

#elif LEEWAY_KERNEL_LEVEL == 1

template <>
struct Register<float> {
  typedef float Type __attribute__((vector_size(32)));
  typedef int32_t Int __attribute__((vector_size(32)));
  static LEEWAY_INLINE Type Set1(float x) { return _mm256_set1_ps(x); }
  static LEEWAY_INLINE Type Fma(Type a, Type b, Type c) { return _mm256_fmadd_ps(a, b, c); }
  static LEEWAY_INLINE Type Max(Type a, Type b) { return _mm256_max_ps(a, b); }
  static LEEWAY_INLINE Type Min(Type a, Type b) { return _mm256_min_ps(a, b); }
  // All ones where a <= b.
  static LEEWAY_INLINE Int AtMost(Type a, Type b) { return a <= b; }
};

template <>
struct Register<double> {
  typedef double Type __attribute__((vector_size(32)));
  typedef int64_t Int __attribute__((vector_size(32)));
  static LEEWAY_INLINE Type Set1(double x) { return _mm256_set1_pd(x); }
  static LEEWAY_INLINE Type Fma(Type a, Type b, Type c) { return _mm256_fmadd_pd(a, b, c); }
  static LEEWAY_INLINE Type Max(Type a, Type b) { return _mm256_max_pd(a, b); }
  static LEEWAY_INLINE Type Min(Type a, Type b) { return _mm256_min_pd(a, b); }
  // All ones where a <= b.
  static LEEWAY_INLINE Int AtMost(Type a, Type b) { return a <= b; }
};

#else

// Max and Min choose as the x86 instructions do: the second operand if one is not a number.
template <>
struct Register<float> {
  typedef float Type;
  typedef int32_t Int;
  static LEEWAY_INLINE Type Set1(float x) { return x; }
  static LEEWAY_INLINE Type Fma(Type a, Type b, Type c) { return __builtin_fmaf(a, b, c); }
  static LEEWAY_INLINE Type Max(Type a, Type b) { return a > b ? a : b; }
  static LEEWAY_INLINE Type Min(Type a, Type b) { return a < b ? a : b; }
  static LEEWAY_INLINE Int AtMost(Type a, Type b) { return a <= b ? -1 : 0; }
};

template <>
struct Register<double> {
  typedef double Type;
  typedef int64_t Int;
  static LEEWAY_INLINE Type Set1(double x) { return x; }
  static LEEWAY_INLINE Type Fma(Type a, Type b, Type c) { return __builtin_fma(a, b, c); }
  static LEEWAY_INLINE Type Max(Type a, Type b) { return a > b ? a : b; }
  static LEEWAY_INLINE Type Min(Type a, Type b) { return a < b ? a : b; }
  static LEEWAY_INLINE Int AtMost(Type a, Type b) { return a <= b ? -1 : 0; }
};

#endif

// Sixteen Reals in as many registers as that takes.
template <typename Real>
struct Vec {
  using R = Register<Real>;
  using Type = typename R::Type;
  using Int = typename R::Int;
  static constexpr int kParts = kLanes * sizeof(Real) / sizeof(Type);
  static constexpr int kWidth = kLanes / kParts;
  Type part[kParts];
};

template <typename Real>
LEEWAY_INLINE Vec<Real> Load(const Real* p) {
  Vec<Real> v;
  LEEWAY_UNROLL for (int i = 0; i < Vec<Real>::kParts; ++i) {
    __builtin_memcpy(&v.part[i], p + i * Vec<Real>::kWidth, sizeof(v.part[i]));
  }
  return v;
}

template <typename Real>
LEEWAY_INLINE void Store(const Vec<Real>& v, Real* p) {
  LEEWAY_UNROLL for (int i = 0; i < Vec<Real>::kParts; ++i) {
    __builtin_memcpy(p + i * Vec<Real>::kWidth, &v.part[i], sizeof(v.part[i]));
  }
}

template <typename Real>
LEEWAY_INLINE Vec<Real> Set1(Real x) {
  Vec<Real> v;
  LEEWAY_UNROLL for (int i = 0; i < Vec<Real>::kParts; ++i) v.part[i] = Register<Real>::Set1(x);
  return v;
}

#define LEEWAY_LANEWISE(name, expression)                                             \
  template <typename Real>                                                            \
  LEEWAY_INLINE Vec<Real> name(const Vec<Real>& a, const Vec<Real>& b) {              \
    Vec<Real> v;                                                                      \
    LEEWAY_UNROLL for (int i = 0; i < Vec<Real>::kParts; ++i) v.part[i] = expression; \
    return v;                                                                         \
  }
LEEWAY_LANEWISE(operator+, a.part[i] + b.part[i])
LEEWAY_LANEWISE(operator-, a.part[i] - b.part[i])
LEEWAY_LANEWISE(operator*, a.part[i] * b.part[i])
LEEWAY_LANEWISE(operator/, a.part[i] / b.part[i])
LEEWAY_LANEWISE(Max, Register<Real>::Max(a.part[i], b.part[i]))
LEEWAY_LANEWISE(Min, Register<Real>::Min(a.part[i], b.part[i]))
#undef LEEWAY_LANEWISE

// a * b + c, rounded once.
template <typename Real>
LEEWAY_INLINE Vec<Real> Fma(const Vec<Real>& a, const Vec<Real>& b, const Vec<Real>& c) {
  Vec<Real> v;
  LEEWAY_UNROLL for (int i = 0; i < Vec<Real>::kParts; ++i) {
    v.part[i] = Register<Real>::Fma(a.part[i], b.part[i], c.part[i]);
  }
  return v;
}

// The first `count` lanes of v (0 to 16), `fill` in the others, whatever those held.
template <typename Real>
LEEWAY_INLINE Vec<Real> KeepFirst(const Vec<Real>& v, int count, Real fill) {
  using Int = typename Vec<Real>::Int;
  static_assert(sizeof(Int) == sizeof(typename Vec<Real>::Type));
  // Sixteen ones, then sixteen zeros: a window into it is the mask.
  alignas(64) static const int64_t kMask64[2 * kLanes] = {-1, -1, -1, -1, -1, -1, -1, -1,
                                                          -1, -1, -1, -1, -1, -1, -1, -1};
  alignas(64) static const int32_t kMask32[2 * kLanes] = {-1, -1, -1, -1, -1, -1, -1, -1,
                                                          -1, -1, -1, -1, -1, -1, -1, -1};
  const char* window = sizeof(Real) == 4 ? reinterpret_cast<const char*>(kMask32 + kLanes - count)
                                         : reinterpret_cast<const char*>(kMask64 + kLanes - count);
  Vec<Real> result;
  LEEWAY_UNROLL for (int i = 0; i < Vec<Real>::kParts; ++i) {
    Int mask, bits, fill_bits;
    const typename Vec<Real>::Type filler = Register<Real>::Set1(fill);
    __builtin_memcpy(&mask, window + i * sizeof(Int), sizeof(mask));
    __builtin_memcpy(&bits, &v.part[i], sizeof(bits));
    __builtin_memcpy(&fill_bits, &filler, sizeof(fill_bits));
    bits = (bits & mask) | (fill_bits & ~mask);
    __builtin_memcpy(&result.part[i], &bits, sizeof(bits));
  }
  return result;
}

struct SumOf {
  template <typename T>
  static LEEWAY_INLINE T Of(T a, T b) {
    return a + b;
  }
#if LEEWAY_KERNEL_LEVEL > 0
  static LEEWAY_INLINE __m256 Of(__m256 a, __m256 b) { return _mm256_add_ps(a, b); }
  static LEEWAY_INLINE __m256d Of(__m256d a, __m256d b) { return _mm256_add_pd(a, b); }
  static LEEWAY_INLINE __m128 Of(__m128 a, __m128 b) { return _mm_add_ps(a, b); }
  static LEEWAY_INLINE __m128d Of(__m128d a, __m128d b) { return _mm_add_pd(a, b); }
#endif
};

// The larger, chosen as Register's Max does.
struct MaxOf {
  template <typename T>
  static LEEWAY_INLINE T Of(T a, T b) {
    return a > b ? a : b;
  }
#if LEEWAY_KERNEL_LEVEL > 0
  static LEEWAY_INLINE __m256 Of(__m256 a, __m256 b) { return _mm256_max_ps(a, b); }
  static LEEWAY_INLINE __m256d Of(__m256d a, __m256d b) { return _mm256_max_pd(a, b); }
  static LEEWAY_INLINE __m128 Of(__m128 a, __m128 b) { return _mm_max_ps(a, b); }
  static LEEWAY_INLINE __m128d Of(__m128d a, __m128d b) { return _mm_max_pd(a, b); }
#endif
};

// The fixed tree over sixteen lanes: lane i with i+8, then i+4, i+2, i+1.
#if LEEWAY_KERNEL_LEVEL > 0

// The last three levels, from eight floats; the last two, from four doubles.
template <typename Operation>
LEEWAY_INLINE float JoinEight(__m256 v) {
  const __m128 four = Operation::Of(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  const __m128 two = Operation::Of(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(Operation::Of(two, _mm_movehdup_ps(two)));
}
template <typename Operation>
LEEWAY_INLINE double JoinFour(__m256d v) {
  const __m128d two = Operation::Of(_mm256_castpd256_pd128(v), _mm256_extractf128_pd(v, 1));
  return _mm_cvtsd_f64(Operation::Of(two, _mm_unpackhi_pd(two, two)));
}

#if LEEWAY_KERNEL_LEVEL == 2
template <typename Operation>
LEEWAY_INLINE float Join(const Vec<float>& v) {
  return JoinEight<Operation>(Operation::Of(_mm512_castps512_ps256(v.part[0]), _mm512_extractf32x8_ps(v.part[0], 1)));
}
template <typename Operation>
LEEWAY_INLINE double Join(const Vec<double>& v) {
  const __m256d low = Operation::Of(_mm512_castpd512_pd256(v.part[0]), _mm512_castpd512_pd256(v.part[1]));
  const __m256d high = Operation::Of(_mm512_extractf64x4_pd(v.part[0], 1), _mm512_extractf64x4_pd(v.part[1], 1));
  return JoinFour<Operation>(Operation::Of(low, high));
}
#else
template <typename Operation>
LEEWAY_INLINE float Join(const Vec<float>& v) {
  return JoinEight<Operation>(Operation::Of(static_cast<__m256>(v.part[0]), static_cast<__m256>(v.part[1])));
}
template <typename Operation>
LEEWAY_INLINE double Join(const Vec<double>& v) {
  const __m256d low = Operation::Of(static_cast<__m256d>(v.part[0]), static_cast<__m256d>(v.part[2]));
  const __m256d high = Operation::Of(static_cast<__m256d>(v.part[1]), static_cast<__m256d>(v.part[3]));
  return JoinFour<Operation>(Operation::Of(low, high));
}
#endif

#else

template <typename Operation, typename Real>
LEEWAY_INLINE Real Join(const Vec<Real>& v) {
  Vec<Real> lane = v;
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) lane.part[i] = Operation::Of(lane.part[i], lane.part[i + half]);
  }
  return lane.part[0];
}

#endif

template <typename Real>
LEEWAY_INLINE Real JoinSum(const Vec<Real>& v) {
  return Join<SumOf>(v);
}

template <typename Real>
LEEWAY_INLINE Real JoinMax(const Vec<Real>& v) {
  return Join<MaxOf>(v);
}

// Constants of the exponential: exp(x) = 2^n * exp(r), n = round(x / ln 2), |r| <= ln(2) / 2, Taylor to a term below
// half a unit.
template <typename Real>
struct ExpConstants;

template <>
struct ExpConstants<float> {
  static constexpr float kLowest = -104.0f;     // exp is 0 from here down
  static constexpr float kHighest = 89.0f;      // and infinite from here up
  static constexpr float kMagic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to a whole number, kept in the low bits
  static constexpr float kLog2E = 1.44269504088896341f;
  static constexpr float kLn2High = 0.693359375f;
  static constexpr float kLn2Low = -2.12194440e-4f;
  static constexpr int kDegree = 7;
  static constexpr int kBias = 127;
  static constexpr int kMantissaBits = 23;
};

template <>
struct ExpConstants<double> {
  static constexpr double kLowest = -746.0;
  static constexpr double kHighest = 710.0;
  static constexpr double kMagic = 6755399441055744.0;  // 1.5 * 2^52
  static constexpr double kLog2E = 1.44269504088896340735992468100189214;
  static constexpr double kLn2High = 6.93147180369123816490e-01;
  static constexpr double kLn2Low = 1.90821492927058770002e-10;
  static constexpr int kDegree = 13;
  static constexpr int kBias = 1023;
  static constexpr int kMantissaBits = 52;
};

// 1 / n!
template <typename Real>
constexpr Real InverseFactorial(int n) {
  double factorial = 1;
  for (int i = 2; i <= n; ++i) factorial *= i;
  return static_cast<Real>(1.0 / factorial);
}

// The one exponential of the whole system. exp(0) = 1, exp(-infinity) = 0, NaN stays NaN, denormal results are rounded
// once.
template <typename Real>
LEEWAY_INLINE Vec<Real> Exp(const Vec<Real>& argument) {
  using C = ExpConstants<Real>;
  using R = Register<Real>;
  using Type = typename R::Type;
  using Int = typename R::Int;
  Vec<Real> result;
  LEEWAY_UNROLL for (int i = 0; i < Vec<Real>::kParts; ++i) {
    // Where the result is zero the arithmetic runs on zero instead: a product that underflows takes the processor a
    // hundred times longer, and forbidden positions would meet it at every turn.
    const Int is_zero = R::AtMost(argument.part[i], R::Set1(C::kLowest));
    Int argument_bits;
    __builtin_memcpy(&argument_bits, &argument.part[i], sizeof(Int));
    argument_bits &= ~is_zero;
    Type x;
    __builtin_memcpy(&x, &argument_bits, sizeof(Int));
    // The argument is the second operand, so that NaN passes.
    x = R::Min(R::Set1(C::kHighest), x);
    const Type magic = R::Set1(C::kMagic);
    const Type shifted = R::Fma(x, R::Set1(C::kLog2E), magic);
    const Type n = shifted - magic;
    const Type r = R::Fma(n, R::Set1(-C::kLn2Low), R::Fma(n, R::Set1(-C::kLn2High), x));
    Type p = R::Set1(InverseFactorial<Real>(C::kDegree));
    LEEWAY_UNROLL for (int k = C::kDegree - 1; k >= 0; --k) p = R::Fma(p, r, R::Set1(InverseFactorial<Real>(k)));
    Int shifted_bits, magic_bits;
    __builtin_memcpy(&shifted_bits, &shifted, sizeof(Int));
    __builtin_memcpy(&magic_bits, &magic, sizeof(Int));
    // 2^n in two factors, since n may pass the exponent's range on either side.
    const Int whole = shifted_bits - magic_bits;
    const Int half = whole >> 1;
    const Int first_bits = (half + C::kBias) << C::kMantissaBits;
    const Int second_bits = (whole - half + C::kBias) << C::kMantissaBits;
    Type first, second;
    __builtin_memcpy(&first, &first_bits, sizeof(Int));
    __builtin_memcpy(&second, &second_bits, sizeof(Int));
    const Type value = p * first * second;
    Int value_bits;
    __builtin_memcpy(&value_bits, &value, sizeof(Int));
    value_bits &= ~is_zero;
    __builtin_memcpy(&result.part[i], &value_bits, sizeof(Int));
  }
  return result;
}

// Natural logarithm of a positive normal number, in double for both Reals: it is taken once a row.
// log(m * 2^e) = e ln 2 + 2 atanh((m-1)/(m+1)), m in [sqrt(1/2), sqrt(2)), series to s^19.
LEEWAY_INLINE double Log(double x) {
  int64_t bits;
  __builtin_memcpy(&bits, &x, sizeof(bits));
  if (!(x > 0) || bits >= (int64_t{2047} << 52)) return x > 0 ? x : (x == 0 ? -__builtin_inf() : __builtin_nan(""));
  int64_t exponent = (bits >> 52) - 1023;
  bits = (bits & ((int64_t{1} << 52) - 1)) | (int64_t{1023} << 52);
  double m;
  __builtin_memcpy(&m, &bits, sizeof(m));
  if (m > 1.41421356237309504880) {
    m *= 0.5;
    ++exponent;
  }
  const double s = (m - 1.0) / (m + 1.0);
  const double s2 = s * s;
  double series = 1.0 / 23.0;
  for (int k = 21; k >= 3; k -= 2) series = __builtin_fma(series, s2, 1.0 / k);
  const double e = static_cast<double>(exponent);
  // Small parts first; the high part of ln 2 times e is exact.
  const double low = __builtin_fma(series * s2, 2.0 * s, e * ExpConstants<double>::kLn2Low);
  return __builtin_fma(e, ExpConstants<double>::kLn2High, 2.0 * s + low);
}

}  // namespace LEEWAY_KERNEL_NAMESPACE
}  // namespace leeway::internal

#endif  // LEEWAY_MODEL_KERNELS_VECTOR_INL_H_
