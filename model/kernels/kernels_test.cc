#include "model/kernels/kernels.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/instruction_set.h"
#include "model/kernels/packed_matrix.h"
#include "model/random_case.h"

namespace leeway {
namespace internal {
namespace {

std::vector<InstructionSet> SupportedSets() {
  std::vector<InstructionSet> sets;
  for (const InstructionSet set : {InstructionSet::kScalar, InstructionSet::kAvx2, InstructionSet::kAvx512}) {
    if (IsSupported(set)) sets.push_back(set);
  }
  return sets;
}

template <typename Real>
std::vector<Real> RandomValues(int64_t count, uint64_t seed) {
  RandomStream stream = Stream(seed);
  std::vector<Real> values(static_cast<size_t>(count));
  for (Real& value : values) value = static_cast<Real>(stream.NextNormal());
  return values;
}

template <typename Real>
Real ExpOf(InstructionSet set, Real x) {
  Real y;
  KernelsFor<Real>(set).exponential(&x, 1, &y);
  return y;
}

// Distance in units of the last place of `exact` rounded to Real, for results in the normal range.
template <typename Real>
double Units(Real value, long double exact) {
  const Real rounded = static_cast<Real>(exact);
  const Real above = std::nextafter(rounded, std::numeric_limits<Real>::infinity());
  return static_cast<double>(std::abs(static_cast<long double>(value) - exact) /
                             (static_cast<long double>(above) - rounded));
}

TEST(ExponentialTest, FloatIsWithinOneAndAHalfUnitsOverTheWholeRange) {
  const Kernels<float>& kernels = KernelsFor<float>(ActiveInstructionSet());
  // Every 1,009th float between the smallest that gives a denormal and the largest that stays finite, of both signs.
  double worst = 0;
  std::vector<float> x, y;
  for (uint32_t bits = 0; bits < 0x42b17217u; bits += 1009) {
    float value;
    std::memcpy(&value, &bits, sizeof(value));
    x.push_back(value);
    x.push_back(-value);
  }
  y.resize(x.size());
  kernels.exponential(x.data(), static_cast<int64_t>(x.size()), y.data());
  for (size_t i = 0; i < x.size(); ++i) worst = std::max(worst, Units(y[i], std::exp(static_cast<long double>(x[i]))));
  EXPECT_LT(worst, 1.5);
}

TEST(ExponentialTest, DoubleIsWithinOneAndAHalfUnits) {
  const Kernels<double>& kernels = KernelsFor<double>(ActiveInstructionSet());
  RandomStream stream = Stream(1);
  double worst = 0;
  std::vector<double> x, y;
  for (int i = 0; i < 200'000; ++i) x.push_back((stream.NextUniform() * 2 - 1) * (i % 4 == 0 ? 1.0 : 708.0));
  y.resize(x.size());
  kernels.exponential(x.data(), static_cast<int64_t>(x.size()), y.data());
  for (size_t i = 0; i < x.size(); ++i) worst = std::max(worst, Units(y[i], std::exp(static_cast<long double>(x[i]))));
  EXPECT_LT(worst, 1.5);
}

template <typename Real>
void CheckSpecialValues() {
  constexpr Real kInfinity = std::numeric_limits<Real>::infinity();
  for (const InstructionSet set : SupportedSets()) {
    EXPECT_EQ(ExpOf<Real>(set, Real(0)), Real(1));
    EXPECT_EQ(ExpOf<Real>(set, Real(-0.0)), Real(1));
    EXPECT_EQ(ExpOf<Real>(set, -kInfinity), Real(0));
    EXPECT_EQ(ExpOf<Real>(set, Real(-1e30)), Real(0));
    EXPECT_EQ(ExpOf<Real>(set, kInfinity), kInfinity);
    EXPECT_EQ(ExpOf<Real>(set, Real(1e30)), kInfinity);
    EXPECT_TRUE(std::isnan(ExpOf<Real>(set, std::numeric_limits<Real>::quiet_NaN())));
  }
}

TEST(ExponentialTest, SpecialValuesAreExact) {
  CheckSpecialValues<float>();
  CheckSpecialValues<double>();
  for (const InstructionSet set : SupportedSets()) {
    // The smallest denormals come out once rounded, not as zero.
    EXPECT_EQ(ExpOf<float>(set, -103.0f), static_cast<float>(std::exp(-103.0L)));
    EXPECT_EQ(ExpOf<double>(set, -745.0), static_cast<double>(std::exp(-745.0L)));
    EXPECT_TRUE(std::isfinite(ExpOf<float>(set, 88.7f)));
    EXPECT_TRUE(std::isfinite(ExpOf<double>(set, 709.7)));
  }
}

TEST(LogarithmTest, IsNearlyExact) {
  RandomStream stream = Stream(2);
  for (const InstructionSet set : SupportedSets()) {
    const auto log = KernelsFor<float>(set).logarithm;
    EXPECT_EQ(log(1.0), 0.0);
    EXPECT_EQ(log(std::numeric_limits<double>::infinity()), std::numeric_limits<double>::infinity());
    EXPECT_EQ(log(0.0), -std::numeric_limits<double>::infinity());
    EXPECT_TRUE(std::isnan(log(std::numeric_limits<double>::quiet_NaN())));
    EXPECT_TRUE(std::isnan(log(-1.0)));
    for (int i = 0; i < 20'000; ++i) {
      const double x = std::exp((stream.NextUniform() - 0.2) * 20);
      EXPECT_NEAR(log(x), static_cast<double>(std::log(static_cast<long double>(x))),
                  3e-16 * (1 + std::abs(std::log(x))))
          << x;
    }
  }
}

// One chain of fused multiply-adds over [begin, end).
template <typename Real>
Real Chain(const Real* x, const Real* w, int64_t begin, int64_t end) {
  Real sum = 0;
  for (int64_t i = begin; i < end; ++i) sum = std::fma(x[i], w[i], sum);
  return sum;
}

template <typename Real>
void CheckProducts() {
  for (const int64_t depth : {1, 5, 64, 300, 777}) {
    for (const int64_t outputs : {1, 16, 50, 200}) {
      // More rows than one block of the product, at one depth: the scalar kernels are slow.
      const int64_t most_rows = depth == 64 ? 400 : 29;
      const std::vector<Real> x = RandomValues<Real>(most_rows * depth + kPanel, 3);
      const std::vector<Real> w = RandomValues<Real>(outputs * depth, 4);
      PackedMatrix<Real> packed(outputs, depth);
      packed.SetBlock(0, 0, w.data(), depth, outputs, depth);
      const int64_t stride = packed.padded_outputs();
      for (const int64_t blocks : {1, 4}) {
        std::vector<Real> expected(static_cast<size_t>(most_rows * stride), Real(0));
        for (int64_t row = 0; row < most_rows; ++row) {
          for (int64_t n = 0; n < outputs; ++n) {
            const Real* a = x.data() + row * depth;
            const Real* b = w.data() + n * depth;
            Real part[4];
            for (int64_t i = 0; i < 4; ++i) part[i] = Chain(a, b, depth * i / 4, depth * (i + 1) / 4);
            expected[row * stride + n] =
                blocks == 1 ? Chain(a, b, 0, depth) : (part[0] + part[1]) + (part[2] + part[3]);
          }
        }
        for (const InstructionSet set : SupportedSets()) {
          for (const int64_t rows : {int64_t{1}, int64_t{2}, int64_t{3}, int64_t{6}, int64_t{7}, int64_t{8},
                                     int64_t{13}, int64_t{14}, int64_t{15}, most_rows}) {
            // In two ranges of panels, as two threads would.
            std::vector<Real> y(static_cast<size_t>(rows * stride), Real(-1));
            const int64_t middle = packed.panels() / 3;
            const Kernels<Real>& kernels = KernelsFor<Real>(set);
            kernels.product(x.data(), depth, rows, packed.data(), depth, blocks, 0, middle, y.data(), stride);
            kernels.product(x.data(), depth, rows, packed.data(), depth, blocks, middle, packed.panels(), y.data(),
                            stride);
            EXPECT_EQ(std::memcmp(y.data(), expected.data(), y.size() * sizeof(Real)), 0)
                << InstructionSetName(set) << " depth " << depth << " outputs " << outputs << " blocks " << blocks
                << " rows " << rows;
          }
        }
      }
    }
  }
}

// A bf16 product is the product over the floats that the weights are.
TEST(ProductTest, Bf16EqualsTheProductOverTheSameWeightsAsFloats) {
  // Depths in one piece and in several, in blocks that have to be widened panel by panel, and in blocks that are too
  // long for that.
  for (const int64_t depth : {1, 7, 64, 300, 1400, 2600, 9000, 34'000}) {
    for (const int64_t outputs : {1, 16, 50, 200}) {
      if (depth > 1400 && outputs == 50) continue;
      const int64_t most_rows = depth > 1400 ? 33 : 100;
      const std::vector<float> x = RandomValues<float>(most_rows * depth + kPanel, 8);
      const std::vector<float> w = RandomValues<float>(outputs * depth, 9);
      PackedMatrix<float> rounded(outputs, depth, WeightFormat::kRoundedReal);
      PackedMatrix<float> bf16(outputs, depth, WeightFormat::kBf16);
      rounded.SetBlock(0, 0, w.data(), depth, outputs, depth);
      bf16.SetBlock(0, 0, w.data(), depth, outputs, depth);
      const int64_t stride = rounded.padded_outputs();
      for (const int64_t blocks : {1, 2, 4}) {
        for (const InstructionSet set : SupportedSets()) {
          const Kernels<float>& kernels = KernelsFor<float>(set);
          for (const int64_t rows : {1, 2, 3, 4, 5, 6, 7, 13, 14, 15, 29, static_cast<int>(most_rows)}) {
            // The scalar kernels are slow.
            if (set == InstructionSet::kScalar && rows * depth * outputs > 2'000'000) continue;
            std::vector<float> expected(static_cast<size_t>(rows * stride), -1.0f), y = expected;
            const int64_t middle = rounded.panels() / 3;
            rounded.Product(kernels, x.data(), depth, rows, blocks, 0, rounded.panels(), expected.data());
            bf16.Product(kernels, x.data(), depth, rows, blocks, 0, middle, y.data());
            bf16.Product(kernels, x.data(), depth, rows, blocks, middle, bf16.panels(), y.data());
            ASSERT_TRUE(SameBits(y, expected)) << InstructionSetName(set) << " depth " << depth << " outputs "
                                               << outputs << " blocks " << blocks << " rows " << rows;
          }
        }
      }
    }
  }
}

TEST(PackedMatrixTest, Bf16RoundsToNearestEvenAndTransposes) {
  // Halves between neighbours go to the even one; infinity and what is not a number stay what they are.
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::pair<float, float> values[] = {{1.0f, 1.0f},
                                            {1.00390625f, 1.0f},        // 1 + 2^-8
                                            {1.01171875f, 1.015625f},   // 1 + 3 * 2^-8
                                            {1.00390637f, 1.0078125f},  // a little more than half
                                            {-1.00390625f, -1.0f},
                                            {3.4028235e38f, kInfinity},  // beyond the largest
                                            {-kInfinity, -kInfinity}};
  for (const auto& [value, rounded] : values) EXPECT_EQ(FromBf16(ToBf16(value)), rounded) << value;
  EXPECT_TRUE(std::isnan(FromBf16(ToBf16(std::numeric_limits<float>::quiet_NaN()))));
  ParallelFor parallel(2);
  const int64_t outputs = 50, depth = 37;
  const std::vector<float> w = RandomValues<float>(outputs * depth, 10);
  std::vector<float> transposed(static_cast<size_t>(outputs * depth));
  for (int64_t o = 0; o < outputs; ++o) {
    for (int64_t d = 0; d < depth; ++d) transposed[d * outputs + o] = w[o * depth + d];
  }
  PackedMatrix<float> from(outputs, depth, WeightFormat::kBf16),
      to(depth, RoundUpToPanel(outputs), WeightFormat::kBf16);
  PackedMatrix<float> expected(depth, RoundUpToPanel(outputs), WeightFormat::kBf16);
  from.SetBlock(0, 0, w.data(), depth, outputs, depth);
  to.SetTransposed(from, &parallel);
  expected.SetBlock(0, 0, transposed.data(), outputs, depth, outputs);
  const std::vector<float> x = RandomValues<float>(3 * 64, 11);
  std::vector<float> y(3 * 48), expected_y(3 * 48);
  const Kernels<float>& kernels = KernelsFor<float>(ActiveInstructionSet());
  to.Product(kernels, x.data(), 64, 3, 1, 0, to.panels(), y.data());
  expected.Product(kernels, x.data(), 64, 3, 1, 0, to.panels(), expected_y.data());
  EXPECT_TRUE(SameBits(y, expected_y));
  EXPECT_EQ(to.size_bytes(), 48 * 64 * 2);
}

TEST(ProductTest, FloatEqualsPlainChainsToTheBit) { CheckProducts<float>(); }
TEST(ProductTest, DoubleEqualsPlainChainsToTheBit) { CheckProducts<double>(); }

TEST(OuterProductTest, EqualsPlainChainsToTheBitAndWritesNothingElse) {
  for (const int64_t rows : {1, 127, 128, 300}) {
    for (const int64_t outputs : {1, 13, 100}) {
      for (const int64_t columns : {1, 16, 45, 150}) {
        const int64_t a_stride = outputs + 3;
        const int64_t b_stride = RoundUpToPanel(columns);
        const std::vector<float> a = RandomValues<float>(rows * a_stride, 5);
        const std::vector<float> b = RandomValues<float>(rows * b_stride, 6);
        const int64_t stride = columns + 2;
        const std::vector<float> before = RandomValues<float>(outputs * stride, 7);
        std::vector<float> expected = before;
        for (int64_t i = 0; i < outputs; ++i) {
          for (int64_t j = 0; j < columns; ++j) {
            for (int64_t first = 0; first < rows; first += 128) {
              float sum = 0;
              for (int64_t m = first; m < std::min(rows, first + 128); ++m)
                sum = std::fma(a[m * a_stride + i], b[m * b_stride + j], sum);
              expected[i * stride + j] += sum;
            }
          }
        }
        for (const InstructionSet set : SupportedSets()) {
          std::vector<float> sum = before;
          const int64_t middle = outputs / 2;
          for (const auto& [begin, end] :
               {std::pair<int64_t, int64_t>{0, middle}, std::pair<int64_t, int64_t>{middle, outputs}}) {
            KernelsFor<float>(set).outer_product(a.data(), a_stride, b.data(), b_stride, rows, begin, end, columns,
                                                 sum.data(), stride);
          }
          EXPECT_TRUE(SameBits(sum, expected))
              << InstructionSetName(set) << " " << rows << " " << outputs << " " << columns;
        }
      }
    }
  }
}

TEST(SoftmaxTest, ForbiddenLogitsAndExtremeOnesAreHandled) {
  constexpr float kForbidden = -std::numeric_limits<float>::infinity();
  for (const InstructionSet set : SupportedSets()) {
    const Kernels<float>& kernels = KernelsFor<float>(set);
    std::vector<float> logits = {kForbidden, 3.0f, kForbidden, 3.0f, kForbidden};
    SoftmaxSummary<float> summary;
    kernels.softmax_summary(logits.data(), 5, 1.0f, &summary);
    EXPECT_EQ(summary.max, 3.0f);
    EXPECT_NEAR(summary.log_sum, std::log(2.0), 1e-7);
    EXPECT_NEAR(summary.entropy, std::log(2.0), 1e-7);
    std::vector<float> logprobs = logits;
    kernels.log_probabilities(logprobs.data(), 5, 1.0f, summary);
    EXPECT_EQ(logprobs[0], kForbidden);
    EXPECT_NEAR(logprobs[1], -std::log(2.0), 1e-7);
    // A single choice is certain; huge logits do not overflow.
    logits = {1e30f, -1e30f, 0.0f};
    kernels.softmax_summary(logits.data(), 3, 2.0f, &summary);
    EXPECT_EQ(summary.log_sum, 0.0f);
    EXPECT_EQ(summary.entropy, 0.0f);
    kernels.softmax_gradient(logits.data(), 3, 2.0f, summary, 0, 1.0f, 1.0f);
    for (const float gradient : logits) EXPECT_EQ(gradient, 0.0f);
  }
}

TEST(InstructionSetTest, NamesAndOverride) {
  for (const InstructionSet set : SupportedSets()) {
    const absl::StatusOr<InstructionSet> named = InstructionSetFromName(InstructionSetName(set));
    ASSERT_TRUE(named.ok());
    EXPECT_EQ(*named, set);
    OverrideInstructionSet(set);
    EXPECT_EQ(ActiveInstructionSet(), set);
  }
  OverrideInstructionSet(std::nullopt);
  EXPECT_THAT(std::string(InstructionSetFromName("sse9").status().message()),
              ::testing::HasSubstr("scalar, avx2 or avx512"));
}

}  // namespace
}  // namespace internal
}  // namespace leeway
