#include "queue/store/fake_queue_store.h"

#include "gtest/gtest.h"

namespace leeway {
namespace {

Payload Bytes(const std::string& text) { return std::make_shared<const std::string>(text); }

std::string RecordsOf(const QueueStore& store) {
  std::string all;
  EXPECT_TRUE(store
                  .Recover([&](absl::string_view key, absl::string_view value) {
                    all += std::string(key) + "=" + std::string(value) + ";";
                    return absl::OkStatus();
                  })
                  .ok());
  return all;
}

TEST(FakeQueueStoreTest, CallbacksWaitForTheirWriteAndRunInOrder) {
  FakeQueueStore store;
  std::string order;
  store.WhenDurable(0, [&] { order += "0"; });
  EXPECT_EQ(order, "0");
  EXPECT_EQ(store.Write({{"a", "1"}}), 1u);
  EXPECT_EQ(store.Write({{"b", "2"}}), 2u);
  EXPECT_EQ(store.Write({{"c", "3"}}), 3u);
  store.WhenDurable(1, [&] { order += "1"; });
  store.WhenDurable(2, [&] { order += "x"; });
  store.WhenDurable(2, [&] { order += "y"; });
  store.WhenDurable(3, [&] { order += "3"; });
  store.MakeDurable(2);
  EXPECT_EQ(order, "01xy");
  EXPECT_EQ(store.DurableRecord("b"), "2");
  EXPECT_EQ(store.DurableRecord("c"), std::nullopt);
  store.MakeAllDurable();
  EXPECT_EQ(order, "01xy3");
  EXPECT_EQ(store.durable(), store.written());
}

TEST(FakeQueueStoreTest, ACrashKeepsExactlyTheDurableWrites) {
  FakeQueueStore store;
  ASSERT_TRUE(store.Put({1, 0}, Bytes("one")).ok());
  store.Write({{"a", "1"}, {"b", "1"}});
  ASSERT_TRUE(store.Put({2, 0}, Bytes("three")).ok());
  store.Erase({1, 0});
  const uint64_t second = store.Write({{"a", "2"}, {"b", std::nullopt}});
  ASSERT_TRUE(store.Put({3, 0}, Bytes("x")).ok());  // of no write
  store.MakeDurable(1);
  bool called = false;
  store.WhenDurable(second, [&] { called = true; });

  const auto first_life = store.Crash();
  EXPECT_EQ(RecordsOf(*first_life), "a=1;b=1;");
  EXPECT_EQ(**(*first_life->Get({1, 0}))->Load(), "one");
  EXPECT_EQ(first_life->payloads(), 1u);
  EXPECT_EQ(first_life->bytes(), 3u);

  store.MakeAllDurable();
  EXPECT_FALSE(called);
  const auto second_life = store.Crash();
  EXPECT_EQ(RecordsOf(*second_life), "a=2;");
  EXPECT_EQ(second_life->Get({1, 0}).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(second_life->bytes(), 5u);
  EXPECT_EQ(second_life->Write({}), 1u);
}

TEST(FakeQueueStoreTest, RefusesPutsWhileTold) {
  FakeQueueStore store;
  store.RefusePuts("disk full: a test says so");
  EXPECT_EQ(store.Put({1, 0}, Bytes("one")).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(store.refusal(), "disk full: a test says so");
  EXPECT_EQ(store.payloads(), 0u);
  store.RefusePuts("");
  EXPECT_TRUE(store.Put({1, 0}, Bytes("one")).ok());
  EXPECT_EQ(store.Put({1, 0}, Bytes("two")).code(), absl::StatusCode::kAlreadyExists);
}

TEST(FakeQueueStoreTest, MayMakeEachWriteDurableAtOnce) {
  FakeQueueStore store;
  store.Write({{"a", "1"}});
  store.MakeDurableAtOnce(true);
  EXPECT_EQ(store.durable(), 1u);
  bool called = false;
  store.WhenDurable(store.Write({{"a", "2"}}), [&] { called = true; });
  EXPECT_TRUE(called);
}

}  // namespace
}  // namespace leeway
