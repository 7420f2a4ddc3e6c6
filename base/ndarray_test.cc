#include "base/ndarray.h"

#include <limits>

#include "gtest/gtest.h"

namespace leeway {
namespace {

TEST(NDArrayTest, IsZeroFilledAlignedAndSharedByCopies) {
  NDArray array(DType::kF32, {3, 5});
  EXPECT_EQ(array.element_count(), 15);
  EXPECT_EQ(array.size_bytes(), 60u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(array.data()) % 64, 0u);
  for (float value : array.values<float>()) EXPECT_EQ(value, 0.0f);
  const NDArray copy = array;
  array.values<float>()[7] = 2.0f;
  EXPECT_EQ(copy.values<float>()[7], 2.0f);
}

TEST(NDArrayTest, RankZeroHasOneElementAndEmptyHasNone) {
  EXPECT_EQ(NDArray(DType::kI64, {}).element_count(), 1);
  EXPECT_EQ(NDArray(DType::kI64, {4, 0}).size_bytes(), 0u);
}

TEST(NDArrayTest, ImpossibleShapesAreRefused) {
  EXPECT_EQ(ElementCount({2, -1}).status().message(), "impossible shape [2, -1]");
  EXPECT_FALSE(ElementCount({std::numeric_limits<int64_t>::max(), 2}).ok());
}

TEST(NDArrayTest, DTypeNamesRoundTrip) {
  for (const char* name : {"BOOL", "U8", "I8", "I16", "U16", "F16", "BF16", "I32", "U32", "F32", "I64", "U64", "F64"}) {
    const auto dtype = DTypeFromName(name);
    ASSERT_TRUE(dtype.ok()) << name;
    EXPECT_EQ(DTypeName(*dtype), name);
  }
  EXPECT_EQ(DTypeBytes(DType::kBF16), 2u);
  EXPECT_EQ(DTypeBytes(DType::kF64), 8u);
  EXPECT_EQ(DTypeFromName("F12").status().message(), "unknown dtype \"F12\"");
}

}  // namespace
}  // namespace leeway
