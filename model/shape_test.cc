#include "model/shape.h"

#include <cmath>
#include <limits>
#include <set>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/random_case.h"
#include "model/transformer.h"

namespace leeway {
namespace {

using ::testing::HasSubstr;

TEST(ShapeTest, LayoutIsDenseAndCounted) {
  for (const ModelShape& shape : {internal::OddShape(), internal::SmallShape(), internal::SmolShape()}) {
    ASSERT_TRUE(shape.Validate().ok());
    int64_t offset = 0;
    std::set<std::string> names;
    for (const ParameterInfo& info : ParameterLayout(shape)) {
      EXPECT_EQ(info.offset, offset) << info.name;
      int64_t count = 1;
      for (const int64_t dimension : info.shape) count *= dimension;
      EXPECT_EQ(info.element_count, count) << info.name;
      offset += count;
      EXPECT_TRUE(names.insert(info.name).second) << info.name;
    }
    EXPECT_EQ(offset, shape.ParameterCount());
    EXPECT_EQ(names.count("lm_head.weight"), shape.tied_head ? 0u : 1u);
  }
}

TEST(ShapeTest, KnownCounts) {
  // SmolLM2-135M as published: 134,515,008 parameters.
  EXPECT_EQ(internal::SmolShape().ParameterCount(), 134'515'008);
  // 64*64 embedding, 2 layers of (128 norms + 4*64*64 attention + 3*64*176 mlp), 64 final norm.
  EXPECT_EQ(internal::SmallShape().ParameterCount(), 4096 + 2 * (128 + 16384 + 33792) + 64);
}

TEST(ShapeTest, AllFaultsAreListed) {
  ModelShape shape = internal::SmallShape();
  shape.hidden = 0;
  shape.head_dim = 15;
  shape.key_value_heads = 3;
  shape.rope_theta = -1;
  shape.rms_epsilon = std::numeric_limits<double>::quiet_NaN();
  const std::string message(shape.Validate().message());
  for (const char* part :
       {"model.hidden = 0", "model.head_dim = 15", "model.heads = 4", "model.rope_theta", "model.rms_epsilon"}) {
    EXPECT_THAT(message, HasSubstr(part));
  }
  ModelShape huge = internal::SmallShape();
  huge.layers = 1 << 20;
  huge.hidden = 1 << 20;
  EXPECT_THAT(std::string(huge.Validate().message()), HasSubstr("parameters are more than"));
}

TEST(RandomParametersTest, HasTheStatedDistribution) {
  const ModelShape shape = internal::SmallShape();
  const std::vector<float> flat = RandomParameters(shape, 7);
  EXPECT_EQ(flat, RandomParameters(shape, 7));
  EXPECT_NE(flat, RandomParameters(shape, 8));
  for (const ParameterInfo& info : ParameterLayout(shape)) {
    double sum = 0;
    double squares = 0;
    for (int64_t i = 0; i < info.element_count; ++i) {
      sum += flat[info.offset + i];
      squares += static_cast<double>(flat[info.offset + i]) * flat[info.offset + i];
    }
    const double count = static_cast<double>(info.element_count);
    if (info.shape.size() == 1) {
      EXPECT_EQ(sum, count) << info.name;
      EXPECT_EQ(squares, count) << info.name;
      continue;
    }
    const bool is_residual =
        info.name.find("o_proj") != std::string::npos || info.name.find("down_proj") != std::string::npos;
    const double deviation = is_residual ? 0.02 / std::sqrt(2.0 * 2) : 0.02;
    // Five standard errors.
    EXPECT_NEAR(sum / count, 0, 5 * deviation / std::sqrt(count)) << info.name;
    EXPECT_NEAR(std::sqrt(squares / count), deviation, 5 * deviation / std::sqrt(2 * count)) << info.name;
  }
}

}  // namespace
}  // namespace leeway
