#include "queue/store/faulty_file_system.h"

#include <fstream>

#include "gmock/gmock.h"
#include "queue/store/store_test_driver.h"

namespace leeway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Fault = FaultyStoreFileSystem::Fault;
using Operation = FaultyStoreFileSystem::Operation;
using Torn = FaultyStoreFileSystem::Torn;

const rocksdb::IOOptions kIo;

class FaultyFileSystemTest : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return directory_.path() + "/" + name; }
  std::unique_ptr<rocksdb::FSWritableFile> Open(const std::string& name) {
    std::unique_ptr<rocksdb::FSWritableFile> file;
    rocksdb::FileOptions options;
    options.use_mmap_writes = false;
    EXPECT_TRUE(disk_.NewWritableFile(path(name), options, &file, nullptr).ok());
    return file;
  }
  std::string Read(const std::string& name) const {
    std::ifstream file(path(name), std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  rocksdb::IOStatus Append(rocksdb::FSWritableFile* file, const std::string& bytes) {
    return file->Append(bytes, kIo, nullptr);
  }

  StoreDirectory directory_;
  FaultyStoreFileSystem disk_;
};

TEST_F(FaultyFileSystemTest, WithoutFaultsItIsADisk) {
  const auto file = Open("a");
  ASSERT_TRUE(Append(file.get(), "hello").ok());
  EXPECT_EQ(Read("a"), "hello");
  EXPECT_EQ(file->GetFileSize(kIo, nullptr), 5u);
  ASSERT_TRUE(file->Sync(kIo, nullptr).ok());
  ASSERT_TRUE(file->Truncate(2, kIo, nullptr).ok());
  EXPECT_EQ(Read("a"), "he");
  EXPECT_EQ(disk_.appended_bytes(), 5u);
  EXPECT_EQ(disk_.syncs(), 1u);
}

TEST_F(FaultyFileSystemTest, UnsyncedBytesAreLostInACrash) {
  disk_.LoseUnsynced();
  const auto file = Open("a");
  ASSERT_TRUE(Append(file.get(), "one").ok());
  EXPECT_EQ(Read("a"), "");
  ASSERT_TRUE(file->Sync(kIo, nullptr).ok());
  ASSERT_TRUE(Append(file.get(), "two").ok());
  EXPECT_EQ(file->GetFileSize(kIo, nullptr), 6u);
  disk_.Crash();
  EXPECT_FALSE(Append(file.get(), "three").ok());
  EXPECT_FALSE(file->Sync(kIo, nullptr).ok());
  EXPECT_FALSE(disk_.DeleteFile(path("a"), kIo, nullptr).ok());
  EXPECT_EQ(Read("a"), "one");
}

TEST_F(FaultyFileSystemTest, ACrashMayTearWhatWasNotSynced) {
  for (const auto& [torn, name, left] : {std::tuple(Torn::kHalf, "a", std::string("syncab")),
                                         std::tuple(Torn::kHalfAndZeros, "b.log", std::string("syncab\0\0", 8)),
                                         std::tuple(Torn::kHalfAndZeros, "c", std::string("syncab"))}) {
    FaultyStoreFileSystem disk;
    disk.LoseUnsynced();
    std::unique_ptr<rocksdb::FSWritableFile> file;
    rocksdb::FileOptions options;
    options.use_mmap_writes = false;
    ASSERT_TRUE(disk.NewWritableFile(path(name), options, &file, nullptr).ok());
    ASSERT_TRUE(Append(file.get(), "sync").ok());
    ASSERT_TRUE(file->Sync(kIo, nullptr).ok());
    ASSERT_TRUE(Append(file.get(), "abcd").ok());
    disk.Crash(torn);
    EXPECT_EQ(Read(name), left);
  }
}

TEST_F(FaultyFileSystemTest, CrashesAtTheGivenChange) {
  disk_.LoseUnsynced();
  disk_.CrashAt(4);
  const auto file = Open("a");
  ASSERT_TRUE(Append(file.get(), "x").ok());
  ASSERT_TRUE(file->Sync(kIo, nullptr).ok());
  EXPECT_FALSE(disk_.crashed());
  EXPECT_FALSE(Append(file.get(), "y").ok());
  EXPECT_TRUE(disk_.crashed());
  EXPECT_EQ(Read("a"), "x");
}

TEST_F(FaultyFileSystemTest, RulesCountMatchAndEnd) {
  disk_.AddRule({Fault::kNoSpace, Operation::kAppend, 2, "segments", ""});
  disk_.AddRule({Fault::kInputOutput, Operation::kSync, 1, "", ""});
  const auto other = Open("other");
  const auto file = Open("segments");
  EXPECT_TRUE(Append(other.get(), "x").ok());
  EXPECT_TRUE(Append(file.get(), "1234").IsNoSpace());
  EXPECT_EQ(Read("segments"), "12");  // the disk got so far
  EXPECT_TRUE(Append(file.get(), "1234").IsNoSpace());
  EXPECT_TRUE(Append(file.get(), "1234").ok());
  EXPECT_TRUE(file->Sync(kIo, nullptr).IsIOError());
  EXPECT_TRUE(file->Sync(kIo, nullptr).ok());
  EXPECT_EQ(disk_.faults(), 3u);
  disk_.AddRule({Fault::kInputOutput, std::nullopt, -1, "", ""});
  EXPECT_TRUE(file->Sync(kIo, nullptr).IsIOError());
  EXPECT_TRUE(file->Allocate(0, 100, kIo, nullptr).IsIOError());
  disk_.Heal();
  EXPECT_TRUE(file->Sync(kIo, nullptr).ok());
}

TEST_F(FaultyFileSystemTest, ACapacityIsSharedAndGivenBack) {
  disk_.SetCapacity(100);
  const auto a = Open("a");
  const auto b = Open("b");
  ASSERT_TRUE(a->Allocate(0, 60, kIo, nullptr).ok());
  ASSERT_TRUE(Append(a.get(), std::string(60, 'a')).ok());  // within what is reserved
  EXPECT_TRUE(b->Allocate(0, 41, kIo, nullptr).IsNoSpace());
  EXPECT_TRUE(Append(b.get(), std::string(50, 'b')).IsNoSpace());
  EXPECT_EQ(Read("b").size(), 40u);
  ASSERT_TRUE(disk_.RenameFile(path("a"), path("c"), kIo, nullptr).ok());
  ASSERT_TRUE(disk_.DeleteFile(path("c"), kIo, nullptr).ok());
  EXPECT_TRUE(Append(b.get(), std::string(60, 'b')).ok());
  EXPECT_TRUE(Append(b.get(), "b").IsNoSpace());
  ASSERT_TRUE(b->Truncate(10, kIo, nullptr).ok());
  EXPECT_TRUE(Append(b.get(), std::string(90, 'b')).ok());
}

TEST_F(FaultyFileSystemTest, SyncsAreDelayedThroughTheHook) {
  std::vector<absl::Duration> slept;
  disk_.DelaySyncs(absl::Milliseconds(5), [&](absl::Duration delay) { slept.push_back(delay); });
  const auto file = Open("a");
  ASSERT_TRUE(file->Sync(kIo, nullptr).ok());
  EXPECT_THAT(slept, ElementsAre(absl::Milliseconds(5)));
}

TEST_F(FaultyFileSystemTest, IsDescribedByText) {
  const auto disk = ParseStoreFaults("lose_unsynced,enospc_file=" + path("full"));
  ASSERT_TRUE(disk.ok()) << disk.status();
  std::unique_ptr<rocksdb::FSWritableFile> file;
  rocksdb::FileOptions options;
  options.use_mmap_writes = false;
  ASSERT_TRUE((*disk)->NewWritableFile(path("a"), options, &file, nullptr).ok());
  EXPECT_TRUE(Append(file.get(), "x").ok());
  std::ofstream(path("full")) << "x";
  EXPECT_TRUE(Append(file.get(), "y").IsNoSpace());
  std::filesystem::remove(path("full"));
  EXPECT_TRUE(Append(file.get(), "z").ok());
  EXPECT_EQ(Read("a"), "");
}

TEST_F(FaultyFileSystemTest, ABadTextIsNamed) {
  EXPECT_TRUE(ParseStoreFaults("").ok());
  EXPECT_TRUE(ParseStoreFaults("sync_delay_ms=5,capacity_mb=64,eio_file=/x").ok());
  for (const std::string bad : {"loose_unsynced", "enospc_file=", "eio_file", "sync_delay_ms=fast", "capacity_mb"}) {
    const auto disk = ParseStoreFaults("lose_unsynced," + bad);
    EXPECT_EQ(disk.status().code(), absl::StatusCode::kInvalidArgument) << bad;
    EXPECT_THAT(std::string(disk.status().message()), HasSubstr("\"" + bad + "\""));
  }
}

}  // namespace
}  // namespace leeway
