#include "collective/cpu/file_rendezvous_store.h"

#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/file_system.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace leeway {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

class FileRendezvousStoreTest : public ::testing::Test {
 protected:
  ~FileRendezvousStoreTest() override { EXPECT_TRUE(RealFileSystem()->RemoveAll(directory_).ok()); }

  static Deadline Now() { return Deadline::After(absl::ZeroDuration()); }

  const std::string directory_ = absl::StrCat(::testing::TempDir(), "/file_rendezvous_store_test-", getpid());
};

TEST_F(FileRendezvousStoreTest, TheFirstOfManyWritersWins) {
  std::vector<std::string> held(8);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < held.size(); ++i) {
    threads.emplace_back([&, i] {
      FileRendezvousStore store(directory_);
      held[i] = store.SetOnce("1/failure", absl::StrCat("reason ", i, "\nof two lines"), Now()).value();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(held, Each(held[0]));
  FileRendezvousStore store(directory_);
  EXPECT_EQ(store.Get("1/failure", Now()).value(), held[0]);
  EXPECT_EQ(RealFileSystem()->ListDirectory(directory_).value().size(), 1u) << "drafts are left";
}

TEST_F(FileRendezvousStoreTest, AReaderWaitsForTheWriter) {
  FileRendezvousStore store(directory_);
  std::thread writer([&] { (void)store.SetOnce("key", "value", Now()); });
  EXPECT_EQ(store.Get("key", Deadline::After(absl::Seconds(60))).value(), "value");
  writer.join();
}

TEST_F(FileRendezvousStoreTest, NoValueIsATimeout) {
  FileRendezvousStore store(directory_);
  EXPECT_EQ(store.Get("key", Deadline::After(absl::Milliseconds(3))).status().code(),
            absl::StatusCode::kDeadlineExceeded);
}

TEST_F(FileRendezvousStoreTest, KeysAreNoPaths) {
  FileRendezvousStore store(directory_);
  const std::vector<std::string> keys = {"a/b", "a%2fb", "../a", "a.b", "a b", "a"};
  for (const std::string& key : keys) EXPECT_EQ(store.SetOnce(key, "of " + key, Now()).value(), "of " + key);
  for (const std::string& key : keys) EXPECT_EQ(store.Get(key, Now()).value(), "of " + key);
  EXPECT_EQ(RealFileSystem()->ListDirectory(directory_).value().size(), keys.size());
}

TEST_F(FileRendezvousStoreTest, OnceClearedEveryKeyIsNew) {
  FileRendezvousStore store(directory_);
  store.Clear();  // nothing is there yet
  EXPECT_EQ(store.SetOnce("none.0/rank/0", "first start", Now()).value(), "first start");
  ASSERT_TRUE(RealFileSystem()->AppendToFile(directory_ + "/none%2e0%2frank%2f1.123.1", "a writer died").ok());
  store.Clear();
  EXPECT_TRUE(RealFileSystem()->ListDirectory(directory_).value().empty());
  EXPECT_EQ(store.SetOnce("none.0/rank/0", "second start", Now()).value(), "second start");
}

TEST_F(FileRendezvousStoreTest, AnUnusableDirectoryIsNamed) {
  ASSERT_TRUE(RealFileSystem()->WriteFileAtomically(directory_, "a file").ok());
  FileRendezvousStore store(directory_);
  const absl::Status status = store.SetOnce("key", "value", Now()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.ToString(), HasSubstr(directory_));
}

}  // namespace
}  // namespace leeway
