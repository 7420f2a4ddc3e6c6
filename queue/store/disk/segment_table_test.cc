#include "queue/store/disk/segment_table.h"

#include "gmock/gmock.h"

namespace leeway {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr uint64_t kSegment = 1000;

// A sealed segment of 10 payloads of 100 bytes, of which `live` are alive.
void AddSegment(SegmentTable* table, uint64_t number, int live) {
  table->OnCreated(number, kSegment);
  for (uint32_t i = 0; i < 10; ++i) table->OnReferred(number, {number, i}, 100);
  for (int i = live; i < 10; ++i) table->OnReleased(number, 100);
  table->OnSealed(number, kSegment);
}

TEST(SegmentTableTest, OnlySealedSegmentsWithoutLivePayloadsMayGo) {
  SegmentTable table(kSegment);
  table.OnCreated(1, kSegment);
  EXPECT_THAT(table.Removable(), IsEmpty());
  table.OnReferred(1, {7, 0}, 300);
  table.OnSealed(1, 300);
  EXPECT_EQ(table.file_bytes(), 300u);
  EXPECT_THAT(table.Removable(), IsEmpty());
  table.OnReleased(1, 300);
  EXPECT_THAT(table.Removable(), ElementsAre(1));
  EXPECT_EQ(table.live_bytes(), 0u);
  table.OnRemoved(1);
  EXPECT_FALSE(table.Contains(1));
  EXPECT_EQ(table.file_bytes(), 0u);
}

TEST(SegmentTableTest, TheEmptiestIsRewrittenOnceGarbageExceedsTheBound) {
  SegmentTable table(kSegment);
  // 6 files of 1000 with 900 live: 6000 > 2 * 900 + 4000.
  for (uint64_t i = 1; i <= 4; ++i) AddSegment(&table, i, 2);
  EXPECT_EQ(table.WantsRewriting(), std::nullopt);  // 4000 <= 2 * 800 + 4000
  AddSegment(&table, 5, 1);
  EXPECT_EQ(table.WantsRewriting(), std::nullopt);  // 5000 <= 2 * 900 + 4000
  AddSegment(&table, 6, 0);
  EXPECT_EQ(table.WantsRewriting(), 5u);  // 6000 > 5800, and 6 may simply go
  EXPECT_EQ(table.KeysOf(5).size(), 10u);
  table.OnDamaged(5);
  EXPECT_EQ(table.WantsRewriting(), 1u);
  table.OnRemoved(6);
  EXPECT_EQ(table.WantsRewriting(), std::nullopt);
}

TEST(SegmentTableTest, FullSegmentsAreNeverRewritten) {
  SegmentTable table(kSegment);
  for (uint64_t i = 1; i <= 20; ++i) AddSegment(&table, i, 6);
  EXPECT_EQ(table.WantsRewriting(), std::nullopt);
}

}  // namespace
}  // namespace leeway
