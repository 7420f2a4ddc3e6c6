#include "trainer/parallel/shard_plan.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace leeway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

ModelShape Shape(bool tied_head) {
  return {.vocabulary = 7,
          .hidden = 3,
          .layers = 2,
          .heads = 1,
          .key_value_heads = 1,
          .head_dim = 2,
          .intermediate = 5,
          .max_positions = 8,
          .tied_head = tied_head};
}

ShardPlan Plan(const ModelShape& shape, int64_t ranks, std::vector<std::string> frozen = {}) {
  absl::StatusOr<ShardPlan> plan = ShardPlan::Create(ParameterLayout(shape), ranks, frozen);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return *plan;
}

TEST(ShardPlanTest, UnitsAreEmbeddingLayersAndHead) {
  const ShardPlan untied = Plan(Shape(false), 2);
  std::vector<std::string> names;
  for (const ShardUnit& unit : untied.units()) names.push_back(unit.name);
  EXPECT_THAT(names, ElementsAre("embedding", "layer 0", "layer 1", "head"));
  EXPECT_EQ(untied.UnitCount(0, Held::kAll), 7 * 3);
  // Two norms of 3; q, k, v 2x3 each; o 3x2; gate, up 5x3; down 3x5.
  EXPECT_EQ(untied.UnitCount(1, Held::kAll), 6 + 24 + 45);
  EXPECT_EQ(untied.UnitCount(3, Held::kAll), 3 + 7 * 3);
  EXPECT_EQ(Plan(Shape(true), 2).UnitCount(3, Held::kAll), 3);
  EXPECT_EQ(untied.FullCount(Held::kAll), Shape(false).ParameterCount());
}

// By hand: rank 1 of 2 holds rows 3..6 of the embedding's 7, and of a layer: 2 of a norm's 3 elements, 1 of q's 2 rows
// (so of k and v), 2 of o's 3, the second norm again, 3 of gate's and up's 5 rows, 2 of down's 3.
TEST(ShardPlanTest, ARankHoldsRowsOfEveryParameter) {
  const ShardPlan plan = Plan(Shape(false), 2);
  EXPECT_THAT(plan.ShareCounts(0, Held::kAll), ElementsAre(3 * 3, 4 * 3));
  EXPECT_THAT(plan.ShareCounts(1, Held::kAll),
              ElementsAre(1 + 3 * 3 + 1 * 2 + 1 + 2 * 2 * 3 + 1 * 5, 2 + 3 * 3 + 2 * 2 + 2 + 2 * 3 * 3 + 2 * 5));
  const std::vector<ShardPart> parts = plan.Parts(1, 1, Held::kAll);
  ASSERT_EQ(parts.size(), 9u);
  EXPECT_EQ(parts[0].first_row, 1);
  EXPECT_EQ(parts[0].full_offset, 21 + 1);
  EXPECT_EQ(parts[0].shard_offset, 12);
  EXPECT_EQ(parts[0].count, 2);
  EXPECT_EQ(parts[1].full_offset, 21 + 3 + 1 * 3);
  EXPECT_EQ(parts[1].shard_offset, 14);
  EXPECT_EQ(parts[1].count, 3);
}

// The model's own cut.
TEST(ShardPlanTest, UnitsAreTheModels) {
  for (const bool tied : {false, true}) {
    const std::vector<ParameterUnit> units = ParameterUnits(Shape(tied));
    const ShardPlan plan = Plan(Shape(tied), 2);
    ASSERT_EQ(static_cast<size_t>(plan.unit_count()), units.size());
    for (size_t u = 0; u < units.size(); ++u) {
      EXPECT_EQ(plan.FullOffset(static_cast<int64_t>(u), Held::kAll), units[u].begin);
      EXPECT_EQ(plan.UnitCount(static_cast<int64_t>(u), Held::kAll), units[u].element_count());
    }
  }
}

