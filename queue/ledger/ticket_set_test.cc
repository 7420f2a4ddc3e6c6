#include "queue/ledger/ticket_set.h"

#include <random>
#include <set>

#include "gtest/gtest.h"

namespace leeway {
namespace {

TEST(TicketSetTest, CountsUpToWordBorders) {
  TicketSet set;
  EXPECT_EQ(set.CountUpTo(1000), 0u);
  for (uint64_t id : {1, 63, 64, 65, 127, 128, 640}) EXPECT_TRUE(set.Add(id));
  EXPECT_FALSE(set.Add(64));
  EXPECT_EQ(set.size(), 7u);
  EXPECT_EQ(set.CountUpTo(0), 0u);
  EXPECT_EQ(set.CountUpTo(1), 1u);
  EXPECT_EQ(set.CountUpTo(62), 1u);
  EXPECT_EQ(set.CountUpTo(63), 2u);
  EXPECT_EQ(set.CountUpTo(64), 3u);
  EXPECT_EQ(set.CountUpTo(127), 5u);
  EXPECT_EQ(set.CountUpTo(639), 6u);
  EXPECT_EQ(set.CountUpTo(640), 7u);
  EXPECT_EQ(set.CountUpTo(1'000'000), 7u);
  EXPECT_TRUE(set.Remove(64));
  EXPECT_FALSE(set.Remove(64));
  EXPECT_FALSE(set.Remove(1'000'000));
  EXPECT_EQ(set.CountUpTo(640), 6u);
}

TEST(TicketSetTest, AgreesWithAStandardSet) {
  std::mt19937 random(7);
  TicketSet set;
  std::set<uint64_t> model;
  for (int i = 0; i < 20'000; ++i) {
    const uint64_t id = 1 + random() % (1 + i / 4);
    if (random() % 3 == 0) {
      EXPECT_EQ(set.Remove(id), model.erase(id) == 1);
    } else {
      EXPECT_EQ(set.Add(id), model.insert(id).second);
    }
    const uint64_t limit = random() % 6000;
    ASSERT_EQ(set.CountUpTo(limit), static_cast<uint64_t>(std::distance(model.begin(), model.upper_bound(limit))));
    ASSERT_EQ(set.Contains(limit), model.count(limit) == 1);
  }
  EXPECT_EQ(set.size(), model.size());
  EXPECT_EQ(set.ToVector(), std::vector<uint64_t>(model.begin(), model.end()));
}

}  // namespace
}  // namespace leeway
