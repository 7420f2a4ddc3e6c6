// Small payloads: many lie in one value of the database.

#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "queue/store/disk/payload_place.h"
#include "queue/store/rocksdb_store.h"
#include "queue/store/store_test_driver.h"
#include "rocksdb/db.h"

namespace leeway {
namespace {

using ::testing::HasSubstr;

// 8 of them fill a bundle of SmallStore.
constexpr size_t kSmall = 50;

std::string BytesOf(uint64_t ticket) {
  std::string bytes = absl::StrCat("payload ", ticket, " ");
  while (bytes.size() < kSmall) bytes += static_cast<char>('a' + (ticket * 7 + bytes.size()) % 26);
  return bytes;
}

RocksDbStoreOptions WithoutCache(const std::string& directory) {
  RocksDbStoreOptions options = SmallStore(directory);
  options.cached_bytes = 0;
  return options;
}

std::vector<PayloadKey> KeysTo(uint64_t tickets) {
  std::vector<PayloadKey> keys;
  for (uint64_t i = 0; i < tickets; ++i) keys.push_back({i, 0});
  return keys;
}

// One group of them, from ticket 0.
void PutAll(RocksDbStore* store, uint64_t tickets, StoreContent* content = nullptr) {
  for (uint64_t i = 0; i < tickets; ++i) {
    ASSERT_TRUE(store->Put({i, 0}, PayloadOf(BytesOf(i))).ok());
    if (content != nullptr) (*content)[NameOf({i, 0})] = BytesOf(i);
  }
  ASSERT_TRUE(AwaitDurable(store, store->Write({})));
}

TEST(RocksDbStoreBundleTest, AGroupMakesAsManyBundlesAsItNeeds) {
  StoreDirectory directory;
  StoreContent content;
  {
    const auto store = OpenStore(WithoutCache(directory.path()));
    PutAll(store.get(), 20, &content);
    ASSERT_TRUE(AwaitCondition([&] { return store->Statistics().bundles == 3; }));
    EXPECT_EQ(store->Statistics().bundle_bytes, 20 * kSmall);
    EXPECT_EQ(store->Statistics().live_bundle_bytes, 20 * kSmall);
    EXPECT_EQ(ContentOf(*store, KeysTo(20)), content);
  }
  const auto store = OpenStore(WithoutCache(directory.path()));
  EXPECT_EQ(store->Statistics().bundles, 3u);
  EXPECT_EQ(ContentOf(*store, KeysTo(20)), content);
}

TEST(RocksDbStoreBundleTest, SomeOfABundleEndAndTheRestStays) {
  StoreDirectory directory;
  StoreContent content;
  for (uint64_t ended = 0; ended < 16; ++ended) {
    const auto store = OpenStore(WithoutCache(directory.path()));
    if (ended == 0) PutAll(store.get(), 16, &content);
    EXPECT_EQ(ContentOf(*store, KeysTo(16)), content) << ended;
    // 5 and 16 have no common factor: in turn of the one and the other bundle.
    const PayloadKey key{ended * 5 % 16, 0};
    store->Erase(key);
    content.erase(NameOf(key));
    EXPECT_EQ(ContentOf(*store, KeysTo(16)), content) << ended;
    ASSERT_TRUE(AwaitDurable(store.get(), store->Write({})));
  }
  const auto store = OpenStore(WithoutCache(directory.path()));
  EXPECT_EQ(store->Statistics().bundles, 0u);
  EXPECT_EQ(store->payloads(), 0u);
  // Its numbers are free again, and nothing of it is left to be met.
  PutAll(store.get(), 16);
  EXPECT_EQ(**(*OpenStore([&] {
                  RocksDbStoreOptions options = WithoutCache(directory.path());
                  options.read_only = true;
                  return options;
                }())
                    ->Get({3, 0}))
                  ->Load(),
            BytesOf(3));
}

TEST(RocksDbStoreBundleTest, BundlesWithMuchGarbageAreRewritten) {
  StoreDirectory directory;
  RocksDbStoreOptions options = WithoutCache(directory.path());
  StoreContent content;
  constexpr uint64_t kTickets = 2000;
  {
    const auto store = OpenStore(options);
    PutAll(store.get(), kTickets, &content);
    // Of each bundle one or two stay: nothing would go by itself.
    for (uint64_t i = 0; i < kTickets; ++i) {
      if (i % 5 == 0) continue;
      store->Erase({i, 0});
      content.erase(NameOf({i, 0}));
    }
    ASSERT_TRUE(AwaitDurable(store.get(), store->Write({})));
    const uint64_t live = store->bytes();
    EXPECT_EQ(live, kTickets / 5 * kSmall);
    ASSERT_TRUE(
        AwaitCondition([&] { return store->Statistics().bundle_bytes <= 2 * live + 8 * options.bundle_bytes; }));
    EXPECT_GT(store->Statistics().rewritten_bundle_bytes, 0u);
    EXPECT_EQ(store->Statistics().live_bundle_bytes, live);
    EXPECT_EQ(ContentOf(*store, KeysTo(kTickets)), content);
  }
  const auto store = OpenStore(options);
  EXPECT_LE(store->Statistics().bundle_bytes, 2 * store->bytes() + 8 * options.bundle_bytes);
  EXPECT_EQ(ContentOf(*store, KeysTo(kTickets)), content);
}

TEST(RocksDbStoreBundleTest, WhatWasHandedOutStaysReadableWhateverBecomesOfItsBundle) {
  StoreDirectory directory;
  const auto store = OpenStore(WithoutCache(directory.path()));
  constexpr uint64_t kTickets = 400;
  PutAll(store.get(), kTickets);
  std::vector<std::shared_ptr<const StoredPayload>> held;
  for (uint64_t i = 0; i < kTickets; ++i) held.push_back(*store->Get({i, 0}));
  // Some bundles go, the others are rewritten.
  for (uint64_t i = 0; i < kTickets; ++i) {
    if (i % 6 != 0) store->Erase({i, 0});
  }
  ASSERT_TRUE(AwaitDurable(store.get(), store->Write({})));
  ASSERT_TRUE(AwaitCondition([&] { return store->Statistics().rewritten_bundle_bytes > 0; }));
  for (uint64_t i = 0; i < kTickets; i += 6) store->Erase({i, 0});
  ASSERT_TRUE(AwaitDurable(store.get(), store->Write({})));
  ASSERT_TRUE(AwaitCondition([&] { return store->Statistics().bundles == 0; }));
  for (uint64_t i = 0; i < kTickets; ++i) EXPECT_EQ(**held[i]->Load(), BytesOf(i));
}

TEST(RocksDbStoreBundleTest, WhatWasNotLoadedIsRefusedOnceTheStoreIsClosed) {
  StoreDirectory directory;
  auto store = OpenStore(WithoutCache(directory.path()));
  PutAll(store.get(), 1);
  const auto held = *store->Get({0, 0});
  store.reset();
  EXPECT_EQ(held->size_bytes(), kSmall);
  EXPECT_EQ(held->Load().status().code(), absl::StatusCode::kFailedPrecondition);
}

// ---- damage ---------------------------------------------------------------------------------------------------------

// Changes one byte behind the only place of `text` in the database's tables.
void Damage(const std::string& directory, const std::string& text) {
  int places = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory + "/records")) {
    if (entry.path().extension() != ".sst") continue;
    std::ifstream in(entry.path(), std::ios::binary);
    std::string bytes(std::istreambuf_iterator<char>(in), {});
    const size_t place = bytes.find(text);
    if (place == std::string::npos) continue;
    ++places;
    std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(place + text.size());
    file.put('?');
  }
  EXPECT_EQ(places, 1) << text;
}

