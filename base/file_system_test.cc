#include "base/file_system.h"

#include <cstdlib>

#include "base/fake_file_system.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace leeway {
namespace {

class FileSystemTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/leeway_file_system_test.XXXXXX";
    folder_ = mkdtemp(name);
  }
  void TearDown() override { EXPECT_TRUE(files_->RemoveAll(folder_).ok()); }

  FileSystem* files_ = RealFileSystem();
  std::string folder_;
};

TEST_F(FileSystemTest, AtomicWriteReplacesAndLeavesNoTemporary) {
  const std::string path = JoinPath(folder_, "a");
  ASSERT_TRUE(files_->WriteFileAtomically(path, "one").ok());
  ASSERT_TRUE(files_->WriteFileAtomically(path, "two").ok());
  EXPECT_EQ(*files_->ReadFile(path), "two");
  EXPECT_THAT(*files_->ListDirectory(folder_), testing::ElementsAre("a"));
}

TEST_F(FileSystemTest, AppendAddsAndSizeFollows) {
  const std::string path = JoinPath(folder_, "log");
  ASSERT_TRUE(files_->AppendToFile(path, "ab").ok());
  ASSERT_TRUE(files_->AppendToFile(path, std::string(100'000, 'c')).ok());
  EXPECT_EQ(*files_->FileSize(path), 100'002u);
  EXPECT_TRUE(files_->SyncFile(path).ok());
  EXPECT_EQ(files_->ReadFile(path)->substr(0, 3), "abc");
}

TEST_F(FileSystemTest, ARangeEndsWithTheFile) {
  const std::string path = JoinPath(folder_, "range");
  ASSERT_TRUE(files_->WriteFileAtomically(path, "0123456789").ok());
  EXPECT_EQ(*files_->ReadFileRange(path, 3, 4), "3456");
  EXPECT_EQ(*files_->ReadFileRange(path, 8, 4), "89");
  EXPECT_EQ(*files_->ReadFileRange(path, 10, 4), "");
  EXPECT_EQ(files_->ReadFileRange(path + "x", 0, 4).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(FileSystemTest, ErrorsNameThePath) {
  const std::string missing = JoinPath(folder_, "missing");
  EXPECT_EQ(files_->ReadFile(missing).status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(files_->ReadFile(missing).status().message()), testing::HasSubstr(missing));
  EXPECT_EQ(files_->Rename(missing, missing + "2").code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(files_->FileSize(missing).status().code(), absl::StatusCode::kNotFound);
  EXPECT_FALSE(files_->Exists(missing));
  EXPECT_TRUE(files_->RemoveAll(missing).ok());
}

TEST_F(FileSystemTest, DirectoriesWithParents) {
  const std::string deep = JoinPath(folder_, "x/y/z");
  EXPECT_TRUE(files_->CreateDirectory(deep).ok());
  EXPECT_TRUE(files_->CreateDirectory(deep).ok());
  EXPECT_TRUE(files_->Exists(deep));
}

TEST_F(FileSystemTest, FaultyFileSystemFailsTheChosenOperation) {
  FaultyFileSystem faulty([](absl::string_view operation, const std::string& path) {
    return operation == "append" ? absl::ResourceExhaustedError("no space on " + path) : absl::OkStatus();
  });
  const std::string path = JoinPath(folder_, "b");
  EXPECT_TRUE(faulty.WriteFileAtomically(path, "kept").ok());
  EXPECT_EQ(faulty.AppendToFile(path, "lost").code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(*faulty.ReadFile(path), "kept");
}

TEST(JoinPathTest, JoinsOnce) {
  EXPECT_EQ(JoinPath("a", "b"), "a/b");
  EXPECT_EQ(JoinPath("a/", "b"), "a/b");
  EXPECT_EQ(JoinPath("a", "/b"), "/b");
  EXPECT_EQ(JoinPath("", "b"), "b");
  EXPECT_EQ(JoinPath("a", ""), "a");
}

}  // namespace
}  // namespace leeway
