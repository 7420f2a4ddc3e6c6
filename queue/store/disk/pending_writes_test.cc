#include "queue/store/disk/pending_writes.h"

#include "gmock/gmock.h"

namespace leeway {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr uint64_t kAll = 1 << 30;
constexpr uint64_t kNoCache = 0;

Payload Bytes(const std::string& bytes) { return std::make_shared<const std::string>(bytes); }

std::vector<std::string> PutsOf(const WriteGroup& group) {
  std::vector<std::string> puts;
  for (const WriteGroup::Put& put : group.puts) puts.push_back(DescribePayload(put.key) + "=" + *put.payload);
  return puts;
}

std::vector<std::string> RecordsOf(const WriteGroup& group) {
  std::vector<std::string> records;
  for (const StoreRecord& record : group.records) records.push_back(record.key + "=" + record.value.value_or("(none)"));
  return records;
}

// Gives every put of the group a place, and makes it durable.
void Finish(PendingWrites* pending, WriteGroup* group) {
  for (WriteGroup::Put& put : group->puts) put.place = PayloadPlace{5, put.key.ticket, put.payload->size(), 1};
  pending->OnDurable(*group);
}

TEST(PendingWritesTest, AGroupHoldsEndedWritesInOrder) {
  PendingWrites pending(kNoCache);
  ASSERT_TRUE(pending.Put({2, 0}, Bytes("bb")).ok());
  EXPECT_FALSE(pending.has_ended_writes());
  EXPECT_TRUE(pending.TakeGroup(kAll).empty());
  EXPECT_EQ(pending.EndWrite({{"t", "1"}, {"b", "x"}}), 1u);
  ASSERT_TRUE(pending.Put({1, 0}, Bytes("a")).ok());
  EXPECT_EQ(pending.EndWrite({{"t", "2"}, {"b", std::nullopt}}), 2u);
  ASSERT_TRUE(pending.Put({3, 0}, Bytes("of the next write")).ok());
  EXPECT_EQ(pending.held_bytes(), 2 + 1 + 17 + (1 + 1) + (1 + 1) + (1 + 1) + 1u);
  WriteGroup group = pending.TakeGroup(kAll);
  EXPECT_EQ(group.last_write, 2u);
  EXPECT_THAT(PutsOf(group), ElementsAre("ticket 1 member 0=a", "ticket 2 member 0=bb"));
  EXPECT_THAT(RecordsOf(group), ElementsAre("b=(none)", "t=2"));
  Finish(&pending, &group);
  EXPECT_EQ(pending.held_bytes(), 17u);
  EXPECT_EQ(pending.Get({1, 0})->in_memory, nullptr);
  EXPECT_EQ(pending.Get({1, 0})->place, (PayloadPlace{5, 1, 1, 1}));
  EXPECT_NE(pending.Get({3, 0})->in_memory, nullptr);
  EXPECT_EQ(pending.payloads(), 3u);
  EXPECT_EQ(pending.bytes(), 20u);
}

TEST(PendingWritesTest, AGroupIsLimitedButNeverEmpty) {
  PendingWrites pending(kNoCache);
  for (uint32_t i = 0; i < 5; ++i) {
    ASSERT_TRUE(pending.Put({i, 0}, Bytes("12345")).ok());
    pending.EndWrite({});
  }
  EXPECT_EQ(pending.TakeGroup(12).last_write, 2u);
  EXPECT_EQ(pending.TakeGroup(1).last_write, 3u);
  EXPECT_EQ(pending.TakeGroup(kAll).last_write, 5u);
}

TEST(PendingWritesTest, WhatWasNeverDurableLeavesNoTrace) {
  PendingWrites pending(kNoCache);
  ASSERT_TRUE(pending.Put({1, 0}, Bytes("a")).ok());
  pending.EndWrite({});
  pending.Erase({1, 0});
  pending.Erase({1, 0});
  pending.EndWrite({});
  WriteGroup group = pending.TakeGroup(kAll);
  EXPECT_THAT(group.puts, IsEmpty());
  EXPECT_THAT(group.erased, IsEmpty());
  Finish(&pending, &group);
  EXPECT_EQ(pending.Get({1, 0}).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(pending.payloads(), 0u);
  EXPECT_EQ(pending.bytes(), 0u);
  EXPECT_EQ(pending.held_bytes(), 0u);
}

TEST(PendingWritesTest, ADurablePayloadIsErasedAndReplacedInOneGroup) {
  PendingWrites pending(kNoCache);
  pending.OnRecovered({1, 0}, PayloadPlace{3, 0, 10, 9});
  EXPECT_EQ(pending.bytes(), 10u);
  EXPECT_EQ(pending.Put({1, 0}, Bytes("x")).code(), absl::StatusCode::kAlreadyExists);
  pending.Erase({1, 0});
  EXPECT_EQ(pending.Get({1, 0}).status().code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE(pending.Put({1, 0}, Bytes("new")).ok());
  pending.EndWrite({});
  WriteGroup group = pending.TakeGroup(kAll);
  ASSERT_THAT(group.erased, SizeIs(1));
  EXPECT_EQ(group.erased[0].place.segment, 3u);
  EXPECT_THAT(PutsOf(group), ElementsAre("ticket 1 member 0=new"));
  Finish(&pending, &group);
  EXPECT_EQ(pending.Get({1, 0})->place.segment, 5u);
  EXPECT_EQ(pending.bytes(), 3u);
}

TEST(PendingWritesTest, AChangeDuringTheWritingOfAGroupWins) {
  PendingWrites pending(kNoCache);
  ASSERT_TRUE(pending.Put({1, 0}, Bytes("first")).ok());
  pending.EndWrite({});
  WriteGroup group = pending.TakeGroup(kAll);
  pending.Erase({1, 0});
  ASSERT_TRUE(pending.Put({1, 0}, Bytes("second")).ok());
  pending.EndWrite({});
  Finish(&pending, &group);
  EXPECT_EQ(*pending.Get({1, 0})->in_memory, "second");
  WriteGroup next = pending.TakeGroup(kAll);
  // What became durable meanwhile ends first.
  ASSERT_THAT(next.erased, SizeIs(1));
  EXPECT_EQ(next.erased[0].place.segment, 5u);
  EXPECT_THAT(PutsOf(next), ElementsAre("ticket 1 member 0=second"));
  Finish(&pending, &next);
  pending.Erase({1, 0});
  EXPECT_EQ(pending.payloads(), 0u);
}

TEST(PendingWritesTest, TheLastOfARecordTwiceInOneWriteHolds) {
  PendingWrites pending(kNoCache);
  pending.EndWrite({{"a", "1"}, {"a", std::nullopt}, {"b", "1"}, {"b", "2"}});
  EXPECT_THAT(RecordsOf(pending.TakeGroup(kAll)), ElementsAre("a=(none)", "b=2"));
}

TEST(PendingWritesTest, TheNewestSmallPayloadsStayInMemory) {
  PendingWrites pending(/*cached_bytes_limit=*/10);
  const auto write = [&](uint64_t ticket, const std::string& bytes) {
    ASSERT_TRUE(pending.Put({ticket, 0}, Bytes(bytes)).ok());
    pending.EndWrite({});
    WriteGroup group = pending.TakeGroup(kAll);
    for (WriteGroup::Put& put : group.puts) put.place = PayloadPlace{0, 0, put.payload->size(), 1};  // inline
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
  WriteGroup group = pending.TakeGroup(kAll);
  pending.OnDurable(group);
  write(4, "123456789");
  EXPECT_TRUE(is_in_memory(3));
  EXPECT_TRUE(is_in_memory(4));
  write(5, "longer than the limit");
  EXPECT_FALSE(is_in_memory(5));
  EXPECT_FALSE(is_in_memory(4));
}

}  // namespace
}  // namespace leeway
