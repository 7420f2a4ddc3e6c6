#include "queue/store/rocksdb_store.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <memory>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "queue/store/store_test_driver.h"

namespace leeway {
namespace {

using ::testing::HasSubstr;

constexpr size_t kLarge = 10'000;

std::string Large(char letter) { return std::string(kLarge, letter); }

std::vector<std::filesystem::path> SegmentFiles(const std::string& directory) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(directory + "/segments")) files.push_back(entry.path());
  return files;
}

TEST(RocksDbStoreTest, KeepsRecordsAndPayloadsOfBothSizesAcrossARestart) {
  StoreDirectory directory;
  const std::vector<PayloadKey> keys = {{1, 0}, {1, 1}, {2, 0}, {1ull << 40, 7}};
  StoreContent before;
  {
    const auto store = OpenStore(SmallStore(directory.path()));
    ASSERT_TRUE(store->Put({1, 0}, PayloadOf("small")).ok());
    ASSERT_TRUE(store->Put({1, 1}, PayloadOf(Large('b'))).ok());
    EXPECT_EQ(store->Write({{"t1", "ready"}, {"a", ""}}), 1u);
    ASSERT_TRUE(store->Put({2, 0}, PayloadOf("gone")).ok());
    ASSERT_TRUE(store->Put({1ull << 40, 7}, PayloadOf("")).ok());
    EXPECT_EQ(store->Write({{"t2", "x"}}), 2u);
    store->Erase({2, 0});
    ASSERT_TRUE(AwaitDurable(store.get(), store->Write({{"t2", std::nullopt}, {"t1", "leased"}})));
    before = ContentOf(*store, keys);
  }
  EXPECT_EQ(before, (StoreContent{
                        {"a", ""}, {"t1", "leased"}, {"1/0", "small"}, {"1/1", Large('b')}, {"1099511627776/7", ""}}));
  const auto store = OpenStore(SmallStore(directory.path()));
  EXPECT_EQ(ContentOf(*store, keys), before);
  EXPECT_EQ(store->Put({1, 1}, PayloadOf("again")).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(store->Write({}), 1u);
}

TEST(RocksDbStoreTest, WhatIsNotDurableYetIsVisibleAtOnce) {
  StoreDirectory directory;
  const auto disk = std::make_shared<FaultyStoreFileSystem>();
  const auto store = OpenStore(SmallStore(directory.path(), disk));
  Signal may_sync;
  disk->DelaySyncs(absl::ZeroDuration(), [&](absl::Duration) { may_sync.Await(); });
  ASSERT_TRUE(store->Put({1, 0}, PayloadOf(Large('a'))).ok());
  EXPECT_EQ(store->Put({1, 0}, PayloadOf("b")).code(), absl::StatusCode::kAlreadyExists);
  bool durable = false;
  const uint64_t number = store->Write({{"t", "1"}});
  store->WhenDurable(number, [&] { durable = true; });
  EXPECT_EQ(**(*store->Get({1, 0}))->Load(), Large('a'));
  EXPECT_EQ(store->bytes(), kLarge);
  store->Erase({1, 0});
  EXPECT_EQ(store->Get({1, 0}).status().code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE(store->Put({1, 0}, PayloadOf("c")).ok());
  EXPECT_EQ(**(*store->Get({1, 0}))->Load(), "c");
  EXPECT_FALSE(durable);
  may_sync.Give();
  ASSERT_TRUE(AwaitDurable(store.get(), store->Write({})));
  EXPECT_TRUE(durable);
  EXPECT_EQ(ContentOf(*store, std::vector<PayloadKey>{{1, 0}}), (StoreContent{{"1/0", "c"}, {"t", "1"}}));
}

TEST(RocksDbStoreTest, CallbacksRunInOrder) {
  StoreDirectory directory;
  const auto store = OpenStore(SmallStore(directory.path()));
  std::vector<int> order;
  Signal all;
  for (int i = 0; i < 200; ++i) {
    const uint64_t number = store->Write({{"n", absl::StrCat(i)}});
    store->WhenDurable(number, [&order, i] { order.push_back(2 * i); });
    store->WhenDurable(number, [&order, i] { order.push_back(2 * i + 1); });
  }
  store->WhenDurable(200, [&] { all.Give(); });
  ASSERT_TRUE(all.Await());
  ASSERT_EQ(order.size(), 400u);
  for (int i = 0; i < 400; ++i) EXPECT_EQ(order[i], i);
  bool at_once = false;
  store->WhenDurable(0, [&] { at_once = true; });
  EXPECT_TRUE(at_once);
}

TEST(RocksDbStoreTest, WritesThatGatherDuringASyncShareTheNextOne) {
  StoreDirectory directory;
  const auto disk = std::make_shared<FaultyStoreFileSystem>();
  const auto store = OpenStore(SmallStore(directory.path(), disk));
  ASSERT_TRUE(AwaitDurable(store.get(), store->Write({{"t", "0"}})));
  Signal syncing;
  Signal may_sync;
  disk->DelaySyncs(absl::ZeroDuration(), [&](absl::Duration) {
    syncing.Give();
    may_sync.Await();
  });
  const uint64_t before = disk->syncs();
  store->Write({{"t", "first"}});
  ASSERT_TRUE(syncing.Await());
  for (uint32_t i = 0; i < 100; ++i) {
    ASSERT_TRUE(store->Put({i, 0}, PayloadOf("small")).ok());
    store->Write({{absl::StrCat("t", i), "1"}});
  }
  may_sync.Give();
  ASSERT_TRUE(AwaitDurable(store.get(), 102));
  EXPECT_EQ(disk->syncs() - before, 2u);

  // With large payloads it is one more: theirs.
  for (uint32_t i = 200; i < 203; ++i) ASSERT_TRUE(store->Put({i, 0}, PayloadOf(Large('x'))).ok());
  ASSERT_TRUE(AwaitDurable(store.get(), store->Write({{"u", "1"}})));
  EXPECT_EQ(disk->syncs() - before, 4u);
  EXPECT_EQ(store->Statistics().groups, 4u);
  EXPECT_EQ(store->Statistics().segment_syncs, 1u);
  EXPECT_EQ(store->Statistics().waiting_bytes, 0u);
}

TEST(RocksDbStoreTest, LargePayloadsAreWrittenOnce) {
  StoreDirectory directory;
  const auto disk = std::make_shared<FaultyStoreFileSystem>();
  RocksDbStoreOptions options;
  options.directory = directory.path();
  options.file_system = disk;
  const auto store = OpenStore(options);
  const uint64_t before = disk->appended_bytes();
  // 128 MiB in payloads of 64 KiB, of which 8 MiB live at a time; with a record for each, as the ledger writes it.
  constexpr uint64_t kPayloads = 2048;
  constexpr uint64_t kSize = 64 << 10;
  const Payload payload = PayloadOf(std::string(kSize, 'x'));
  uint64_t last = 0;
  for (uint64_t i = 1; i <= kPayloads; ++i) {
    ASSERT_TRUE(store->Put({i, 0}, payload).ok());
    if (i > 128) store->Erase({i - 128, 0});
    last = store->Write({{absl::StrCat("t", i), std::string(100, 'r')}});
    if (i % 16 == 0) {
      ASSERT_TRUE(AwaitDurable(store.get(), last));
    }
  }
  ASSERT_TRUE(AwaitDurable(store.get(), last));
  const double amplification =
      static_cast<double>(disk->appended_bytes() - before) / static_cast<double>(kPayloads * kSize);
  RecordProperty("write_amplification", absl::StrCat(amplification));
  std::cout << "bytes written / bytes of payloads: " << amplification << std::endl;
  EXPECT_GE(amplification, 1.0);
  EXPECT_LT(amplification, 1.01);
}

TEST(RocksDbStoreTest, RefusesWhileTooMuchWaits) {
  StoreDirectory directory;
  const auto disk = std::make_shared<FaultyStoreFileSystem>();
  RocksDbStoreOptions options = SmallStore(directory.path(), disk);
  options.waiting_bytes = 3 * kLarge;
  const auto store = OpenStore(options);
  Signal may_sync;
  disk->DelaySyncs(absl::ZeroDuration(), [&](absl::Duration) { may_sync.Await(); });
  for (uint32_t i = 0; i < 3; ++i) ASSERT_TRUE(store->Put({1, i}, PayloadOf(Large('a'))).ok());
  const uint64_t number = store->Write({});
  const absl::Status refused = store->Put({1, 3}, PayloadOf("b"));
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("the disk is behind: 30000 bytes wait"));
  EXPECT_EQ(store->refusal(), refused.message());
  EXPECT_EQ(store->payloads(), 3u);
  may_sync.Give();
  ASSERT_TRUE(AwaitDurable(store.get(), number));
  EXPECT_EQ(store->refusal(), "");
  EXPECT_TRUE(store->Put({1, 3}, PayloadOf("b")).ok());
}

TEST(RocksDbStoreTest, ASecondStoreIsRefusedByName) {
  StoreDirectory directory;
  const auto store = OpenStore(SmallStore(directory.path()));
  const auto second = RocksDbStore::Open(SmallStore(directory.path()));
  EXPECT_EQ(second.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr(directory.path()));
}

TEST(RocksDbStoreTest, ASecondProcessIsToldWhichHasIt) {
  StoreDirectory directory;
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  const std::string lock = directory.path() + "/lock";
  const pid_t child = fork();
  if (child == 0) {
    // What a store does to its lock file, with nothing that a forked process may not do.
    const int file = open(lock.c_str(), O_RDWR | O_CREAT, 0644);
    struct flock whole = {};
    whole.l_type = F_WRLCK;
    whole.l_whence = SEEK_SET;
    const char answer = fcntl(file, F_SETLK, &whole) == 0 ? '1' : '0';
    if (write(pipe_ends[1], &answer, 1) != 1) _exit(1);
    while (true) pause();
  }
  char answer = 0;
  ASSERT_EQ(read(pipe_ends[0], &answer, 1), 1);
  EXPECT_EQ(answer, '1');
  const auto second = RocksDbStore::Open(SmallStore(directory.path()));
  EXPECT_EQ(second.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr(absl::StrCat("process ", child)));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_NE(OpenStore(SmallStore(directory.path())), nullptr);
  close(pipe_ends[0]);
  close(pipe_ends[1]);
}

// A store with one callback that blocks until `gate` is given, on the thread that runs callbacks beside the writer: the
// writer itself is kept in a sync until more waits.
struct BlockedCallback {
  BlockedCallback() {
    Signal syncing;
    Signal may_sync;
    disk->DelaySyncs(absl::ZeroDuration(), [&](absl::Duration) {
      syncing.Give();
      may_sync.Await();
    });
    store->WhenDurable(store->Write({{"a", "1"}}), [this] {
      entered.Give();
      gate.Await();
    });
    EXPECT_TRUE(syncing.Await());
    later = store->Write({{"b", "2"}});
    groups = store->Statistics().groups;
    may_sync.Give();
    EXPECT_TRUE(entered.Await());
    disk->DelaySyncs(absl::ZeroDuration(), nullptr);
    // The sync that may still use the two signals is over when the second group is durable.
    second_group_came = AwaitCondition([&] { return store->Statistics().groups == groups + 2; });
  }
  ~BlockedCallback() { gate.Give(); }

  StoreDirectory directory;
  const std::shared_ptr<FaultyStoreFileSystem> disk = std::make_shared<FaultyStoreFileSystem>();
  Signal entered;
  Signal gate;
  std::unique_ptr<RocksDbStore> store = OpenStore(SmallStore(directory.path(), disk));
  uint64_t groups = 0;
  uint64_t later = 0;
  bool second_group_came = false;
};

TEST(RocksDbStoreTest, ACallbackThatBlocksDoesNotKeepWhatWaitsFromBecomingDurable) {
  BlockedCallback blocked;
  EXPECT_TRUE(blocked.second_group_came);
  // The order of callbacks holds: the next one waits for the first.
  bool called = false;
  Signal second;
  blocked.store->WhenDurable(blocked.later, [&] {
    called = true;
    second.Give();
  });
  EXPECT_FALSE(called);
  blocked.gate.Give();
  EXPECT_TRUE(second.Await());
}

TEST(RocksDbStoreTest, TheDestructorWaitsForARunningCallbackAndKeepsNoneBehindIt) {
  BlockedCallback blocked;
  ASSERT_TRUE(blocked.second_group_came);
  std::atomic<bool> is_gone = false;
  const auto dropped = std::make_shared<int>(0);
  for (int i = 0; i < 3; ++i) {
    blocked.store->WhenDurable(blocked.later, [dropped] { ++*dropped; });
  }
  std::thread destroyer([&] {
    blocked.store.reset();
    is_gone = true;
  });
  EXPECT_FALSE(is_gone);
  blocked.gate.Give();
  destroyer.join();
  // Run or dropped, none is kept.
  EXPECT_EQ(dropped.use_count(), 1);
}

TEST(RocksDbStoreTest, InspectionReadsBesideARunningStoreAndChangesNothing) {
  StoreDirectory directory;
  const auto store = OpenStore(SmallStore(directory.path()));
  ASSERT_TRUE(store->Put({1, 0}, PayloadOf("small")).ok());
  ASSERT_TRUE(store->Put({1, 1}, PayloadOf(Large('b'))).ok());
  ASSERT_TRUE(AwaitDurable(store.get(), store->Write({{"t1", "ready"}})));

  RocksDbStoreOptions options = SmallStore(directory.path());
  options.read_only = true;
  const auto inspected = OpenStore(options);
  EXPECT_EQ(ContentOf(*inspected, std::vector<PayloadKey>{{1, 0}, {1, 1}}),
            (StoreContent{{"t1", "ready"}, {"1/0", "small"}, {"1/1", Large('b')}}));
  EXPECT_EQ(inspected->Put({2, 0}, PayloadOf("x")).code(), absl::StatusCode::kResourceExhausted);

  ASSERT_TRUE(AwaitDurable(store.get(), store->Write({{"t1", "leased"}})));
  EXPECT_EQ(ContentOf(*inspected, std::vector<PayloadKey>{{1, 0}, {1, 1}})["t1"], "ready");
  EXPECT_EQ(ContentOf(*OpenStore(options), std::vector<PayloadKey>{{1, 0}, {1, 1}})["t1"], "leased");
}

TEST(RocksDbStoreTest, InspectionOfNothingIsAnErrorAndMakesNothing) {
  StoreDirectory directory;
  RocksDbStoreOptions options = SmallStore(directory.path() + "/none");
  options.read_only = true;
  const auto inspected = RocksDbStore::Open(options);
  EXPECT_EQ(inspected.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(inspected.status().message()), HasSubstr("/none holds no queue store"));
  EXPECT_FALSE(std::filesystem::exists(options.directory));
}

TEST(RocksDbStoreTest, ADamagedPayloadIsNamedAndHarmsNoOther) {
  StoreDirectory directory;
  {
    const auto store = OpenStore(SmallStore(directory.path()));
    ASSERT_TRUE(store->Put({7, 0}, PayloadOf(Large('a'))).ok());
    ASSERT_TRUE(store->Put({7, 1}, PayloadOf(Large('b'))).ok());
    ASSERT_TRUE(AwaitDurable(store.get(), store->Write({})));
  }
  const std::vector<std::filesystem::path> files = SegmentFiles(directory.path());
  ASSERT_EQ(files.size(), 1u);
  std::fstream file(files[0], std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(kLarge + 5);
  file.put('?');
  file.close();
  const auto store = OpenStore(SmallStore(directory.path()));
  EXPECT_EQ(**(*store->Get({7, 0}))->Load(), Large('a'));
  const absl::StatusOr<Payload> damaged = (*store->Get({7, 1}))->Load();
  EXPECT_EQ(damaged.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(damaged.status().message()), HasSubstr("ticket 7 member 1"));
  EXPECT_THAT(std::string(damaged.status().message()), HasSubstr(files[0].string()));
}

TEST(RocksDbStoreTest, AMissingSegmentIsNamedAtOpen) {
  StoreDirectory directory;
  {
    const auto store = OpenStore(SmallStore(directory.path()));
    ASSERT_TRUE(store->Put({7, 3}, PayloadOf(Large('a'))).ok());
    ASSERT_TRUE(AwaitDurable(store.get(), store->Write({})));
  }
  const std::filesystem::path file = SegmentFiles(directory.path())[0];
  std::filesystem::resize_file(file, kLarge - 1);
  const auto cut = RocksDbStore::Open(SmallStore(directory.path()));
  EXPECT_EQ(cut.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(cut.status().message()), HasSubstr("is cut off: ticket 7 member 3"));
  std::filesystem::remove(file);
  const auto missing = RocksDbStore::Open(SmallStore(directory.path()));
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(missing.status().message()), HasSubstr(file.string() + " is missing"));
}

TEST(RocksDbStoreTest, APayloadStaysReadableAfterItWasErasedAndItsFileRemoved) {
  StoreDirectory directory;
  const auto store = OpenStore(SmallStore(directory.path()));
  ASSERT_TRUE(store->Put({1, 0}, PayloadOf(Large('a'))).ok());
  ASSERT_TRUE(store->Put({1, 1}, PayloadOf("small")).ok());
  // Fills the first segment, so that it is sealed.
  for (uint32_t i = 0; i < 10; ++i) ASSERT_TRUE(store->Put({2, i}, PayloadOf(Large('z'))).ok());
  ASSERT_TRUE(AwaitDurable(store.get(), store->Write({})));
  const auto held = *store->Get({1, 0});
  const auto held_small = *store->Get({1, 1});
  const std::string file = directory.path() + "/segments/000000000001.payloads";
  ASSERT_TRUE(std::filesystem::exists(file));
  store->Erase({1, 0});
  store->Erase({1, 1});
  for (uint32_t i = 0; i < 10; ++i) store->Erase({2, i});
  ASSERT_TRUE(AwaitDurable(store.get(), store->Write({})));
  ASSERT_TRUE(AwaitCondition([&] { return !std::filesystem::exists(file); }));
  EXPECT_EQ(**held->Load(), Large('a'));
  EXPECT_EQ(**held_small->Load(), "small");
}

TEST(RocksDbStoreTest, SegmentsWithMuchGarbageAreRewritten) {
  StoreDirectory directory;
  RocksDbStoreOptions options = SmallStore(directory.path());
  std::vector<PayloadKey> keys;
  StoreContent expected;
  {
    const auto store = OpenStore(options);
    // 6 payloads a segment; of 600, every tenth stays: 60 live ones in up to 60 of 100 segments.
    for (uint32_t i = 0; i < 600; ++i) {
      const std::string bytes = absl::StrCat(i, ":", Large('a' + i % 26));
      ASSERT_TRUE(store->Put({i, 0}, PayloadOf(bytes)).ok());
      keys.push_back({i, 0});
      if (i % 10 == 0) expected[NameOf(keys.back())] = bytes;
      store->Write({});
    }
    ASSERT_TRUE(AwaitDurable(store.get(), 600));
    for (uint32_t i = 0; i < 600; ++i) {
      if (i % 10 != 0) store->Erase({i, 0});
    }
    ASSERT_TRUE(AwaitDurable(store.get(), store->Write({})));
    const uint64_t live = store->bytes();
    ASSERT_TRUE(
        AwaitCondition([&] { return store->Statistics().segment_file_bytes <= 2 * live + 4 * options.segment_bytes; }));
    EXPECT_GT(store->Statistics().rewritten_bytes, 0u);
    EXPECT_EQ(store->Statistics().live_segment_bytes, live);
    EXPECT_EQ(ContentOf(*store, keys), expected);
  }
  uint64_t on_disk = 0;
  for (const auto& file : SegmentFiles(directory.path())) on_disk += std::filesystem::file_size(file);
  EXPECT_LE(on_disk, 60 * 2 * (kLarge + 4) + 4 * options.segment_bytes);
  EXPECT_EQ(ContentOf(*OpenStore(options), keys), expected);
}

TEST(RocksDbStoreTest, ADamagedPayloadIsNotRewritten) {
  StoreDirectory directory;
  const RocksDbStoreOptions options = SmallStore(directory.path());
  {
    const auto store = OpenStore(options);
    for (uint32_t i = 0; i < 12; ++i) ASSERT_TRUE(store->Put({i, 0}, PayloadOf(Large('a'))).ok());
    ASSERT_TRUE(AwaitDurable(store.get(), store->Write({})));
  }
  std::fstream file(directory.path() + "/segments/000000000001.payloads",
                    std::ios::in | std::ios::out | std::ios::binary);
  file.put('?');
  file.close();
  const auto store = OpenStore(options);
  for (uint32_t i = 1; i < 12; ++i) store->Erase({i, 0});
  for (uint32_t i = 100; i < 160; ++i) ASSERT_TRUE(store->Put({i, 0}, PayloadOf(Large('b'))).ok());
  ASSERT_TRUE(AwaitDurable(store.get(), store->Write({})));
  for (uint32_t i = 100; i < 159; ++i) store->Erase({i, 0});
  for (int round = 0; round < 20; ++round) ASSERT_TRUE(AwaitDurable(store.get(), store->Write({})));
  EXPECT_EQ((*store->Get({0, 0}))->Load().status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(**(*store->Get({159, 0}))->Load(), Large('b'));
}

TEST(RocksDbStoreTest, UnreferencedSegmentsAreDroppedAndReservedSpaceIsGivenBack) {
  StoreDirectory directory;
  const auto disk = std::make_shared<FaultyStoreFileSystem>();
  {
    const auto store = OpenStore(SmallStore(directory.path(), disk));
    for (uint32_t i = 0; i < 5; ++i) ASSERT_TRUE(store->Put({1, i}, PayloadOf(Large('a'))).ok());
    ASSERT_TRUE(AwaitDurable(store.get(), store->Write({})));
    ASSERT_TRUE(AwaitCondition([&] { return SegmentFiles(directory.path()).size() == 2; }));  // active and spare
    disk->Crash();
  }
  const auto store = OpenStore(SmallStore(directory.path()));
  EXPECT_EQ(SegmentFiles(directory.path()).size(), 1u);
  EXPECT_EQ(store->Statistics().segment_file_bytes, 5 * kLarge);
  // Old segments are never appended to.
  ASSERT_TRUE(store->Put({2, 0}, PayloadOf(Large('b'))).ok());
  ASSERT_TRUE(AwaitDurable(store.get(), store->Write({})));
  EXPECT_EQ(std::filesystem::file_size(directory.path() + "/segments/000000000001.payloads"), 5 * kLarge);
}

TEST(RocksDbStoreTest, AnotherFormatIsRefused) {
  StoreDirectory directory;
  const auto opened = RocksDbStore::Open(SmallStore(directory.path() + "/a/b"));  // parents are made
  EXPECT_TRUE(opened.ok()) << opened.status();
  std::ofstream(directory.path() + "/file") << "x";
  EXPECT_FALSE(RocksDbStore::Open(SmallStore(directory.path() + "/file")).ok());
}

TEST(RocksDbStoreTest, ALostDatabaseIsNoNewStore) {
  StoreDirectory directory;
  RocksDbStoreOptions options;
  options.directory = directory.path() + "/store";
  ASSERT_TRUE(RocksDbStore::Open(options).ok());
  std::filesystem::remove_all(options.directory + "/records");
  const auto store = RocksDbStore::Open(options);
  EXPECT_TRUE(absl::IsDataLoss(store.status())) << store.status();
  EXPECT_THAT(std::string(store.status().message()), ::testing::HasSubstr("has lost the database of its records"));
  EXPECT_TRUE(absl::IsDataLoss(RocksDbStore::Open(options).status()));  // looking made no new one
}

}  // namespace
}  // namespace leeway
