#include "queue/ledger/lineage_history.h"

#include "gtest/gtest.h"

namespace leeway {
namespace {

using Existence = LineageHistory::Existence;

void CommitThrough(LineageHistory* history, uint64_t lineage, uint64_t first, uint64_t last) {
  for (uint64_t version = first; version <= last; ++version) ASSERT_TRUE(history->Commit(lineage, version).ok());
}

TEST(LineageHistoryTest, NothingExistsBeforeItsCommit) {
  LineageHistory history;
  EXPECT_EQ(history.Check(1, 1), Existence::kUnknown);
  ASSERT_TRUE(history.Restore(1, 0).ok());
  EXPECT_EQ(history.Check(1, 1), Existence::kUnknown);
  ASSERT_TRUE(history.Commit(1, 1).ok());
  EXPECT_EQ(history.Check(1, 1), Existence::kExists);
  EXPECT_EQ(history.Check(1, 0), Existence::kUnknown);
  EXPECT_EQ(history.Check(1, 2), Existence::kUnknown);
  EXPECT_EQ(history.Check(2, 1), Existence::kUnknown);
}

TEST(LineageHistoryTest, ARestoreVoidsEverythingAfterTheVersionItRestores) {
  LineageHistory history;
  ASSERT_TRUE(history.Restore(1, 0).ok());
  CommitThrough(&history, 1, 1, 9);
  ASSERT_TRUE(history.Restore(2, 5).ok());
  // The end of step 5 is version 6: it is the same weights in both lineages.
  EXPECT_EQ(history.Check(1, 6), Existence::kExists);
  EXPECT_EQ(history.Check(1, 7), Existence::kVoid);
  EXPECT_EQ(history.Check(1, 9), Existence::kVoid);
  EXPECT_EQ(history.Check(1, 10), Existence::kUnknown);
  CommitThrough(&history, 2, 6, 12);
  EXPECT_EQ(history.Check(2, 5), Existence::kUnknown);
  EXPECT_EQ(history.Check(2, 12), Existence::kExists);
  EXPECT_EQ(history.Check(1, 7), Existence::kVoid);
}

TEST(LineageHistoryTest, TheSmallestLaterRestoreDecides) {
  LineageHistory history;
  ASSERT_TRUE(history.Restore(1, 0).ok());
  CommitThrough(&history, 1, 1, 20);
  ASSERT_TRUE(history.Restore(3, 10).ok());  // lineage 2 died before it restored
  CommitThrough(&history, 3, 11, 15);
  ASSERT_TRUE(history.Restore(4, 4).ok());
  CommitThrough(&history, 4, 5, 9);
  ASSERT_TRUE(history.Restore(5, 7).ok());
  CommitThrough(&history, 5, 8, 8);
  // Lineage 1: min(11, 5, 8) = 5. Lineage 3: min(5, 8) = 5, less than its first version. Lineage 4: 8.
  for (uint64_t version = 1; version <= 20; ++version) {
    EXPECT_EQ(history.Check(1, version), version <= 5 ? Existence::kExists : Existence::kVoid) << version;
  }
  for (uint64_t version = 11; version <= 15; ++version) EXPECT_EQ(history.Check(3, version), Existence::kVoid);
  for (uint64_t version = 5; version <= 9; ++version) {
    EXPECT_EQ(history.Check(4, version), version <= 8 ? Existence::kExists : Existence::kVoid) << version;
  }
  EXPECT_EQ(history.Check(5, 8), Existence::kExists);
  EXPECT_EQ(history.Check(2, 3), Existence::kUnknown);
}

TEST(LineageHistoryTest, RefusesRepeatedLineagesAndSkippedVersions) {
  LineageHistory history;
  EXPECT_FALSE(history.Restore(0, 0).ok());
  EXPECT_FALSE(history.Commit(1, 1).ok());
  ASSERT_TRUE(history.Restore(2, 3).ok());
  EXPECT_FALSE(history.Restore(2, 3).ok());
  EXPECT_FALSE(history.Restore(1, 3).ok());
  EXPECT_FALSE(history.Commit(2, 3).ok());
  EXPECT_FALSE(history.Commit(2, 5).ok());
  EXPECT_TRUE(history.Commit(2, 4).ok());
  EXPECT_FALSE(history.Commit(2, 4).ok());
  EXPECT_TRUE(history.Commit(2, 5).ok());
}

}  // namespace
}  // namespace leeway
