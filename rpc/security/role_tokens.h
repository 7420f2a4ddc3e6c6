#ifndef LEEWAY_RPC_SECURITY_ROLE_TOKENS_H_
#define LEEWAY_RPC_SECURITY_ROLE_TOKENS_H_

#include <array>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace leeway {

// What a caller may do (rpc/security/method_roles.h says which method needs which role).
enum class Role { kPush, kTrain, kAdmin };
inline constexpr std::array<Role, 3> kRoles = {Role::kPush, Role::kTrain, Role::kAdmin};
// "push", "train", "admin".
const char* RoleName(Role role);

// One secret token a role. A server holds those of all its callers, a client needs its own. A value; thread-compatible.
// Nothing here prints a token: error messages name roles, files and lines only.
//
// A token file has one line a role, `role token`; empty lines and lines that begin with # are left out:
//
//   push  3f0c…
//   train 91b2…
//   admin 77de…
class RoleTokens {
 public:
  // None.
  RoleTokens() = default;
  // New random ones for all roles, 256 bits each.
  static RoleTokens Generate();
  // INVALID_ARGUMENT: `source`:line and what is expected there.
  static absl::StatusOr<RoleTokens> Parse(absl::string_view text, const std::string& source);
  // Errors: those of ReadSecretFile and Parse.
  static absl::StatusOr<RoleTokens> ReadFile(const std::string& path);

  bool empty() const;
  bool has(Role role) const { return !token(role).empty(); }
  // Empty if there is none.
  const std::string& token(Role role) const { return tokens_[static_cast<size_t>(role)]; }
  // Whose token `candidate` is; nullopt: nobody's. Takes the same time whatever it is compared with.
  std::optional<Role> RoleOf(absl::string_view candidate) const;
  // As a token file.
  std::string ToText() const;
  // Only the token of `role`.
  RoleTokens Only(Role role) const;

 private:
  using Digest = std::array<unsigned char, 32>;
  void Set(Role role, std::string token);

  std::array<std::string, kRoles.size()> tokens_;
  // Equal in length whatever the tokens' are.
  std::array<Digest, kRoles.size()> digests_ = {};
};

}  // namespace leeway

#endif  // LEEWAY_RPC_SECURITY_ROLE_TOKENS_H_
