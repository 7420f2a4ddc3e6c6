#include "trainer/optimizer/newton_schulz.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "base/random.h"
#include "gtest/gtest.h"
#include "model/instruction_set.h"

namespace leeway {
namespace {

std::vector<double> RandomMatrix(int64_t rows, int64_t columns, uint64_t seed) {
  RandomStream stream({.seed = seed, .purpose = RandomPurpose::kShuffle});
  std::vector<double> values(static_cast<size_t>(rows * columns));
  for (double& value : values) value = stream.NextNormal();
  return values;
}

std::vector<double> Product(const std::vector<double>& a, const std::vector<double>& b, int64_t n, int64_t k,
                            int64_t m) {
  std::vector<double> c(static_cast<size_t>(n * m), 0.0);
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < m; ++j) {
      for (int64_t l = 0; l < k; ++l) c[i * m + j] += a[i * k + l] * b[l * m + j];
    }
  }
  return c;
}

std::vector<double> Transposed(const std::vector<double>& a, int64_t rows, int64_t columns) {
  std::vector<double> b(a.size());
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) b[j * rows + i] = a[i * columns + j];
  }
  return b;
}

// The published iteration, term by term.
std::vector<double> Naive(std::vector<double> x, int64_t rows, int64_t columns) {
  if (rows > columns) return Transposed(Naive(Transposed(x, rows, columns), columns, rows), columns, rows);
  double squares = 0;
  for (const double v : x) squares += v * v;
  for (double& v : x) v /= std::max(std::sqrt(squares), 1e-7);
  for (int step = 0; step < 5; ++step) {
    const std::vector<double> gram = Product(x, Transposed(x, rows, columns), rows, columns, rows);
    const std::vector<double> gram_x = Product(gram, x, rows, rows, columns);
    const std::vector<double> gram_gram_x = Product(gram, gram_x, rows, rows, columns);
    for (size_t i = 0; i < x.size(); ++i) x[i] = 3.4445 * x[i] - 4.7750 * gram_x[i] + 2.0315 * gram_gram_x[i];
  }
  return x;
}

TEST(NewtonSchulzTest, IsThePublishedIteration) {
  ParallelFor parallel(2);
  for (const auto& [rows, columns] : std::vector<std::pair<int64_t, int64_t>>{
           {1, 1}, {1, 40}, {40, 1}, {7, 7}, {16, 33}, {33, 16}, {50, 20}, {64, 64}, {20, 130}}) {
    std::vector<double> matrix = RandomMatrix(rows, columns, 1);
    const std::vector<double> expected = Naive(matrix, rows, columns);
    Orthogonalise(rows, columns, matrix.data(), &parallel);
    double largest = 0;
    for (const double v : expected) largest = std::max(largest, std::abs(v));
    for (size_t i = 0; i < matrix.size(); ++i) {
      ASSERT_NEAR(matrix[i], expected[i], 1e-11 * largest) << rows << "x" << columns << " at " << i;
    }
    std::vector<float> in_float;
    for (const double v : RandomMatrix(rows, columns, 1)) in_float.push_back(static_cast<float>(v));
    Orthogonalise(rows, columns, in_float.data(), &parallel);
    for (size_t i = 0; i < matrix.size(); ++i) ASSERT_NEAR(in_float[i], expected[i], 1e-4 * largest);
  }
}

// Five steps of 3.4445 s - 4.7750 s^3 + 2.0315 s^5 on each singular value.
TEST(NewtonSchulzTest, SingularValuesComeCloseToOne) {
  ParallelFor parallel(1);
  std::vector<double> diagonal = {3, 0, 0, 0, 0, -2, 0, 0, 0, 0, 0.5, 0};
  Orthogonalise(3, 4, diagonal.data(), &parallel);
  const double norm = std::sqrt(9 + 4 + 0.25);
  const double values[] = {3 / norm, -2 / norm, 0.5 / norm};
  for (int i = 0; i < 3; ++i) {
    double s = values[i];
    for (int step = 0; step < 5; ++step) s = 3.4445 * s - 4.7750 * s * s * s + 2.0315 * s * s * s * s * s;
    EXPECT_NEAR(diagonal[i * 4 + i], s, 1e-13);
    EXPECT_GT(std::abs(s), 0.65);
    EXPECT_LT(std::abs(s), 1.25);
  }
  EXPECT_EQ(diagonal[1], 0);
}

TEST(NewtonSchulzTest, ZeroStaysZero) {
  ParallelFor parallel(1);
  std::vector<float> zero(35, 0.0f);
  Orthogonalise(5, 7, zero.data(), &parallel);
  for (const float v : zero) EXPECT_EQ(v, 0.0f);
}

TEST(NewtonSchulzTest, ThreadsAndInstructionSetsChangeNoBit) {
  ParallelFor one(1), three(3);
  const std::vector<double> matrix = RandomMatrix(70, 45, 2);
  std::vector<double> expected = matrix;
  OverrideInstructionSet(InstructionSet::kScalar);
  Orthogonalise(70, 45, expected.data(), &one);
  OverrideInstructionSet(std::nullopt);
  std::vector<double> actual = matrix;
  Orthogonalise(70, 45, actual.data(), &three);
  EXPECT_EQ(actual, expected);
}

}  // namespace
}  // namespace leeway
