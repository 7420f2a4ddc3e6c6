#include "rpc/security/connection_security.h"

#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rpc/security/grpc_credentials.h"
#include "rpc/security/secret_file.h"

namespace leeway {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

RpcAddress At(const char* text) { return ParseRpcAddress(text).value(); }

class LoadSecurityTest : public ::testing::Test {
 protected:
  LoadSecurityTest() {
    char name[] = "/tmp/leeway_security_XXXXXX";
    folder_ = mkdtemp(name);
    const MadeCertificates made = MakeCertificates({"localhost"}, 1).value();
    files_ = {folder_ + "/server.pem", folder_ + "/server.key", folder_ + "/ca.pem", folder_ + "/tokens"};
    // Certificates are no secret.
    std::ofstream(files_.certificate) << made.server;
    std::ofstream(files_.authority) << made.authority;
    EXPECT_TRUE(CreateSecretFile(files_.key, made.server_key).ok());
    EXPECT_TRUE(CreateSecretFile(files_.token_file, RoleTokens::Generate().ToText()).ok());
  }
  ~LoadSecurityTest() override { std::filesystem::remove_all(folder_); }

  std::string folder_;
  SecurityFiles files_;
};

TEST_F(LoadSecurityTest, FilesAreRead) {
  const absl::StatusOr<ConnectionSecurity> security = LoadSecurity(files_);
  ASSERT_TRUE(security.ok()) << security.status();
  EXPECT_FALSE(security->tls.empty());
  EXPECT_TRUE(security->tokens.has(Role::kAdmin));
  const absl::StatusOr<ConnectionSecurity> none = LoadSecurity({});
  ASSERT_TRUE(none.ok());
  EXPECT_TRUE(none->tls.empty());
  EXPECT_TRUE(none->tokens.empty());
}

TEST_F(LoadSecurityTest, ErrorsNameTheFieldAndTheRemedy) {
  SecurityFiles files = files_;
  files.authority = "";
  EXPECT_THAT(std::string(LoadSecurity(files).status().message()),
              StartsWith("authority: is missing; certificate, key"));
  files = files_;
  files.certificate = folder_ + "/absent";
  EXPECT_THAT(std::string(LoadSecurity(files).status().message()),
              AllOf(StartsWith("certificate: "), HasSubstr("absent")));
  ASSERT_EQ(chmod(files_.key.c_str(), 0644), 0);
  EXPECT_THAT(std::string(LoadSecurity(files_).status().message()), AllOf(StartsWith("key: "), HasSubstr("chmod 600")));
  ASSERT_EQ(chmod(files_.key.c_str(), 0600), 0);
  ASSERT_EQ(chmod(files_.token_file.c_str(), 0640), 0);
  EXPECT_THAT(std::string(LoadSecurity(files_).status().message()),
              AllOf(StartsWith("token_file: "), HasSubstr("chmod 600")));
}

TEST_F(LoadSecurityTest, WhereAServerMayListen) {
  ConnectionSecurity tokens_only, push_only, all = LoadSecurity(files_).value(), tls_only = all;
  tokens_only.tokens = all.tokens;
  push_only.tokens = all.tokens.Only(Role::kPush);
  tls_only.tokens = RoleTokens();
  EXPECT_TRUE(CheckServerSecurity(At("unix:/tmp/x"), {}).ok());
  EXPECT_TRUE(CheckServerSecurity(At("127.0.0.1:1"), tokens_only).ok());
  EXPECT_TRUE(CheckServerSecurity(At("0.0.0.0:1"), all).ok());
  EXPECT_TRUE(CheckServerSecurity(At("node-3:1"), all).ok());

  EXPECT_THAT(std::string(CheckServerSecurity(At("127.0.0.1:1"), {}).message()),
              AllOf(HasSubstr("no token of role push"), HasSubstr("security.token_file"), HasSubstr("unix socket")));
  EXPECT_THAT(std::string(CheckServerSecurity(At("127.0.0.1:1"), push_only).message()), HasSubstr("role train"));
  for (const char* address : {"0.0.0.0:1", "[::]:1", "10.0.0.1:1", "node-3:1"}) {
    EXPECT_THAT(std::string(CheckServerSecurity(At(address), tokens_only).message()),
                AllOf(HasSubstr("TLS is not configured"), HasSubstr("security.certificate"),
                      HasSubstr("doctor --make-certificates")));
    EXPECT_THAT(std::string(CheckServerSecurity(At(address), tls_only).message()), HasSubstr("no token of role push"));
  }
}

TEST_F(LoadSecurityTest, WhatAClientMayDial) {
  const ConnectionSecurity all = LoadSecurity(files_).value();
  EXPECT_TRUE(CheckClientSecurity(At("unix:/tmp/x"), {}).ok());
  EXPECT_TRUE(CheckClientSecurity(At("127.0.0.1:1"), {}).ok());
  EXPECT_TRUE(CheckClientSecurity(At("node-3:1"), all).ok());
  EXPECT_THAT(std::string(CheckClientSecurity(At("node-3:1"), {}).message()), HasSubstr("it is not this machine"));
}

TEST(CheckCallTest, TheRoleDecides) {
  const RoleTokens tokens = RoleTokens::Generate();
  const auto call = [&](const char* path, Role role) {
    return CheckCall(tokens, path, "Bearer " + tokens.token(role));
  };
  EXPECT_TRUE(call("/leeway.v1.Queue/Push", Role::kPush).ok());
  EXPECT_TRUE(call("/leeway.v1.Queue/Commit", Role::kTrain).ok());
  EXPECT_TRUE(call("/leeway.v1.Queue/Drain", Role::kAdmin).ok());
  for (const Role role : kRoles) EXPECT_TRUE(call("/leeway.v1.Queue/Status", role).ok());
  const absl::Status refused = call("/leeway.v1.Queue/Commit", Role::kPush);
  EXPECT_EQ(refused.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(refused.message(), "/leeway.v1.Queue/Commit: needs a token of role train, the call's is of role push");
  EXPECT_EQ(call("/leeway.v1.Queue/Push", Role::kTrain).code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(call("/leeway.v1.Queue/Drain", Role::kTrain).code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(call("/leeway.v1.Queue/Nothing", Role::kAdmin).code(), absl::StatusCode::kUnimplemented);
}

TEST(CheckCallTest, StrangersLearnNothing) {
  const RoleTokens tokens = RoleTokens::Generate();
  const std::string token = tokens.token(Role::kPush);
  for (const std::string& authorization :
       {std::string(), std::string("Bearer "), "bearer " + token, token, "Basic " + token, "Bearer  " + token,
        "Bearer " + token + " ", "Bearer " + RoleTokens::Generate().token(Role::kPush)}) {
    for (const char* path : {"/leeway.v1.Queue/Push", "/no/such"}) {
      const absl::Status refused = CheckCall(tokens, path, authorization);
      EXPECT_EQ(refused.code(), absl::StatusCode::kUnauthenticated) << authorization;
      EXPECT_THAT(std::string(refused.message()), Not(HasSubstr(token)));
    }
  }
  // What they say is repeated only in part, and harmlessly.
  const absl::Status refused = CheckCall(tokens, "/\n\x1b" + std::string(5000, 'x'), "");
  EXPECT_LT(refused.message().size(), 300u);
  EXPECT_THAT(std::string(refused.message()), Not(HasSubstr("\n")));
}

}  // namespace
}  // namespace leeway
