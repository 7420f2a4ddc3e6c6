#include "trainer/checkpoint/ticket_ranges.h"

#include "gtest/gtest.h"

namespace leeway {
namespace {

using Pairs = std::vector<std::pair<uint64_t, uint64_t>>;

TEST(TicketRangesTest, NeighboursJoinInWhateverOrderTheyCome) {
  TicketRanges ranges;
  for (uint64_t id : {5, 1, 2, 9, 4}) EXPECT_TRUE(ranges.Add(id));
  EXPECT_EQ(ranges.ranges(), (Pairs{{1, 2}, {4, 5}, {9, 9}}));
  EXPECT_TRUE(ranges.Add(3));
  EXPECT_EQ(ranges.ranges(), (Pairs{{1, 5}, {9, 9}}));
  EXPECT_EQ(ranges.size(), 6u);
}

TEST(TicketRangesTest, ASecondAddIsSeen) {
  TicketRanges ranges;
  EXPECT_TRUE(ranges.Add(7));
  EXPECT_FALSE(ranges.Add(7));
  EXPECT_EQ(ranges.size(), 1u);
  EXPECT_TRUE(ranges.Contains(7));
  EXPECT_FALSE(ranges.Contains(6));
  EXPECT_FALSE(ranges.Contains(8));
}

TEST(TicketRangesTest, AssignTakesWhatRangesGaveAndNothingElse) {
  TicketRanges ranges;
  EXPECT_TRUE(ranges.Assign({{1, 10}, {12, 12}}));
  EXPECT_EQ(ranges.size(), 11u);
  EXPECT_FALSE(ranges.Contains(11));
  EXPECT_FALSE(ranges.Assign({{1, 10}, {11, 12}}));  // adjacent
  EXPECT_FALSE(ranges.Assign({{4, 3}}));
  EXPECT_FALSE(ranges.Assign({{5, 9}, {1, 2}}));
  EXPECT_EQ(ranges.size(), 0u);
}

}  // namespace
}  // namespace leeway
