#include "trainer/optimizer/element_storage.h"

#include <cmath>
#include <limits>
#include <vector>

#include "gtest/gtest.h"

namespace leeway {
namespace {

std::vector<float> ThroughBf16(const std::vector<float>& values) {
  ParallelFor parallel(1);
  std::vector<uint16_t> stored(values.size());
  std::vector<float> back(values.size());
  const int64_t count = static_cast<int64_t>(values.size());
  StoreElements(values.data(), count, DType::kBF16, stored.data(), &parallel);
  LoadElements(DType::kBF16, stored.data(), count, back.data(), &parallel);
  return back;
}

// 8 bits of mantissa: above 1 the step is 2^-7.
TEST(ElementStorageTest, Bf16RoundsToNearestAndTiesToEven) {
  const float step = 1.0f / 128;
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(ThroughBf16({1.0f, -2.5f, 0.0f, 1 + step / 2, 1 + 3 * step / 2, 1 + step * 0.51f, 3.4e38f, -infinity}),
            (std::vector<float>{1.0f, -2.5f, 0.0f, 1.0f, 1 + 2 * step, 1 + step, infinity, -infinity}));
  EXPECT_TRUE(std::isnan(ThroughBf16({std::nanf("")})[0]));
  EXPECT_TRUE(std::signbit(ThroughBf16({-0.0f})[0]));
}

TEST(ElementStorageTest, SumsAreRoundedOnce) {
  ParallelFor parallel(1);
  const std::vector<float> one = {1.0f}, small = {1.0f / 512};
  uint16_t stored = 0;
  AddElements(one.data(), 1, DType::kBF16, &stored, &parallel);
  AddElements(small.data(), 1, DType::kBF16, &stored, &parallel);
  float sum = 0;
  LoadElements(DType::kBF16, &stored, 1, &sum, &parallel);
  EXPECT_EQ(sum, 1.0f);
  double exact = 0.25;
  const double more = 0.5;
  AddElements(&more, 1, DType::kF64, &exact, &parallel);
  EXPECT_EQ(exact, 0.75);
}

TEST(ElementStorageTest, ThreadsChangeNoBit) {
  const int64_t count = 100'003;
  std::vector<float> values(count);
  for (int64_t i = 0; i < count; ++i) values[i] = std::sin(static_cast<float>(i));
  ParallelFor one(1), three(3);
  std::vector<uint16_t> a(count), b(count);
  StoreElements(values.data(), count, DType::kBF16, a.data(), &one);
  StoreElements(values.data(), count, DType::kBF16, b.data(), &three);
  EXPECT_EQ(a, b);
  AddElements(values.data(), count, DType::kBF16, a.data(), &one);
  AddElements(values.data(), count, DType::kBF16, b.data(), &three);
  EXPECT_EQ(a, b);
}

}  // namespace
}  // namespace leeway
