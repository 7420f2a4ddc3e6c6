#include "rpc/security/role_tokens.h"

#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "openssl/crypto.h"
#include "openssl/rand.h"
#include "openssl/sha.h"
#include "rpc/security/secret_file.h"

namespace leeway {
namespace {

constexpr size_t kTokenBytes = 32;
// 128 bits as hexadecimal digits; what Generate makes has twice that.
constexpr size_t kShortestToken = 32;
constexpr size_t kLongestToken = 512;

bool IsTokenText(absl::string_view token) {
  for (const char c : token) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) && !absl::StrContains("-._~+/=", c)) return false;
  }
  return token.size() >= kShortestToken && token.size() <= kLongestToken;
}

std::optional<Role> ParseRole(absl::string_view name) {
  for (const Role role : kRoles) {
    if (name == RoleName(role)) return role;
  }
  return std::nullopt;
}

}  // namespace

const char* RoleName(Role role) {
  switch (role) {
    case Role::kPush:
      return "push";
    case Role::kTrain:
      return "train";
    case Role::kAdmin:
      return "admin";
  }
  return "unknown";
}

void RoleTokens::Set(Role role, std::string token) {
  const size_t index = static_cast<size_t>(role);
  SHA256(reinterpret_cast<const unsigned char*>(token.data()), token.size(), digests_[index].data());
  tokens_[index] = std::move(token);
}

RoleTokens RoleTokens::Generate() {
  RoleTokens tokens;
  for (const Role role : kRoles) {
    unsigned char bytes[kTokenBytes];
    LEEWAY_CHECK(RAND_bytes(bytes, sizeof(bytes)) == 1) << "the system has no random bytes";
    tokens.Set(role, absl::BytesToHexString({reinterpret_cast<const char*>(bytes), sizeof(bytes)}));
  }
  return tokens;
}

absl::StatusOr<RoleTokens> RoleTokens::Parse(absl::string_view text, const std::string& source) {
  RoleTokens tokens;
  int number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    line = absl::StripAsciiWhitespace(line);
    if (line.empty() || line[0] == '#') continue;
    const auto wrong = [&](absl::string_view what) {
      return absl::InvalidArgumentError(absl::StrCat(source, ":", number, ": ", what));
    };
    const std::vector<absl::string_view> words = absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
    const std::optional<Role> role = ParseRole(words[0]);
    if (words.size() != 2 || !role.has_value()) return wrong("expected `role token` with a role of push, train, admin");
    if (!IsTokenText(words[1])) {
      return wrong(absl::StrCat("the token of role ", words[0], " is not ", kShortestToken, " to ", kLongestToken,
                                " characters of A-Z a-z 0-9 - . _ ~ + / ="));
    }
    if (tokens.has(*role)) return wrong(absl::StrCat("a second token of role ", words[0]));
    if (const std::optional<Role> other = tokens.RoleOf(words[1]); other.has_value()) {
      return wrong(absl::StrCat("the token of role ", words[0], " is that of role ", RoleName(*other),
                                " too; each role needs its own"));
    }
    tokens.Set(*role, std::string(words[1]));
  }
  if (tokens.empty()) return absl::InvalidArgumentError(absl::StrCat(source, " holds no token"));
  return tokens;
}

absl::StatusOr<RoleTokens> RoleTokens::ReadFile(const std::string& path) {
  LEEWAY_ASSIGN_OR_RETURN(const std::string text, ReadSecretFile(path));
  return Parse(text, path);
}

bool RoleTokens::empty() const {
  for (const Role role : kRoles) {
    if (has(role)) return false;
  }
  return true;
}

std::optional<Role> RoleTokens::RoleOf(absl::string_view candidate) const {
  Digest digest;
  SHA256(reinterpret_cast<const unsigned char*>(candidate.data()), candidate.size(), digest.data());
  std::optional<Role> found;
  // No early end: which role it was, or that it was none, does not show in the time.
  for (const Role role : kRoles) {
    const Digest& own = digests_[static_cast<size_t>(role)];
    if (CRYPTO_memcmp(digest.data(), own.data(), own.size()) == 0 && has(role)) found = role;
  }
  return found;
}

std::string RoleTokens::ToText() const {
  std::string text;
  for (const Role role : kRoles) {
    if (has(role)) absl::StrAppend(&text, RoleName(role), " ", token(role), "\n");
  }
  return text;
}

RoleTokens RoleTokens::Only(Role role) const {
  RoleTokens tokens;
  if (has(role)) tokens.Set(role, token(role));
  return tokens;
}

}  // namespace leeway
