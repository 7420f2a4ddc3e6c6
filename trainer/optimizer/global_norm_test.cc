#include "trainer/optimizer/global_norm.h"

#include <cmath>
#include <vector>

#include "gtest/gtest.h"

namespace leeway {
namespace {

TEST(GlobalNormTest, IsTheL2NormOfEverything) {
  ParallelFor parallel(1);
  EXPECT_EQ(GlobalNorm(std::vector<float>{3, 0, -4}, &parallel), 5.0);
  EXPECT_EQ(GlobalNorm({}, &parallel), 0.0);
  const std::vector<float> ones(10'001, 1.0f);
  EXPECT_DOUBLE_EQ(GlobalNorm(ones, &parallel), std::sqrt(10'001.0));
  EXPECT_TRUE(std::isnan(GlobalNorm(std::vector<float>{1, NAN}, &parallel)));
  // Squares beyond float's range.
  EXPECT_DOUBLE_EQ(GlobalNorm(std::vector<float>{1e30f, 0}, &parallel), static_cast<double>(1e30f));
}

TEST(GlobalNormTest, ThreadsChangeNoBit) {
  std::vector<double> values(200'003);
  for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<double>(i));
  ParallelFor one(1), four(4);
  EXPECT_EQ(SumOfSquares<double>(values, &one), SumOfSquares<double>(values, &four));
}

TEST(ClipScaleTest, OnlyShrinks) {
  EXPECT_EQ(ClipScale(4.0, 1.0), 0.25);
  EXPECT_EQ(ClipScale(0.5, 1.0), 1.0);
  EXPECT_EQ(ClipScale(4.0, 0.0), 1.0);
}

}  // namespace
}  // namespace leeway
