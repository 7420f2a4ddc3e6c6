#include "queue/store/disk/wal_check.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "queue/store/store_test_driver.h"
#include "rocksdb/db.h"

namespace leeway {
namespace {

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
}

void WriteAll(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

// The only log below `directory` that is not empty.
std::string LogOf(const std::string& directory) {
  std::string found;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    if (entry.path().extension() != ".log" || entry.file_size() == 0) continue;
    EXPECT_EQ(found, "");
    found = entry.path();
  }
  return found;
}

// A log as RocksDB writes it, and where its records end.
struct Log {
  std::string bytes;
  std::vector<size_t> ends;
};

Log MakeLog() {
  StoreDirectory directory;
  rocksdb::Options options;
  options.create_if_missing = true;
  options.avoid_flush_during_shutdown = true;
  rocksdb::DB* opened = nullptr;
  EXPECT_TRUE(rocksdb::DB::Open(options, directory.path(), &opened).ok());
  const std::unique_ptr<rocksdb::DB> database(opened);
  rocksdb::WriteOptions sync;
  sync.sync = true;
  Log log;
  // Within a block, over a border of blocks, and over several.
  for (const size_t size : {10, 1000, 40'000, 5, 100'000, 300}) {
    EXPECT_TRUE(database->Put(sync, "key", std::string(size, 'v')).ok());
    log.bytes = ReadAll(LogOf(directory.path()));
    log.ends.push_back(log.bytes.size());
  }
  return log;
}

TEST(WalCheckTest, AnIntactLogIsIntact) {
  const Log log = MakeLog();
  EXPECT_EQ(CheckWal(""), WalState::kIntact);
  EXPECT_EQ(CheckWal(log.bytes), WalState::kIntact);
  for (const size_t end : log.ends) EXPECT_EQ(CheckWal(log.bytes.substr(0, end)), WalState::kIntact);
}

TEST(WalCheckTest, DamageInTheLastRecordIsATornTail) {
  const Log log = MakeLog();
  size_t begin = 0;
  for (const size_t end : log.ends) {
    const std::string until_here = log.bytes.substr(0, end);
    // At the first byte of its checksum, in its length, in the middle, at the end.
    for (const size_t place : {begin, begin + 4, (begin + end) / 2, end - 1}) {
      std::string flipped = until_here;
      flipped[place] = static_cast<char>(flipped[place] ^ 0x20);
      EXPECT_EQ(CheckWal(flipped), WalState::kTornTail) << place;
      std::string zeros = until_here;
      std::fill(zeros.begin() + place, zeros.end(), '\0');
      EXPECT_EQ(CheckWal(zeros), WalState::kTornTail) << place;
      std::string hole = until_here;
      std::fill(hole.begin() + begin, hole.begin() + place + 1, '\0');
      EXPECT_EQ(CheckWal(hole), WalState::kTornTail) << place;
    }
    begin = end;
  }
}

TEST(WalCheckTest, DamageBeforeAWholeRecordIsDamage) {
  const Log log = MakeLog();
  size_t begin = 0;
  for (size_t i = 0; i + 1 < log.ends.size(); ++i) {
    for (const size_t place : {begin, begin + 4, (begin + log.ends[i]) / 2, log.ends[i] - 1}) {
      std::string flipped = log.bytes;
      flipped[place] = static_cast<char>(flipped[place] ^ 0x20);
      EXPECT_EQ(CheckWal(flipped), WalState::kDamaged) << place;
    }
    begin = log.ends[i];
  }
}

// What the store makes of it.
class DamagedLogTest : public ::testing::Test {
 protected:
  DamagedLogTest() {
    const auto store = OpenStore(SmallStore(directory_.path()));
    for (int i = 0; i < 5; ++i) EXPECT_TRUE(AwaitDurable(store.get(), store->Write({{"t", absl::StrCat(i)}})));
  }
  std::string log() const { return LogOf(directory_.path() + "/records"); }
  void FlipFromTheEnd(size_t distance) {
    std::string bytes = ReadAll(log());
    ASSERT_GT(bytes.size(), distance);
    bytes[bytes.size() - distance] = static_cast<char>(bytes[bytes.size() - distance] ^ 1);
    WriteAll(log(), bytes);
  }
  StoreContent Content() { return ContentOf(*OpenStore(SmallStore(directory_.path())), std::vector<PayloadKey>()); }

  StoreDirectory directory_;
};

TEST_F(DamagedLogTest, ATornTailIsDroppedAndWritingGoesOn) {
  FlipFromTheEnd(1);
  EXPECT_EQ(Content(), (StoreContent{{"t", "3"}}));
  {
    const auto store = OpenStore(SmallStore(directory_.path()));
    ASSERT_TRUE(AwaitDurable(store.get(), store->Write({{"u", "x"}})));
  }
  EXPECT_EQ(Content(), (StoreContent{{"t", "3"}, {"u", "x"}}));
}

TEST_F(DamagedLogTest, ACutTailIsDropped) {
  const std::string bytes = ReadAll(log());
  WriteAll(log(), bytes.substr(0, bytes.size() - 3));
  EXPECT_EQ(Content(), (StoreContent{{"t", "3"}}));
}

TEST_F(DamagedLogTest, DamageInTheMiddleIsRefused) {
  FlipFromTheEnd(60);
  const auto store = RocksDbStore::Open(SmallStore(directory_.path()));
  EXPECT_EQ(store.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(store.status().message()), ::testing::HasSubstr(directory_.path() + "/records"));
}

}  // namespace
}  // namespace leeway