TEST(ShardPlanTest, FrozenParametersHoldNoTrainableElements) {
  const ShardPlan plan = Plan(Shape(false), 3, {"model.embed_tokens.weight", "model.layers.0.mlp.up_proj.weight"});
  EXPECT_EQ(plan.UnitCount(0, Held::kTrainable), 0);
  EXPECT_THAT(plan.ShareCounts(0, Held::kTrainable), ElementsAre(0, 0, 0));
  EXPECT_EQ(plan.UnitCount(1, Held::kTrainable), plan.UnitCount(1, Held::kAll) - 15);
  EXPECT_EQ(plan.FullOffset(1, Held::kTrainable), 0);
  EXPECT_EQ(plan.Parts(1, 0, Held::kTrainable).size(), 8u);
  EXPECT_EQ(plan.OptimizerParts(2).size(), plan.layout().size() - 2);
  EXPECT_TRUE(plan.is_frozen(0));
  EXPECT_FALSE(plan.is_frozen(1));
}

TEST(ShardPlanTest, WhatIsImpossibleIsNamed) {
  EXPECT_THAT(ShardPlan::Create(ParameterLayout(Shape(true)), 0, {}).status().message(), HasSubstr("at least 1"));
  const std::string names[] = {"model.norm.weight", "lm_head.weight"};
  EXPECT_THAT(ShardPlan::Create(ParameterLayout(Shape(true)), 1, names).status().message(),
              AllOf(HasSubstr("lm_head.weight"), Not(HasSubstr("model.norm.weight"))));
}

// Over sizes that divide nothing, more ranks than rows and frozen parameters: the shares cover every element exactly
// once, and the parts of all ranks back to back are the rank-major order.
TEST(ShardPlanTest, SharesPartitionTheWholeAtEveryRankCount) {
  for (const bool tied : {false, true}) {
    for (int64_t ranks = 1; ranks <= 11; ++ranks) {
      const ShardPlan plan = Plan(Shape(tied), ranks, {"model.layers.1.input_layernorm.weight"});
      for (const Held held : {Held::kAll, Held::kTrainable}) {
        std::vector<int> seen(static_cast<size_t>(plan.FullCount(held)), 0);
        std::vector<int64_t> shard(static_cast<size_t>(ranks), 0);
        for (int64_t unit = 0; unit < plan.unit_count(); ++unit) {
          const std::vector<ShardPart> rank_major = plan.RankMajorParts(unit, held);
          size_t next = 0;
          bool is_rank_major = true;
          int64_t place = 0;
          for (int64_t r = 0; r < ranks; ++r) {
            ASSERT_EQ(plan.ShardOffset(unit, r, held), shard[static_cast<size_t>(r)]);
            for (const ShardPart& part : plan.Parts(unit, r, held)) {
              ASSERT_EQ(part.shard_offset, shard[static_cast<size_t>(r)]);
              shard[static_cast<size_t>(r)] += part.count;
              ASSERT_EQ(rank_major[next].shard_offset, place);
              ASSERT_EQ(rank_major[next].full_offset, part.full_offset);
              ASSERT_EQ(rank_major[next++].count, part.count);
              is_rank_major &= part.count == 0 || part.full_offset == plan.FullOffset(unit, held) + place;
              const ParameterInfo& info = plan.layout()[static_cast<size_t>(part.parameter)];
              ASSERT_EQ(part.flat_offset, info.offset + part.first_row * (info.element_count / info.shape[0]));
              ASSERT_TRUE(held == Held::kTrainable || part.flat_offset == part.full_offset);
              place += part.count;
              for (int64_t i = 0; i < part.count; ++i) ++seen[static_cast<size_t>(part.full_offset + i)];
            }
          }
          ASSERT_EQ(place, plan.UnitCount(unit, held));
          ASSERT_EQ(next, rank_major.size());
          ASSERT_EQ(plan.IsRankMajor(unit, held), is_rank_major) << unit;
        }
        for (const int times : seen) ASSERT_EQ(times, 1);
        int64_t total = 0;
        for (int64_t r = 0; r < ranks; ++r) {
          ASSERT_EQ(plan.ShardCount(r, held), shard[static_cast<size_t>(r)]);
          total += plan.ShardCount(r, held);
        }
        ASSERT_EQ(total, plan.FullCount(held));
      }
    }
  }
}

}  // namespace
}  // namespace leeway
