#include "rpc/security/secret_file.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace leeway {
namespace {

using ::testing::HasSubstr;

class SecretFileTest : public ::testing::Test {
 protected:
  SecretFileTest() {
    char name[] = "/tmp/leeway_secret_XXXXXX";
    folder_ = mkdtemp(name);
  }
  ~SecretFileTest() override { std::filesystem::remove_all(folder_); }

  std::string folder_;
};

TEST_F(SecretFileTest, WhatIsMadeIsForItsOwnerAndIsNotOverwritten) {
  const std::string path = folder_ + "/secret";
  ASSERT_TRUE(CreateSecretFile(path, "first").ok());
  struct stat info = {};
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0600u);
  EXPECT_EQ(ReadSecretFile(path).value(), "first");
  const absl::Status again = CreateSecretFile(path, "second");
  EXPECT_TRUE(absl::IsAlreadyExists(again)) << again;
  EXPECT_EQ(ReadSecretFile(path).value(), "first");
  // Nothing half-made is left.
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), std::filesystem::directory_iterator()), 1);
}

TEST_F(SecretFileTest, WhatOthersMayOpenIsRefusedWithTheRemedy) {
  const std::string path = folder_ + "/secret";
  ASSERT_TRUE(CreateSecretFile(path, "x").ok());
  for (const mode_t mode : {0640, 0604, 0620, 0610, 0666}) {
    ASSERT_EQ(chmod(path.c_str(), mode), 0);
    const absl::Status refused = ReadSecretFile(path).status();
    EXPECT_TRUE(absl::IsPermissionDenied(refused)) << refused;
    EXPECT_THAT(std::string(refused.message()), HasSubstr("chmod 600 " + path));
  }
  ASSERT_EQ(chmod(path.c_str(), 0400), 0);
  EXPECT_TRUE(ReadSecretFile(path).ok());
}

TEST_F(SecretFileTest, WhatIsNoFileIsRefused) {
  EXPECT_TRUE(absl::IsNotFound(ReadSecretFile(folder_ + "/absent").status()));
  EXPECT_TRUE(absl::IsInvalidArgument(ReadSecretFile(folder_).status()));
  // A pipe without a writer would be waited for.
  const std::string pipe = folder_ + "/pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_TRUE(absl::IsInvalidArgument(ReadSecretFile(pipe).status()));
  EXPECT_TRUE(absl::IsNotFound(CreateSecretFile(folder_ + "/absent/secret", "x")));
}

TEST_F(SecretFileTest, WhatIsTooLargeIsRefused) {
  const std::string path = folder_ + "/secret";
  ASSERT_TRUE(CreateSecretFile(path, "").ok());
  std::filesystem::resize_file(path, kMaxSecretFileBytes + 1);
  EXPECT_THAT(std::string(ReadSecretFile(path).status().message()), HasSubstr("the limit is 1048576"));
  std::filesystem::resize_file(path, kMaxSecretFileBytes);
  EXPECT_EQ(ReadSecretFile(path)->size(), kMaxSecretFileBytes);
}

}  // namespace
}  // namespace leeway
