#include "queue/store/disk/segment_table.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"

namespace leeway {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr uint64_t kSegment = 1000;

constexpr uint64_t kSlack = 4 * kSegment;
constexpr uint64_t kNoLimit = 1 << 30;

std::vector<PayloadKey> Keys(uint64_t ticket, uint32_t count) {
  std::vector<PayloadKey> keys;
  for (uint32_t i = 0; i < count; ++i) keys.push_back({ticket, i});
  return keys;
}

// A sealed segment of two lists of 5 payloads of 100 bytes, of which the first `live` are alive.
void AddSegment(SegmentTable* table, uint64_t number, uint32_t live) {
  table->OnCreated(number, kSegment);
  table->OnListed(number, 2 * number, Keys(number, 5), 500);
  table->OnListed(number, 2 * number + 1, Keys(number + 1000, 5), 500);
  for (uint32_t i = live; i < 10; ++i) table->OnEnded(2 * number + i / 5, i % 5, 100);
  table->OnSealed(number, kSegment);
}

TEST(SegmentTableTest, OnlySealedSegmentsWithoutLivePayloadsMayGo) {
  SegmentTable table(kSlack);
  table.OnCreated(1, kSegment);
  EXPECT_THAT(table.Removable(), IsEmpty());
  table.OnListed(1, 1, Keys(7, 1), 300);
  table.OnSealed(1, 300);
  EXPECT_EQ(table.file_bytes(), 300u);
  EXPECT_THAT(table.Removable(), IsEmpty());
  table.OnEnded(1, 0, 300);
  EXPECT_THAT(table.Removable(), ElementsAre(1));
  EXPECT_EQ(table.live_bytes(), 0u);
  table.OnRemoved(1);
  EXPECT_FALSE(table.Contains(1));
  EXPECT_EQ(table.file_bytes(), 0u);
}

TEST(SegmentTableTest, TheEmptiestIsRewrittenOnceGarbageExceedsTheBound) {
  SegmentTable table(kSlack);
  // 6 files of 1000 with 900 live: 6000 > 2 * 900 + 4000.
  for (uint64_t i = 1; i <= 4; ++i) AddSegment(&table, i, 2);
  EXPECT_THAT(table.WantRewriting(kNoLimit), IsEmpty());  // 4000 <= 2 * 800 + 4000
  AddSegment(&table, 5, 1);
  EXPECT_THAT(table.WantRewriting(kNoLimit), IsEmpty());  // 5000 <= 2 * 900 + 4000
  AddSegment(&table, 6, 0);
  // 6000 > 5800, and 6 may simply go.
  EXPECT_THAT(table.WantRewriting(kNoLimit), ElementsAre(5, 1, 2, 3, 4));
  EXPECT_THAT(table.WantRewriting(500), ElementsAre(5, 1, 2));
  EXPECT_THAT(table.WantRewriting(0), ElementsAre(5));
  EXPECT_THAT(table.KeysOf(5), ElementsAre(PayloadKey{5, 0}));
  EXPECT_THAT(table.KeysOf(1), ElementsAre(PayloadKey{1, 0}, PayloadKey{1, 1}));
  table.OnDamaged(5);
  EXPECT_THAT(table.WantRewriting(0), ElementsAre(1));
  table.OnRemoved(6);
  EXPECT_THAT(table.WantRewriting(kNoLimit), IsEmpty());
}

TEST(SegmentTableTest, FullSegmentsAreNeverRewritten) {
  SegmentTable table(kSlack);
  for (uint64_t i = 1; i <= 20; ++i) AddSegment(&table, i, 6);
  EXPECT_THAT(table.WantRewriting(kNoLimit), IsEmpty());
}

TEST(SegmentTableTest, AListTellsWhichOfItsPayloadsHaveEnded) {
  SegmentTable table(kSlack);
  table.OnCreated(1, 1000);
  table.OnListed(1, 9, Keys(7, 10), 1000);
  EXPECT_EQ(table.EndedWith(9, {0, 9}), std::string("\x01\x02", 2));
  table.OnEnded(9, 0, 100);
  table.OnEnded(9, 9, 100);
  EXPECT_EQ(table.EndedWith(9, {1, 7, 8}), "\x83\x03");
  EXPECT_EQ(table.EndedWith(9, {1, 2, 3, 4, 5, 6, 7, 8}), "");
  EXPECT_EQ(table.live_bytes(), 800u);
  // Told is not done.
  EXPECT_EQ(table.KeysOf(1).size(), 8u);
}

TEST(SegmentTableTest, SegmentsWithoutBytesHoldNoGarbage) {
  SegmentTable table(0);
  table.OnCreated(1, 0);
  table.OnListed(1, 1, Keys(7, 2), 0);
  table.OnSealed(1, 0);
  AddSegment(&table, 2, 1);
  EXPECT_THAT(table.WantRewriting(kNoLimit), ElementsAre(2));
}

}  // namespace
}  // namespace leeway