TEST(RocksDbStoreBundleTest, ADamagedPayloadIsNamedAndHarmsNoneOfItsBundle) {
  StoreDirectory directory;
  const RocksDbStoreOptions options = WithoutCache(directory.path());
  PutAll(OpenStore(options).get(), 8);
  OpenStore(options);  // writes what the log holds into tables
  Damage(directory.path(), "payload 5 ");
  const auto store = OpenStore(options);
  for (uint64_t i = 0; i < 8; ++i) {
    const absl::StatusOr<Payload> payload = (*store->Get({i, 0}))->Load();
    if (i != 5) {
      EXPECT_EQ(**payload, BytesOf(i));
      continue;
    }
    EXPECT_EQ(payload.status().code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(std::string(payload.status().message()), HasSubstr("ticket 5 member 0: its 50 bytes at offset 250"));
  }
}

TEST(RocksDbStoreBundleTest, ADamagedPayloadIsNotRewritten) {
  StoreDirectory directory;
  const RocksDbStoreOptions options = WithoutCache(directory.path());
  PutAll(OpenStore(options).get(), 800);
  OpenStore(options);
  Damage(directory.path(), "payload 96 ");
  const auto store = OpenStore(options);
  for (uint64_t i = 0; i < 800; ++i) {
    if (i % 8 != 0) store->Erase({i, 0});
  }
  ASSERT_TRUE(AwaitDurable(store.get(), store->Write({})));
  // All bundles but the damaged one.
  ASSERT_TRUE(AwaitCondition([&] {
    return AwaitDurable(store.get(), store->Write({})) && store->Statistics().bundle_bytes <= 2 * store->bytes() + 3200;
  }));
  for (uint64_t i = 0; i < 800; i += 8) {
    const absl::StatusOr<Payload> payload = (*store->Get({i, 0}))->Load();
    if (i == 96) {
      EXPECT_EQ(payload.status().code(), absl::StatusCode::kDataLoss);
    } else {
      EXPECT_EQ(**payload, BytesOf(i));
    }
  }
}

TEST(RocksDbStoreBundleTest, ADamagedTableOfListsIsRefused) {
  StoreDirectory directory;
  const RocksDbStoreOptions options = WithoutCache(directory.path());
  PutAll(OpenStore(options).get(), 8);
  OpenStore(options);
  // Ticket 3, member 0, size 50.
  const char entry[] = "\3\0\0\0\0\0\0\0\0\0\0\0\62\0\0\0\0\0\0";
  Damage(directory.path(), std::string(entry, sizeof(entry) - 1));
  const auto store = RocksDbStore::Open(options);
  EXPECT_EQ(store.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(store.status().message()), HasSubstr(".sst"));
}

// Changes the records of a closed store by hand.
void Edit(const std::string& directory, const std::function<void(rocksdb::DB*)>& edit) {
  std::vector<rocksdb::ColumnFamilyHandle*> families;
  rocksdb::DB* opened = nullptr;
  ASSERT_TRUE(rocksdb::DB::Open(rocksdb::DBOptions(), directory + "/records", {{"default", {}}, {"bundles", {}}},
                                &families, &opened)
                  .ok());
  const std::unique_ptr<rocksdb::DB> database(opened);
  edit(opened);
  for (rocksdb::ColumnFamilyHandle* family : families) ASSERT_TRUE(opened->DestroyColumnFamilyHandle(family).ok());
}

std::string RefusalAfter(const std::function<void(rocksdb::DB*)>& edit) {
  StoreDirectory directory;
  PutAll(OpenStore(WithoutCache(directory.path())).get(), 10);
  Edit(directory.path(), edit);
  const auto store = RocksDbStore::Open(WithoutCache(directory.path()));
  EXPECT_EQ(store.status().code(), absl::StatusCode::kDataLoss);
  return std::string(store.status().message());
}

TEST(RocksDbStoreBundleTest, ListsThatCannotBeAreRefused) {
  // Bundle 1 has tickets 0 to 7, bundle 2 has 8 and 9.
  EXPECT_THAT(RefusalAfter([](rocksdb::DB* database) {
                std::string list;
                ASSERT_TRUE(database->Get({}, ListKey(1), &list).ok());
                ASSERT_EQ(list.size(), 16u + 8 * 28);
                list.resize(200);
                ASSERT_TRUE(database->Put({}, ListKey(1), list).ok());
              }),
              HasSubstr("list 1 of payloads is damaged: it has 200 bytes"));
  EXPECT_THAT(RefusalAfter([](rocksdb::DB* database) {
                std::string list;
                ASSERT_TRUE(database->Get({}, ListKey(2), &list).ok());
                ASSERT_TRUE(database->Put({}, ListKey(3), list).ok());
              }),
              HasSubstr("ticket 8 member 0 is listed twice, in the lists 2 and 3"));
  EXPECT_THAT(RefusalAfter([](rocksdb::DB* database) { ASSERT_TRUE(database->Put({}, EndedKey(1), "\1\1").ok()); }),
              HasSubstr("list 1 of 8 payloads has 2 bytes that say which have ended"));
  EXPECT_THAT(RefusalAfter([](rocksdb::DB* database) {
                ASSERT_TRUE(database->Put({}, EndedKey(2), "\1").ok());
                ASSERT_TRUE(database->Delete({}, ListKey(2)).ok());
              }),
              HasSubstr("list 2 of payloads is missing, of which some have ended"));
  EXPECT_THAT(RefusalAfter([](rocksdb::DB* database) { ASSERT_TRUE(database->Put({}, "P12", "").ok()); }),
              HasSubstr("no key of a list of payloads: P12"));
}

TEST(RocksDbStoreBundleTest, AMissingBundleIsNamedWhenItIsRead) {
  StoreDirectory directory;
  PutAll(OpenStore(WithoutCache(directory.path())).get(), 10);
  std::vector<rocksdb::ColumnFamilyHandle*> families;
  rocksdb::DB* opened = nullptr;
  ASSERT_TRUE(rocksdb::DB::Open(rocksdb::DBOptions(), directory.path() + "/records", {{"default", {}}, {"bundles", {}}},
                                &families, &opened)
                  .ok());
  ASSERT_TRUE(opened->Delete({}, families[1], BundleKey(2)).ok());
  for (rocksdb::ColumnFamilyHandle* family : families) ASSERT_TRUE(opened->DestroyColumnFamilyHandle(family).ok());
  delete opened;
  const auto store = OpenStore(WithoutCache(directory.path()));
  EXPECT_EQ(**(*store->Get({7, 0}))->Load(), BytesOf(7));
  const absl::StatusOr<Payload> missing = (*store->Get({8, 0}))->Load();
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(missing.status().message()), HasSubstr("ticket 8 member 0: read bundle 2 from "));
}

TEST(RocksDbStoreBundleTest, AnOlderFormatIsRefused) {
  StoreDirectory directory;
  OpenStore(WithoutCache(directory.path()));
  Edit(directory.path(), [](rocksdb::DB* database) { ASSERT_TRUE(database->Put({}, "Format", "1").ok()); });
  const auto store = RocksDbStore::Open(WithoutCache(directory.path()));
  EXPECT_EQ(store.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(store.status().message()),
              HasSubstr("holds a queue store of format 1; this program reads format 2"));
}

}  // namespace
}  // namespace leeway
