#include "launch/roles/security_options.h"

#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rpc/security/secret_file.h"

namespace leeway {
namespace {

using ::testing::HasSubstr;

class SecurityOptionsTest : public ::testing::Test {
 protected:
  SecurityOptionsTest() {
    char name[] = "/tmp/leeway_roles_XXXXXX";
    paths_ = RunPaths(mkdtemp(name));
  }
  ~SecurityOptionsTest() override { std::filesystem::remove_all(paths_.root); }

  void Set(const char* key, const std::string& value) { config_.Set(key, value, Place{}); }

  Config config_;
  RunPaths paths_{""};
};

TEST_F(SecurityOptionsTest, UnixSocketsNeedNothing) {
  Set("queue.address", "unix:/run/x.sock");
  // Not even looked at.
  Set("security.token_file", "/nonexistent");
  const absl::StatusOr<ConnectionSecurity> security = SecurityOf(config_, paths_, Role::kPush);
  ASSERT_TRUE(security.ok()) << security.status();
  EXPECT_TRUE(security->tokens.empty());
  EXPECT_TRUE(security->tls.empty());
  EXPECT_FALSE(std::filesystem::exists(paths_.tokens()));
}

TEST_F(SecurityOptionsTest, ARunMakesItsTokensOnce) {
  Set("weights.address", "127.0.0.1:7000");
  const absl::StatusOr<ConnectionSecurity> first = SecurityOf(config_, paths_, Role::kTrain);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(first->role, Role::kTrain);
  struct stat info = {};
  ASSERT_EQ(stat(paths_.tokens().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0600u);
  // The next process of the run has the same.
  const absl::StatusOr<ConnectionSecurity> second = SecurityOf(config_, paths_, Role::kPush);
  ASSERT_TRUE(second.ok()) << second.status();
  for (const Role role : kRoles) {
    EXPECT_TRUE(first->tokens.has(role));
    EXPECT_EQ(first->tokens.token(role), second->tokens.token(role));
  }
  // A file that others may read is not used, and not replaced either.
  ASSERT_EQ(chmod(paths_.tokens().c_str(), 0644), 0);
  EXPECT_TRUE(absl::IsPermissionDenied(SecurityOf(config_, paths_, Role::kPush).status()));
}

TEST_F(SecurityOptionsTest, BeyondLoopbackARunMakesNone) {
  Set("queue.address", "127.0.0.1:7000");
  Set("weights.address", "node-3:7001");
  const absl::StatusOr<ConnectionSecurity> security = SecurityOf(config_, paths_, Role::kPush);
  ASSERT_TRUE(security.ok()) << security.status();
  EXPECT_TRUE(security->tokens.empty());
  EXPECT_FALSE(std::filesystem::exists(paths_.tokens()));
}

TEST_F(SecurityOptionsTest, ConfiguredTokensComeFromTheirFile) {
  Set("queue.address", "127.0.0.1:7000");
  const std::string file = paths_.root + "/mine";
  const RoleTokens tokens = RoleTokens::Generate();
  ASSERT_TRUE(CreateSecretFile(file, tokens.Only(Role::kPush).ToText()).ok());
  Set("security.token_file", file);
  const absl::StatusOr<ConnectionSecurity> security = SecurityOf(config_, paths_, Role::kPush);
  ASSERT_TRUE(security.ok()) << security.status();
  EXPECT_EQ(security->tokens.token(Role::kPush), tokens.token(Role::kPush));
  EXPECT_FALSE(security->tokens.has(Role::kAdmin));
  EXPECT_FALSE(std::filesystem::exists(paths_.tokens()));
  Set("security.certificate", file);
  EXPECT_THAT(std::string(SecurityOf(config_, paths_, Role::kPush).status().message()),
              HasSubstr("security.key: is missing"));
}

}  // namespace
}  // namespace leeway
