#include "model/shape.h"

#include <cmath>
#include <limits>
#include <set>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/random_case.h"
#include "model/transformer/transformer.h"

namespace leeway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ShapeTest, LayoutIsDenseAndCounted) {
  for (const ModelShape& shape : {internal::OddShape(), internal::SmallShape(), internal::SmolShape(),
                                  internal::OddQwen2Shape(), internal::TiedQwen3Shape()}) {
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
  // Qwen2.5-0.5B and Qwen3-0.6B as published: 494,032,768 and 596,049,920 parameters.
  ModelShape qwen2 = {.vocabulary = 151936,
                      .hidden = 896,
                      .layers = 24,
                      .heads = 14,
                      .key_value_heads = 2,
                      .head_dim = 64,
                      .intermediate = 4864,
                      .max_positions = 32768};
  qwen2.family = ModelFamily::kQwen2;
  EXPECT_EQ(qwen2.ParameterCount(), 494'032'768);
  ModelShape qwen3 = {.vocabulary = 151936,
                      .hidden = 1024,
                      .layers = 28,
                      .heads = 16,
                      .key_value_heads = 8,
                      .head_dim = 128,
                      .intermediate = 3072,
                      .max_positions = 40960};
  qwen3.family = ModelFamily::kQwen3;
  EXPECT_EQ(qwen3.ParameterCount(), 596'049'920);
}

TEST(ShapeTest, WhatAFamilyAddsLiesBehindItsMatrix) {
  const auto layer_names = [](ModelShape shape, ModelFamily family) {
    shape.family = family;
    std::vector<std::string> names;
    for (const ParameterInfo& info : ParameterLayout(shape)) {
      if (info.name.rfind("model.layers.1.self_attn.", 0) == 0) names.push_back(info.name.substr(25));
    }
    return names;
  };
  EXPECT_THAT(layer_names(internal::OddShape(), ModelFamily::kLlama),
              ElementsAre("q_proj.weight", "k_proj.weight", "v_proj.weight", "o_proj.weight"));
  EXPECT_THAT(layer_names(internal::OddShape(), ModelFamily::kQwen2),
              ElementsAre("q_proj.weight", "q_proj.bias", "k_proj.weight", "k_proj.bias", "v_proj.weight",
                          "v_proj.bias", "o_proj.weight"));
  EXPECT_THAT(layer_names(internal::OddShape(), ModelFamily::kQwen3),
              ElementsAre("q_proj.weight", "q_norm.weight", "k_proj.weight", "k_norm.weight", "v_proj.weight",
                          "o_proj.weight"));
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

class RandomParametersTest : public ::testing::TestWithParam<ModelFamily> {};

TEST_P(RandomParametersTest, HasTheStatedDistribution) {
  ModelShape shape = internal::SmallShape();
  shape.family = GetParam();
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
      EXPECT_EQ(sum, info.name.ends_with(".bias") ? 0 : count) << info.name;
      EXPECT_EQ(squares, sum) << info.name;
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

INSTANTIATE_TEST_SUITE_P(Families, RandomParametersTest,
                         ::testing::Values(ModelFamily::kLlama, ModelFamily::kQwen2, ModelFamily::kQwen3));

}  // namespace
}  // namespace leeway
