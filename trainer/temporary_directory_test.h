#ifndef LEEWAY_TRAINER_TEMPORARY_DIRECTORY_TEST_H_
#define LEEWAY_TRAINER_TEMPORARY_DIRECTORY_TEST_H_

#include <unistd.h>

#include <string>

#include "base/file_system.h"
#include "gtest/gtest.h"

namespace leeway {

// An empty folder for the running test, of this process alone; gone with the object.
class TemporaryDirectory {
 public:
  TemporaryDirectory()
      : path_(JoinPath(::testing::TempDir(),
                       std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()) + "_" +
                           std::to_string(getpid()))) {
    EXPECT_TRUE(RealFileSystem()->RemoveAll(path_).ok());
    EXPECT_TRUE(RealFileSystem()->CreateDirectory(path_).ok());
  }
  ~TemporaryDirectory() { EXPECT_TRUE(RealFileSystem()->RemoveAll(path_).ok()); }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  const std::string& path() const { return path_; }

 private:
  const std::string path_;
};

}  // namespace leeway

#endif  // LEEWAY_TRAINER_TEMPORARY_DIRECTORY_TEST_H_
