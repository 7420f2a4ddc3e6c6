// The store while its disk is full or failing.

#include <string>
#include <tuple>
#include <vector>

#include "gmock/gmock.h"
#include "queue/store/rocksdb_store.h"
#include "queue/store/store_test_driver.h"

namespace leeway {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using Fault = FaultyStoreFileSystem::Fault;
using Operation = FaultyStoreFileSystem::Operation;

const std::string kLarge(10'000, 'L');

// More than one segment of large payloads.
constexpr uint32_t kMore = 10;

std::vector<PayloadKey> MakeKeys() {
  std::vector<PayloadKey> keys = {{1, 0}, {1, 1}, {3, 0}};
  for (uint32_t i = 0; i < kMore; ++i) keys.push_back({2, i});
  return keys;
}
const std::vector<PayloadKey> kKeys = MakeKeys();

struct Place {
  Operation operation;
  std::string path_contains;
  std::string name;
};

// Where a group of writes can fail: making, reserving, filling and syncing a segment; writing and syncing the log.
const std::vector<Place>& Places() {
  static const auto* places = new std::vector<Place>{
      {Operation::kCreate, "/segments/", "Create"},   {Operation::kReserve, "/segments/", "Reserve"},
      {Operation::kAppend, "/segments/", "Append"},   {Operation::kSync, "/segments/", "Sync"},
      {Operation::kAppend, "/records/", "LogAppend"}, {Operation::kSync, "/records/", "LogSync"},
  };
  return *places;
}

class FailingDiskTest : public ::testing::TestWithParam<std::tuple<Fault, size_t>> {
 protected:
  FailingDiskTest() : disk_(std::make_shared<FaultyStoreFileSystem>()) {
    disk_->LoseUnsynced();
    store_ = OpenStore(SmallStore(directory_.path(), disk_));
    EXPECT_TRUE(store_->Put({1, 0}, PayloadOf("small")).ok());
    EXPECT_TRUE(store_->Put({1, 1}, PayloadOf(kLarge)).ok());
    EXPECT_TRUE(AwaitDurable(store_.get(), store_->Write({{"t1", "ready"}})));
  }

  const Place& place() const { return Places()[std::get<1>(GetParam())]; }
  FaultyStoreFileSystem::Rule RuleFor(int times) const {
    FaultyStoreFileSystem::Rule rule;
    rule.fault = std::get<0>(GetParam());
    rule.operation = place().operation;
    rule.path_contains = place().path_contains;
    rule.times = times;
    return rule;
  }
  // One write with all that a write may hold.
  uint64_t WriteMore() {
    EXPECT_TRUE(store_->Put({2, 0}, PayloadOf("another small one")).ok());
    for (uint32_t i = 1; i < kMore; ++i) EXPECT_TRUE(store_->Put({2, i}, PayloadOf(kLarge + "2")).ok());
    const uint64_t number = store_->Write({{"t1", std::nullopt}, {"t2", "ready"}});
    store_->Erase({1, 0});
    store_->Write({{"t3", "x"}});
    return number + 1;
  }
  StoreContent Before() const { return {{"t1", "ready"}, {"1/0", "small"}, {"1/1", kLarge}}; }
  StoreContent After() const {
    StoreContent content = {{"t2", "ready"}, {"t3", "x"}, {"1/1", kLarge}, {"2/0", "another small one"}};
    for (uint32_t i = 1; i < kMore; ++i) content[NameOf({2, i})] = kLarge + "2";
    return content;
  }

  StoreDirectory directory_;
  std::shared_ptr<FaultyStoreFileSystem> disk_;
  std::unique_ptr<RocksDbStore> store_;
};

TEST_P(FailingDiskTest, AFailureNowAndThenOnlyTakesTime) {
  disk_->AddRule(RuleFor(3));
  ASSERT_TRUE(AwaitDurable(store_.get(), WriteMore()));
  ASSERT_TRUE(AwaitCondition([&] { return disk_->faults() == 3; }));
  EXPECT_EQ(ContentOf(*store_, kKeys), After());
  disk_->Crash();
  store_.reset();
  EXPECT_EQ(ContentOf(*OpenStore(SmallStore(directory_.path())), kKeys), After());
}

TEST_P(FailingDiskTest, NothingIsReportedAndPutsAreRefusedUntilItWorksAgain) {
  disk_->AddRule(RuleFor(-1));
  const uint64_t number = WriteMore();
  auto reported = std::make_shared<Signal>();
  bool called = false;
  store_->WhenDurable(number, [&called, reported] {
    called = true;
    reported->Give();
  });
  ASSERT_TRUE(AwaitCondition([&] { return !store_->refusal().empty(); }));
  EXPECT_THAT(store_->refusal(),
              StartsWith(std::get<0>(GetParam()) == Fault::kNoSpace ? "disk full: " : "disk error: "));
  EXPECT_THAT(store_->refusal(), HasSubstr(directory_.path()));
  const absl::Status refused = store_->Put({3, 0}, PayloadOf("new"));
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  // Several attempts have failed; what is held stays readable, durable or not.
  ASSERT_TRUE(AwaitCondition([&] { return store_->Statistics().failures >= 4; }));
  EXPECT_FALSE(called);
  EXPECT_EQ(**(*store_->Get({1, 1}))->Load(), kLarge);
  EXPECT_EQ(**(*store_->Get({2, 0}))->Load(), "another small one");
  EXPECT_EQ(store_->Get({1, 0}).status().code(), absl::StatusCode::kNotFound);

  disk_->Heal();
  ASSERT_TRUE(reported->Await());
  ASSERT_TRUE(AwaitCondition([&] { return store_->refusal().empty(); }));
  EXPECT_TRUE(store_->Put({3, 0}, PayloadOf("new")).ok());
  store_->Erase({3, 0});
  EXPECT_EQ(ContentOf(*store_, kKeys), After());
  disk_->Crash();
  store_.reset();
  EXPECT_EQ(ContentOf(*OpenStore(SmallStore(directory_.path())), kKeys), After());
}

TEST_P(FailingDiskTest, ACrashWhileItFailsKeepsWholeWrites) {
  disk_->AddRule(RuleFor(-1));
  WriteMore();
  ASSERT_TRUE(AwaitCondition([&] { return store_->Statistics().failures >= 3; }));
  disk_->Crash();
  store_.reset();
  const StoreContent content = ContentOf(*OpenStore(SmallStore(directory_.path())), kKeys);
  StoreContent first = After();
  first.erase("t3");
  first["1/0"] = "small";
  EXPECT_TRUE(content == Before() || content == first || content == After());
}

TEST_P(FailingDiskTest, TheDestructorDoesNotWaitForTheDisk) {
  disk_->AddRule(RuleFor(-1));
  bool called = false;
  store_->WhenDurable(WriteMore(), [&] { called = true; });
  ASSERT_TRUE(AwaitCondition([&] { return store_->Statistics().failures >= 1; }));
  store_.reset();
  EXPECT_FALSE(called);
}

INSTANTIATE_TEST_SUITE_P(Everywhere, FailingDiskTest,
                         ::testing::Combine(::testing::Values(Fault::kNoSpace, Fault::kInputOutput),
                                            ::testing::Range<size_t>(0, 6)),
                         [](const auto& info) {
                           return (std::get<0>(info.param) == Fault::kNoSpace ? "NoSpace" : "InputOutput") +
                                  Places()[std::get<1>(info.param)].name;
                         });

TEST(FullDiskTest, RecordsGoOnWhilePushesAreRefusedAndAllResumesWithSpace) {
  StoreDirectory directory;
  const auto disk = std::make_shared<FaultyStoreFileSystem>();
  disk->LoseUnsynced();
  RocksDbStoreOptions options = SmallStore(directory.path(), disk);
  const auto store = OpenStore(options);
  // The ballast, about ten segments, and something for the database.
  disk->SetCapacity(options.ballast_bytes + 10 * options.segment_bytes + (64 << 10));
  std::vector<PayloadKey> keys;
  StoreContent expected;
  absl::Status status;
  for (uint32_t i = 0; i < 200; ++i) {
    status = store->Put({i, 0}, PayloadOf(kLarge));
    if (!status.ok()) break;
    keys.push_back({i, 0});
    expected[NameOf(keys.back())] = kLarge;
    ASSERT_TRUE(AwaitDurable(store.get(), store->Write({})));
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), StartsWith("disk full: "));
  EXPECT_GT(keys.size(), 40u);
  // Before a record failed: the next segment could not be reserved.
  EXPECT_EQ(store->Statistics().failures, 0u);

  // 100 KiB of records, more than is left without the ballast.
  for (int i = 0; i < 100; ++i) {
    const std::string key = absl::StrCat("t", i);
    expected[key] = std::string(1024, 'r');
    ASSERT_TRUE(AwaitDurable(store.get(), store->Write({{key, expected[key]}})));
  }
  EXPECT_FALSE(std::filesystem::exists(directory.path() + "/ballast"));
  EXPECT_THAT(store->refusal(), StartsWith("disk full: "));
  EXPECT_EQ(ContentOf(*store, keys), expected);

  // Space comes back when payloads have been settled.
  for (size_t i = 0; i < 30; ++i) {
    store->Erase(keys[i]);
    expected.erase(NameOf(keys[i]));
  }
  ASSERT_TRUE(AwaitDurable(store.get(), store->Write({})));
  disk->SetCapacity(options.ballast_bytes + 12 * options.segment_bytes + (64 << 10));
  ASSERT_TRUE(AwaitCondition([&] { return store->refusal().empty(); }));
  EXPECT_TRUE(std::filesystem::exists(directory.path() + "/ballast"));
  ASSERT_TRUE(store->Put({1000, 0}, PayloadOf("again")).ok());
  keys.push_back({1000, 0});
  expected["1000/0"] = "again";
  ASSERT_TRUE(AwaitDurable(store.get(), store->Write({})));
  EXPECT_EQ(ContentOf(*store, keys), expected);
}

TEST(FullDiskTest, SmallPayloadsThatWereAcceptedBeforeDoNotHoldUpRecords) {
  StoreDirectory directory;
  const auto disk = std::make_shared<FaultyStoreFileSystem>();
  disk->LoseUnsynced();
  RocksDbStoreOptions options = SmallStore(directory.path(), disk);
  options.inline_bytes = 4096;
  const auto store = OpenStore(options);
  ASSERT_TRUE(AwaitDurable(store.get(), store->Write({{"t", "0"}})));
  Signal may_sync;
  disk->DelaySyncs(absl::ZeroDuration(), [&](absl::Duration) { may_sync.Await(); });
  // Half of the ballast, 128 KiB, may wait.
  std::vector<PayloadKey> keys;
  StoreContent expected;
  absl::Status status;
  for (uint32_t i = 0; i < 1000; ++i) {
    status = store->Put({i, 0}, PayloadOf(std::string(1024, 's')));
    if (!status.ok()) break;
    keys.push_back({i, 0});
    expected[NameOf(keys.back())] = std::string(1024, 's');
    store->Write({});
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("131072 bytes of small payloads and records wait"));
  EXPECT_EQ(keys.size(), 128u);

  disk->SetCapacity(options.ballast_bytes + (32 << 10));  // too little for them without the ballast
  may_sync.Give();
  for (int i = 0; i < 20; ++i) {
    expected["t"] = std::string(100 + i, 'r');
    ASSERT_TRUE(AwaitDurable(store.get(), store->Write({{"t", expected["t"]}})));
  }
  EXPECT_FALSE(std::filesystem::exists(directory.path() + "/ballast"));
  EXPECT_THAT(store->refusal(), StartsWith("disk full: "));
  EXPECT_EQ(ContentOf(*store, keys), expected);
}

TEST(FullDiskTest, WhatTheDatabaseHoldsInMemoryNeedsNoRoomOfTheBallast) {
  StoreDirectory directory;
  const auto disk = std::make_shared<FaultyStoreFileSystem>();
  RocksDbStoreOptions options;  // the real sizes
  options.directory = directory.path();
  options.file_system = disk;
  options.first_pause = absl::Milliseconds(1);
  options.longest_pause = absl::Milliseconds(5);
  const auto store = OpenStore(options);
  const std::string small(8 << 10, 's');
  std::vector<PayloadKey> keys;
  StoreContent expected;
  uint64_t written = 0;
  const auto put = [&] {
    keys.push_back({keys.size(), 0});
    const absl::Status status = store->Put(keys.back(), PayloadOf(small));
    if (status.ok()) {
      expected[NameOf(keys.back())] = small;
      written = store->Write({});
    }
    return status;
  };
  const auto put_records = [&](int from, int to) {
    for (int i = from; i < to; ++i) {
      const std::string key = absl::StrCat("t", i);
      expected[key] = std::string(64 << 10, 'r');
      ASSERT_TRUE(AwaitDurable(store.get(), store->Write({{key, expected[key]}})));
    }
  };
  const auto log_bytes = [&] {
    uint64_t bytes = 0;
    for (const auto& file : std::filesystem::directory_iterator(directory.path() + "/records")) {
      if (file.path().extension() == ".log") bytes += file.file_size();
    }
    return bytes;
  };
  // 11 MiB in the buffer of 16 MiB and 7 MiB in the one of 8 MiB: as tables they do not fit into the ballast.
  for (int i = 1; i <= 11 * 128; ++i) {
    ASSERT_TRUE(put().ok());
    if (i % 128 == 0) {
      ASSERT_TRUE(AwaitDurable(store.get(), written));
    }
  }
  put_records(0, 7 * 16);
  ASSERT_GT(log_bytes(), 18u << 20);
  // All that may wait for the disk does; then there is room for nothing.
  Signal may_sync;
  disk->DelaySyncs(absl::ZeroDuration(), [&](absl::Duration) { may_sync.Await(); });
  while (put().ok()) {
  }
  EXPECT_THAT(store->refusal(), HasSubstr("8388608 bytes of small payloads and records wait"));
  disk->SetCapacity(disk->taken_bytes());
  may_sync.Give();

  put_records(7 * 16, 13 * 16);
  EXPECT_FALSE(std::filesystem::exists(directory.path() + "/ballast"));
  EXPECT_THAT(store->refusal(), StartsWith("disk full: "));
  EXPECT_GT(log_bytes(), 32u << 20);
  EXPECT_EQ(ContentOf(*store, keys), expected);

  // With space the logs go as usual.
  disk->Heal();
  ASSERT_TRUE(AwaitCondition([&] { return store->refusal().empty(); }));
  EXPECT_LT(log_bytes(), 1u << 20);
  EXPECT_EQ(ContentOf(*store, keys), expected);
}

TEST(FullDiskTest, AStoreOpensOnAFullDisk) {
  StoreDirectory directory;
  {
    const auto store = OpenStore(SmallStore(directory.path()));
    ASSERT_TRUE(store->Put({1, 0}, PayloadOf(kLarge)).ok());
    ASSERT_TRUE(AwaitDurable(store.get(), store->Write({{"t", "1"}})));
  }
  const auto disk = std::make_shared<FaultyStoreFileSystem>();
  // Enough to open, without a flush; nothing of the size of a segment.
  disk->SetCapacity(24 << 10);
  std::filesystem::remove(directory.path() + "/ballast");
  const auto store = OpenStore(SmallStore(directory.path(), disk));
  ASSERT_NE(store, nullptr);
  EXPECT_THAT(store->refusal(), StartsWith("disk full: "));
  EXPECT_EQ(ContentOf(*store, std::vector<PayloadKey>{{1, 0}}), (StoreContent{{"1/0", kLarge}, {"t", "1"}}));
  disk->Heal();
  ASSERT_TRUE(AwaitCondition([&] { return store->refusal().empty(); }));
}

}  // namespace
}  // namespace leeway
