#include "rpc/security/role_tokens.h"

#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace leeway {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const std::string kToken(32, 'a');

TEST(RoleTokensTest, NewOnesAreLongAndAllDifferent) {
  std::set<std::string> seen;
  for (int i = 0; i < 3; ++i) {
    const RoleTokens tokens = RoleTokens::Generate();
    for (const Role role : kRoles) {
      EXPECT_EQ(tokens.token(role).size(), 64u);
      EXPECT_TRUE(seen.insert(tokens.token(role)).second);
      EXPECT_EQ(tokens.RoleOf(tokens.token(role)), role);
    }
  }
}

TEST(RoleTokensTest, NobodysTokenHasNoRole) {
  const RoleTokens tokens = RoleTokens::Generate();
  EXPECT_EQ(tokens.RoleOf(""), std::nullopt);
  EXPECT_EQ(tokens.RoleOf(tokens.token(Role::kPush).substr(1)), std::nullopt);
  EXPECT_EQ(tokens.RoleOf(tokens.token(Role::kPush) + "0"), std::nullopt);
  EXPECT_EQ(tokens.RoleOf(std::string(64, '0')), std::nullopt);
  // Without tokens there is none to match, not even the empty one.
  EXPECT_EQ(RoleTokens().RoleOf(""), std::nullopt);
}

TEST(RoleTokensTest, AFileComesBackAsItWas) {
  const RoleTokens tokens = RoleTokens::Generate();
  const absl::StatusOr<RoleTokens> back = RoleTokens::Parse(tokens.ToText(), "file");
  ASSERT_TRUE(back.ok()) << back.status();
  for (const Role role : kRoles) EXPECT_EQ(back->token(role), tokens.token(role));
  const RoleTokens one = tokens.Only(Role::kPush);
  EXPECT_TRUE(one.has(Role::kPush));
  EXPECT_FALSE(one.has(Role::kTrain));
  EXPECT_EQ(RoleTokens::Parse(one.ToText(), "file")->token(Role::kPush), tokens.token(Role::kPush));
  EXPECT_TRUE(RoleTokens().Only(Role::kAdmin).empty());
}

TEST(RoleTokensTest, FilesMayHaveCommentsAndSpaces) {
  const absl::StatusOr<RoleTokens> tokens = RoleTokens::Parse("# mine\n\n \tpush \t " + kToken + " \r\n", "file");
  ASSERT_TRUE(tokens.ok()) << tokens.status();
  EXPECT_EQ(tokens->token(Role::kPush), kToken);
}

TEST(RoleTokensTest, BadFilesSayWhereAndNeverWhatTheTokenIs) {
  const std::string secret(31, 's');
  const std::pair<std::string, std::string> cases[] = {
      {"", "file holds no token"},
      {"# nothing\n", "file holds no token"},
      {"\npush\n", "file:2: expected `role token`"},
      {"push " + kToken + " more\n", "file:1: expected `role token`"},
      {"root " + kToken + "\n", "file:1: expected `role token` with a role of push, train, admin"},
      {"push " + secret + "\n", "file:1: the token of role push is not 32 to 512 characters"},
      {"push " + secret + "ss\"\n", "file:1: the token of role push is not 32 to 512 characters"},
      {"push " + std::string(513, 's') + "\n", "is not 32 to 512"},
      {"push " + kToken + "\npush " + kToken + "b\n", "file:2: a second token of role push"},
      {"push " + kToken + "\ntrain " + kToken + "\n", "file:2: the token of role train is that of role push too"},
  };
  for (const auto& [text, complaint] : cases) {
    const absl::Status refused = RoleTokens::Parse(text, "file").status();
    EXPECT_TRUE(absl::IsInvalidArgument(refused)) << text;
    EXPECT_THAT(std::string(refused.message()), HasSubstr(complaint)) << text;
    EXPECT_THAT(std::string(refused.message()), Not(HasSubstr(secret)));
    EXPECT_THAT(std::string(refused.message()), Not(HasSubstr(kToken)));
  }
}

}  // namespace
}  // namespace leeway
