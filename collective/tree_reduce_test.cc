#include "collective/tree_reduce.h"

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace leeway {
namespace {

using ::testing::ElementsAre;

// 1 is lost beside 2^53 unless it meets another small one first: the sum tells the order.
TEST(TreeReduceTest, JoinsNeighboursLevelByLevel) {
  const double big = 0x1p53;
  const auto sum = [](const std::vector<double>& values) {
    std::vector<const void*> sources;
    for (const double& value : values) sources.push_back(&value);
    double result = 0;
    TreeReduce(ReduceOp::kSum, DType::kF64, sources, 1, &result);
    return result;
  };
  EXPECT_EQ(sum({big, 1, 1}), (big + 1) + 1);             // = big
  EXPECT_EQ(sum({1, 1, big}), (1 + 1) + big);             // = big + 2
  EXPECT_EQ(sum({big, 1, 1, 1}), (big + 1) + (1.0 + 1));  // = big + 2
  EXPECT_EQ(sum({big, 1, 1, 1, 1, 1}), ((big + 1) + (1.0 + 1)) + (1.0 + 1));
  EXPECT_EQ(sum({1, 1, 1, big, 1}), ((1.0 + 1) + (1 + big)) + 1);
  EXPECT_EQ(sum({1, 1, 1, 1, 1, big, -big}), ((1.0 + 1) + (1.0 + 1)) + ((1 + big) + -big));
}

TEST(TreeReduceTest, RoundsBf16OnceToTheNearestEven) {
  // 1 + 2^-8 lies between 1 and 1 + 2^-7; a second 2^-8 brings it there exactly, which rounding in between would lose.
  const uint16_t one = 0x3f80, small = 0x3b80, next = 0x3f81;
  const auto sum = [](const std::vector<uint16_t>& values) {
    std::vector<const void*> sources;
    for (const uint16_t& value : values) sources.push_back(&value);
    uint16_t result = 0;
    TreeReduce(ReduceOp::kSum, DType::kBF16, sources, 1, &result);
    return result;
  };
  EXPECT_EQ(sum({one, small}), one);      // tie: to the even one, below
  EXPECT_EQ(sum({next, small}), 0x3f82);  // tie: to the even one, above
  EXPECT_EQ(sum({one, small, small}), next);
  EXPECT_EQ(sum({0x7f80, one}), 0x7f80);     // infinity
  EXPECT_EQ(sum({0x7f7f, 0x7f7f}), 0x7f80);  // overflow
  EXPECT_EQ(sum({0x7f80, 0xff80}) & 0x7fc0, 0x7fc0);
  EXPECT_EQ(sum({0x7fff, one}) & 0x7fc0, 0x7fc0);  // a NaN whose payload would round over into the sign
  EXPECT_EQ(sum({0x8000, 0x8000}), 0x8000);
}

TEST(TreeReduceTest, IntegersWrap) {
  const int64_t largest = std::numeric_limits<int64_t>::max(), one = 1;
  int64_t result = 0;
  TreeReduce(ReduceOp::kSum, DType::kI64, {&largest, &one}, 1, &result);
  EXPECT_EQ(result, std::numeric_limits<int64_t>::min());
  TreeReduce(ReduceOp::kMax, DType::kI64, {&one, &largest}, 1, &result);
  EXPECT_EQ(result, largest);
}

TEST(TreeReduceTest, MaxShowsNotANumberWhereverItIs) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
  const float one = 1, minus_infinity = -infinity;
  float result = 0;
  TreeReduce(ReduceOp::kMax, DType::kF32, {&nan, &infinity, &one}, 1, &result);
  EXPECT_TRUE(std::isnan(result));
  TreeReduce(ReduceOp::kMax, DType::kF32, {&one, &infinity, &nan}, 1, &result);
  EXPECT_TRUE(std::isnan(result));
  TreeReduce(ReduceOp::kMax, DType::kF32, {&minus_infinity, &one}, 1, &result);
  EXPECT_EQ(result, 1);
}

TEST(TreeReduceTest, OutputMayBeASource) {
  std::vector<float> a(1300), b(1300);
  for (size_t i = 0; i < a.size(); ++i) {
    a[i] = static_cast<float>(i);
    b[i] = 0.5f;
  }
  TreeReduce(ReduceOp::kSum, DType::kF32, {a.data(), b.data()}, 1300, b.data());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_EQ(b[i], static_cast<float>(i) + 0.5f);
}

TEST(EvenPartsTest, DifferByAtMostOneLargerFirst) {
  EXPECT_THAT(EvenParts(10, 4), ElementsAre(3, 3, 2, 2));
  EXPECT_THAT(EvenParts(8, 4), ElementsAre(2, 2, 2, 2));
  EXPECT_THAT(EvenParts(2, 3), ElementsAre(1, 1, 0));
  EXPECT_THAT(EvenParts(0, 2), ElementsAre(0, 0));
}

}  // namespace
}  // namespace leeway
