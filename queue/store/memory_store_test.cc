#include "queue/store/memory_store.h"

#include "gtest/gtest.h"

namespace leeway {
namespace {

Payload Bytes(const std::string& text) { return std::make_shared<const std::string>(text); }

TEST(MemoryStoreTest, KeepsCountsAndReturnsWithoutCopying) {
  MemoryStore store;
  const Payload payload = Bytes("abc");
  ASSERT_TRUE(store.Put({1, 0}, payload).ok());
  ASSERT_TRUE(store.Put({1, 1}, Bytes("de")).ok());
  EXPECT_EQ(store.payloads(), 2u);
  EXPECT_EQ(store.bytes(), 5u);
  EXPECT_EQ((*store.Get({1, 0}))->Load()->get(), payload.get());
  EXPECT_EQ(**(*store.Get({1, 1}))->Load(), "de");
}

TEST(MemoryStoreTest, ReplacesNothingAndErasesIdempotently) {
  MemoryStore store;
  ASSERT_TRUE(store.Put({7, 2}, Bytes("first")).ok());
  EXPECT_EQ(store.Put({7, 2}, Bytes("second one")).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(**(*store.Get({7, 2}))->Load(), "first");
  EXPECT_EQ(store.bytes(), 5u);
  const std::shared_ptr<const StoredPayload> reader = *store.Get({7, 2});
  store.Erase({7, 2});
  store.Erase({7, 2});
  EXPECT_EQ(**reader->Load(), "first");  // a reader keeps what it holds
  EXPECT_EQ(store.bytes(), 0u);
  EXPECT_EQ(store.Get({7, 2}).status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace leeway
