#include "queue/store/disk/pending_writes.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"

namespace leeway {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

PendingWrites::Options Options(uint64_t group_bytes = 1 << 30, uint64_t cached_bytes = 0) {
  return {group_bytes, cached_bytes, /*small_bytes=*/100};
}

WriteGroup Take(PendingWrites* pending) { return PendingWrites::MakeGroup(pending->TakeGathered()); }

Payload Bytes(const std::string& bytes) { return std::make_shared<const std::string>(bytes); }

std::vector<std::string> PutsOf(const WriteGroup& group) {
  std::vector<std::string> puts;
  for (const WriteGroup::Put& put : group.puts) puts.push_back(DescribePayload(put.indexed->key) + "=" + *put.payload);
  return puts;
}

std::vector<std::string> RecordsOf(const WriteGroup& group) {
  std::vector<std::string> records;
  for (const StoreRecord& record : group.records) records.push_back(record.key + "=" + record.value.value_or("(none)"));
  return records;
}

// Gives every put of the group a place in a segment, and makes it durable.
void Finish(PendingWrites* pending, WriteGroup* group) {
  for (WriteGroup::Put& put : group->puts) {
    put.place = PayloadPlace{5, 0, 7, put.indexed->key.ticket, put.payload->size(), 1};
  }
  pending->OnDurable(*group);
}

TEST(PendingWritesTest, AGroupHoldsEndedWritesInOrder) {
  PendingWrites pending(Options());
  ASSERT_TRUE(pending.Put({2, 0}, Bytes("bb")).ok());
  EXPECT_FALSE(pending.has_ended_writes());
  EXPECT_TRUE(Take(&pending).empty());
  EXPECT_EQ(pending.EndWrite({{"t", "1"}, {"b", "x"}}), 1u);
  ASSERT_TRUE(pending.Put({1, 0}, Bytes("a")).ok());
  EXPECT_EQ(pending.EndWrite({{"t", "2"}, {"b", std::nullopt}}), 2u);
  ASSERT_TRUE(pending.Put({3, 0}, Bytes("of the next write")).ok());
  EXPECT_EQ(pending.held_bytes(), 2 + 1 + 17 + (1 + 1) + (1 + 1) + (1 + 1) + 1u);
  WriteGroup group = Take(&pending);
  EXPECT_EQ(group.last_write, 2u);
  EXPECT_THAT(PutsOf(group), ElementsAre("ticket 2 member 0=bb", "ticket 1 member 0=a"));
  EXPECT_THAT(RecordsOf(group), ElementsAre("b=(none)", "t=2"));
  Finish(&pending, &group);
  EXPECT_EQ(pending.held_bytes(), 17u);
  EXPECT_EQ(pending.Get({1, 0})->in_memory, nullptr);
  EXPECT_EQ(pending.Get({1, 0})->place, (PayloadPlace{5, 0, 7, 1, 1, 1}));
  EXPECT_NE(pending.Get({3, 0})->in_memory, nullptr);
  EXPECT_EQ(pending.payloads(), 3u);
  EXPECT_EQ(pending.bytes(), 20u);
}

TEST(PendingWritesTest, AGroupIsLimitedButNeverEmpty) {
  PendingWrites pending(Options(/*group_bytes=*/12));
  for (uint32_t i = 0; i < 3; ++i) {
    ASSERT_TRUE(pending.Put({i, 0}, Bytes("12345")).ok());
    pending.EndWrite({});
  }
  ASSERT_TRUE(pending.Put({7, 0}, Bytes("more than a group")).ok());
  pending.EndWrite({});
  ASSERT_TRUE(pending.Put({8, 0}, Bytes("12345")).ok());
  pending.EndWrite({});
  EXPECT_EQ(Take(&pending).last_write, 2u);
  EXPECT_EQ(Take(&pending).last_write, 3u);
  EXPECT_EQ(Take(&pending).last_write, 4u);
  EXPECT_EQ(Take(&pending).last_write, 5u);
  EXPECT_TRUE(Take(&pending).empty());
}

TEST(PendingWritesTest, SmallPayloadsAndRecordsAreCounted) {
  PendingWrites pending(Options());
  ASSERT_TRUE(pending.Put({1, 0}, Bytes(std::string(100, 's'))).ok());
  ASSERT_TRUE(pending.Put({1, 1}, Bytes(std::string(101, 'l'))).ok());
  pending.EndWrite({{"r", "12345"}});
  EXPECT_EQ(pending.held_bytes(), 207u);
  EXPECT_EQ(pending.held_small_bytes(), 106u);
  WriteGroup group = Take(&pending);
  Finish(&pending, &group);
  EXPECT_EQ(pending.held_bytes(), 0u);
  EXPECT_EQ(pending.held_small_bytes(), 0u);
}

TEST(PendingWritesTest, WhatWasNeverDurableLeavesNoTrace) {
  PendingWrites pending(Options());
  ASSERT_TRUE(pending.Put({1, 0}, Bytes("a")).ok());
  pending.EndWrite({});
  pending.Erase({1, 0});
  pending.Erase({1, 0});
  pending.EndWrite({});
  WriteGroup group = Take(&pending);
  EXPECT_THAT(group.puts, IsEmpty());
  EXPECT_THAT(group.erased, IsEmpty());
  Finish(&pending, &group);
  EXPECT_EQ(pending.Get({1, 0}).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(pending.payloads(), 0u);
  EXPECT_EQ(pending.bytes(), 0u);
  EXPECT_EQ(pending.held_bytes(), 0u);
}

TEST(PendingWritesTest, ADurablePayloadIsErasedAndReplacedInOneGroup) {
  PendingWrites pending(Options());
  ASSERT_TRUE(pending.OnRecovered({{1, 0}, PayloadPlace{3, 0, 1, 0, 10, 9}}).ok());
  EXPECT_EQ(pending.bytes(), 10u);
  EXPECT_EQ(pending.Put({1, 0}, Bytes("x")).code(), absl::StatusCode::kAlreadyExists);
  pending.Erase({1, 0});
  EXPECT_EQ(pending.Get({1, 0}).status().code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE(pending.Put({1, 0}, Bytes("new")).ok());
  pending.EndWrite({});
  WriteGroup group = Take(&pending);
  ASSERT_THAT(group.erased, SizeIs(1));
  EXPECT_EQ(group.erased[0].place.list, 3u);
  EXPECT_THAT(PutsOf(group), ElementsAre("ticket 1 member 0=new"));
  Finish(&pending, &group);
  EXPECT_EQ(pending.Get({1, 0})->place.list, 5u);
  EXPECT_EQ(pending.bytes(), 3u);
}

TEST(PendingWritesTest, AChangeDuringTheWritingOfAGroupWins) {
  PendingWrites pending(Options());
  ASSERT_TRUE(pending.Put({1, 0}, Bytes("first")).ok());
  pending.EndWrite({});
  WriteGroup group = Take(&pending);
  pending.Erase({1, 0});
  ASSERT_TRUE(pending.Put({1, 0}, Bytes("second")).ok());
  pending.EndWrite({});
  Finish(&pending, &group);
  EXPECT_EQ(*pending.Get({1, 0})->in_memory, "second");
  WriteGroup next = Take(&pending);
  // What became durable meanwhile ends first.
  ASSERT_THAT(next.erased, SizeIs(1));
  EXPECT_EQ(next.erased[0].place.list, 5u);
  EXPECT_THAT(PutsOf(next), ElementsAre("ticket 1 member 0=second"));
  Finish(&pending, &next);
  pending.Erase({1, 0});
  EXPECT_EQ(pending.payloads(), 0u);
}

TEST(PendingWritesTest, TheLastOfARecordTwiceInOneWriteHolds) {
  PendingWrites pending(Options());
  pending.EndWrite({{"a", "1"}, {"a", std::nullopt}, {"b", "1"}, {"b", "2"}});
  EXPECT_THAT(RecordsOf(Take(&pending)), ElementsAre("a=(none)", "b=2"));
}

TEST(PendingWritesTest, TheNewestSmallPayloadsStayInMemory) {
  PendingWrites pending(Options(1 << 30, /*cached_bytes=*/10));
  const auto write = [&](uint64_t ticket, const std::string& bytes) {
    ASSERT_TRUE(pending.Put({ticket, 0}, Bytes(bytes)).ok());
    pending.EndWrite({});
    WriteGroup group = Take(&pending);
    for (WriteGroup::Put& put : group.puts)
      put.place = PayloadPlace{1, 0, 0, 0, put.payload->size(), 1};  // in a bundle
    pending.OnDurable(group);
  };
  const auto is_in_memory = [&](uint64_t ticket) { return pending.Get({ticket, 0})->in_memory != nullptr; };
  write(1, "12345");
  write(2, "12345");
  EXPECT_TRUE(is_in_memory(1));
  write(3, "1");  // no room for all three
  EXPECT_FALSE(is_in_memory(1));
  EXPECT_EQ(pending.Get({1, 0})->place.size_bytes, 5u);
  EXPECT_TRUE(is_in_memory(2));
  EXPECT_TRUE(is_in_memory(3));
  // What is erased gives its room back.
  pending.Erase({2, 0});
  pending.EndWrite({});
  WriteGroup group = Take(&pending);
  pending.OnDurable(group);
  write(4, "123456789");
  EXPECT_TRUE(is_in_memory(3));
  EXPECT_TRUE(is_in_memory(4));
  write(5, "longer than the limit");
  EXPECT_FALSE(is_in_memory(5));
  EXPECT_FALSE(is_in_memory(4));
}

TEST(PendingWritesTest, APayloadListedTwiceIsDamage) {
  PendingWrites pending(Options());
  ASSERT_TRUE(pending.OnRecovered({{1, 0}, PayloadPlace{3, 0, 1, 0, 10, 9}}).ok());
  const absl::Status twice = pending.OnRecovered({{1, 0}, PayloadPlace{4, 1, 1, 0, 10, 9}});
  EXPECT_EQ(twice.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(twice.message(), "ticket 1 member 0 is listed twice, in the lists 3 and 4 of payloads");
}

TEST(PendingWritesTest, WhatEndsIsInTheOrderOfItsPlaces) {
  PendingWrites pending(Options());
  ASSERT_TRUE(pending.OnRecovered({{1, 0}, PayloadPlace{3, 1, 1, 0, 10, 9}}).ok());
  ASSERT_TRUE(pending.OnRecovered({{2, 0}, PayloadPlace{9, 0, 1, 0, 10, 9}}).ok());
  ASSERT_TRUE(pending.OnRecovered({{3, 0}, PayloadPlace{3, 0, 1, 0, 10, 9}}).ok());
  for (uint64_t ticket = 1; ticket <= 3; ++ticket) pending.Erase({ticket, 0});
  pending.EndWrite({});
  WriteGroup group = Take(&pending);
  ASSERT_THAT(group.erased, SizeIs(3));
  EXPECT_EQ(group.erased[0].indexed->key.ticket, 3u);
  EXPECT_EQ(group.erased[1].indexed->key.ticket, 1u);
  EXPECT_EQ(group.erased[2].indexed->key.ticket, 2u);
}

TEST(PendingWritesTest, RecordsThatReplaceEachOtherTakeNoMemoryWhileTheDiskStandsStill) {
  PendingWrites pending(Options());
  for (int i = 0; i < 100'000; ++i) {
    pending.EndWrite({{"head", std::to_string(i)}, {"row " + std::to_string(i % 50), std::string(10, 'x')}});
    ASSERT_LT(pending.held_bytes(), 500'000u);
  }
  WriteGroup group = Take(&pending);
  EXPECT_EQ(group.last_write, 100'000u);
  ASSERT_THAT(group.records, SizeIs(51));
  EXPECT_EQ(RecordsOf(group)[0], "head=99999");
  Finish(&pending, &group);
  EXPECT_EQ(pending.held_bytes(), 0u);
  EXPECT_EQ(pending.held_small_bytes(), 0u);
}

TEST(PendingWritesTest, WhatIsBeingRewrittenIsInMemory) {
  PendingWrites pending(Options());
  for (uint64_t ticket = 1; ticket <= 2; ++ticket) {
    ASSERT_TRUE(pending.OnRecovered({{ticket, 0}, PayloadPlace{3, static_cast<uint32_t>(ticket), 0, 0, 4, 9}}).ok());
  }
  const auto rewriting = [&] {
    WriteGroup group;
    for (uint64_t ticket = 1; ticket <= 2; ++ticket) {
      IndexedPayload* const indexed = pending.FindDurable({ticket, 0});
      group.puts.push_back({indexed, Bytes("1234"), PayloadPlace{8, 0, 0, 0, 4, 9}});
      group.erased.push_back({indexed, indexed->place});
    }
    pending.OnRewriting(group);
    return group;
  };
  pending.OnGivenUp(rewriting());
  EXPECT_EQ(pending.Get({1, 0})->in_memory, nullptr);
  const WriteGroup group = rewriting();
  EXPECT_EQ(*pending.Get({1, 0})->in_memory, "1234");
  // Ends, and comes anew, while it is rewritten.
  pending.Erase({1, 0});
  EXPECT_FALSE(pending.Get({1, 0}).ok());
  ASSERT_TRUE(pending.Put({1, 0}, Bytes("new")).ok());
  pending.EndWrite({});
  pending.OnDurable(group);
  EXPECT_EQ(*pending.Get({1, 0})->in_memory, "new");
  EXPECT_EQ(pending.Get({2, 0})->in_memory, nullptr);
  EXPECT_EQ(pending.Get({2, 0})->place.list, 8u);
  WriteGroup next = Take(&pending);
  ASSERT_THAT(next.erased, SizeIs(1));
  EXPECT_EQ(next.erased[0].place.list, 8u);
  Finish(&pending, &next);
  EXPECT_EQ(pending.payloads(), 2u);
  EXPECT_EQ(pending.bytes(), 7u);
}

}  // namespace
}  // namespace leeway
