#include "base/histogram.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace leeway {
namespace {

using ::testing::ElementsAre;

TEST(HistogramTest, BoundsBelongToTheBucketBelow) {
  Histogram histogram({1.0, 2.0, 4.0});
  for (double value : {0.0, 1.0, 1.5, 2.0, 4.0, 4.1, 100.0}) histogram.Add(value);
  histogram.Add(3.0, 5);
  EXPECT_THAT(histogram.counts(), ElementsAre(2, 2, 6, 2));
  EXPECT_EQ(histogram.total(), 12u);
  EXPECT_DOUBLE_EQ(histogram.sum(), 0.0 + 1.0 + 1.5 + 2.0 + 4.0 + 4.1 + 100.0 + 15.0);
}

TEST(HistogramTest, GeometricBounds) {
  EXPECT_THAT(Histogram::Geometric(0.5, 2.0, 4).upper_bounds(), ElementsAre(0.5, 1.0, 2.0, 4.0));
}

}  // namespace
}  // namespace leeway
