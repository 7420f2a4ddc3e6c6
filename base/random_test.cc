#include "base/random.h"

#include <cmath>
#include <set>

#include "gtest/gtest.h"

namespace leeway {
namespace {

// Known answers of Random123's kat_vectors for philox4x32 with 10 rounds.
TEST(RandomTest, PhiloxGivesTheKnownAnswers) {
  EXPECT_EQ(internal::Philox4x32({0, 0, 0, 0}, 0, 0),
            (std::array<uint32_t, 4>{0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u}));
  EXPECT_EQ(internal::Philox4x32({~0u, ~0u, ~0u, ~0u}, ~0u, ~0u),
            (std::array<uint32_t, 4>{0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu}));
  EXPECT_EQ(internal::Philox4x32({0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u}, 0xa4093822u, 0x299f31d0u),
            (std::array<uint32_t, 4>{0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u}));
}

TEST(RandomTest, SameKeySameNumberAndEveryFieldMatters) {
  const RandomKey base{7, RandomPurpose::kSampling, 11, 3, 2, 5};
  const uint64_t value = RandomU64(base);
  EXPECT_EQ(RandomU64(base), value);
  RandomKey other = base;
  other.seed = 8;
  EXPECT_NE(RandomU64(other), value);
  other = base;
  other.purpose = RandomPurpose::kTask;
  EXPECT_NE(RandomU64(other), value);
  other = base;
  other.ticket = 12;
  EXPECT_NE(RandomU64(other), value);
  other = base;
  other.member = 4;
  EXPECT_NE(RandomU64(other), value);
  other = base;
  other.interaction = 3;
  EXPECT_NE(RandomU64(other), value);
  other = base;
  other.position = 6;
  EXPECT_NE(RandomU64(other), value);
}

TEST(RandomTest, DrawsOfOneTicketNeverMeet) {
  std::set<std::array<uint32_t, 4>> seen;
  for (uint32_t member = 0; member < 8; ++member) {
    for (uint32_t interaction = 0; interaction < 8; ++interaction) {
      for (uint64_t position = 0; position < 64; ++position) {
        seen.insert(RandomBits({1, RandomPurpose::kSampling, 1, member, interaction, position}));
      }
    }
  }
  EXPECT_EQ(seen.size(), 8u * 8u * 64u);
}

TEST(RandomTest, UniformHasTheMomentsOfAUniform) {
  constexpr int kDraws = 200'000;
  double sum = 0, squares = 0;
  for (int i = 0; i < kDraws; ++i) {
    const double u = RandomUniform({3, RandomPurpose::kSampling, 1, 0, 0, static_cast<uint64_t>(i)});
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    sum += u;
    squares += u * u;
  }
  // Five standard errors: sd(u) = 0.2887, sd(u^2) = 0.2981.
  EXPECT_NEAR(sum / kDraws, 0.5, 5 * 0.2887 / std::sqrt(kDraws));
  EXPECT_NEAR(squares / kDraws, 1.0 / 3, 5 * 0.2981 / std::sqrt(kDraws));
}

TEST(RandomTest, NormalHasTheMomentsOfANormal) {
  constexpr int kDraws = 200'000;
  double sum = 0, squares = 0, cubes = 0;
  for (int i = 0; i < kDraws; ++i) {
    const double z = RandomNormal({3, RandomPurpose::kWeights, 1, 0, 0, static_cast<uint64_t>(i)});
    sum += z;
    squares += z * z;
    cubes += z * z * z;
  }
  EXPECT_NEAR(sum / kDraws, 0, 5 / std::sqrt(kDraws));
  EXPECT_NEAR(squares / kDraws, 1, 5 * std::sqrt(2.0 / kDraws));
  EXPECT_NEAR(cubes / kDraws, 0, 5 * std::sqrt(15.0 / kDraws));
}

TEST(RandomTest, BelowIsUniformOverSmallBounds) {
  constexpr int kDraws = 60'000;
  int counts[6] = {};
  for (int i = 0; i < kDraws; ++i)
    ++counts[RandomBelow({9, RandomPurpose::kTask, 4, 0, 0, static_cast<uint64_t>(i)}, 6)];
  for (int count : counts) EXPECT_NEAR(count, kDraws / 6, 5 * std::sqrt(kDraws / 6.0));
  EXPECT_EQ(RandomBelow({9, RandomPurpose::kTask, 4, 0, 0, 0}, 1), 0u);
}

TEST(RandomTest, StreamCountsPositionsUp) {
  const RandomKey key{5, RandomPurpose::kTask, 2, 0, 0, 10};
  RandomStream stream(key);
  RandomKey next = key;
  EXPECT_EQ(stream.NextU64(), RandomU64(next));
  ++next.position;
  EXPECT_EQ(stream.NextUniform(), RandomUniform(next));
}

}  // namespace
}  // namespace leeway
