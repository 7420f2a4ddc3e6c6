#ifndef LEEWAY_RPC_SECURITY_METHOD_ROLES_H_
#define LEEWAY_RPC_SECURITY_METHOD_ROLES_H_

#include <optional>
#include <vector>

#include "absl/strings/string_view.h"
#include "rpc/security/role_tokens.h"

namespace leeway {

// Who may call a method.
struct MethodAccess {
  // "/leeway.v1.Queue/Push"
  absl::string_view path;
  // nullopt: every role.
  std::optional<Role> role;
};

// The whole table. A method that is missing is refused to everybody who comes over TCP; a test compares the table with
// the services of proto/, so that no service forgets it.
const std::vector<MethodAccess>& MethodTable();

// nullptr: no such method. `path` is what HTTP/2 calls :path.
const MethodAccess* FindMethod(absl::string_view path);

}  // namespace leeway

#endif  // LEEWAY_RPC_SECURITY_METHOD_ROLES_H_
