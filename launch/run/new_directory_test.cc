#include "launch/run/new_directory.h"

#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "base/file_system.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace leeway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class NewDirectoryTest : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(parent_); }
  void TearDown() override { std::filesystem::remove_all(parent_); }
  std::vector<std::string> Names() { return *RealFileSystem()->ListDirectory(parent_); }

  const std::string parent_ = ::testing::TempDir() + "/new_directory_test";
  const std::string path_ = parent_ + "/made";
};

TEST_F(NewDirectoryTest, AppearsWhole) {
  absl::StatusOr<NewDirectory> directory = NewDirectory::Begin(path_ + "/");
  ASSERT_TRUE(directory.ok()) << directory.status();
  std::ofstream(directory->unfinished() + "/file") << "text";
  EXPECT_FALSE(std::filesystem::exists(path_));
  ASSERT_TRUE(directory->Finish().ok());
  EXPECT_THAT(Names(), ElementsAre("made"));
  EXPECT_EQ(*RealFileSystem()->ReadFile(path_ + "/file"), "text");
}

TEST_F(NewDirectoryTest, LeavesNothingWhenItDiesUnfinished) {
  {
    const absl::StatusOr<NewDirectory> directory = NewDirectory::Begin(path_);
    ASSERT_TRUE(directory.ok()) << directory.status();
    std::ofstream(directory->unfinished() + "/file") << "text";
  }
  EXPECT_THAT(Names(), IsEmpty());
}

TEST_F(NewDirectoryTest, TakesAnEmptyPlaceAndNoOther) {
  std::filesystem::create_directory(path_);
  absl::StatusOr<NewDirectory> directory = NewDirectory::Begin(path_);
  ASSERT_TRUE(directory.ok()) << directory.status();
  // Somebody fills the place meanwhile.
  std::ofstream(path_ + "/other") << "theirs";
  EXPECT_FALSE(directory->Finish().ok());
  EXPECT_THAT(std::string(NewDirectory::Begin(path_).status().message()), HasSubstr("not empty"));
  EXPECT_EQ(NewDirectory::Begin(path_).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(*RealFileSystem()->ReadFile(path_ + "/other"), "theirs");
  EXPECT_THAT(std::string(NewDirectory::Begin(path_ + "/other").status().message()), HasSubstr("is no folder"));
}

TEST_F(NewDirectoryTest, HasOneMakerAtATimeAndClearsWhatAKilledOneLeft) {
  std::filesystem::create_directory(parent_ + "/.made.unfinished");
  std::ofstream(parent_ + "/.made.unfinished/half") << "written";
  absl::StatusOr<NewDirectory> directory = NewDirectory::Begin(path_);
  ASSERT_TRUE(directory.ok()) << directory.status();
  EXPECT_TRUE(std::filesystem::is_empty(directory->unfinished()));
  EXPECT_EQ(NewDirectory::Begin(path_).status().code(), absl::StatusCode::kUnavailable);
  std::ofstream(directory->unfinished() + "/file") << "text";
  ASSERT_TRUE(directory->Finish().ok());
  EXPECT_THAT(*RealFileSystem()->ListDirectory(path_), ElementsAre("file"));
}

}  // namespace
}  // namespace leeway
