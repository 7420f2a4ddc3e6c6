#include "launch/roles/security_options.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "rpc/address.h"
#include "rpc/security/secret_file.h"

namespace leeway {
namespace {

// The addresses of the run that are TCP's. What is no address is complained about where it is used.
std::vector<RpcAddress> TcpAddressesOf(const Config& config) {
  std::vector<RpcAddress> found;
  for (const char* key : {"queue.address", "weights.address"}) {
    const absl::StatusOr<RpcAddress> address = ParseRpcAddress(config.GetString(key));
    if (address.ok() && !address->is_unix()) found.push_back(*address);
  }
  return found;
}

absl::StatusOr<RoleTokens> TokensOfRun(const std::string& path) {
  absl::StatusOr<RoleTokens> existing = RoleTokens::ReadFile(path);
  if (!absl::IsNotFound(existing.status())) return existing;
  const absl::Status made = CreateSecretFile(path, RoleTokens::Generate().ToText());
  // Another process of the run was a moment faster.
  if (!made.ok() && !absl::IsAlreadyExists(made)) return made;
  return RoleTokens::ReadFile(path);
}

}  // namespace

SecurityFiles SecurityFilesOf(const Config& config) {
  return {config.GetString("security.certificate"), config.GetString("security.key"),
          config.GetString("security.authority"), config.GetString("security.token_file")};
}

absl::StatusOr<ConnectionSecurity> SecurityOf(const Config& config, const RunPaths& paths, Role role) {
  ConnectionSecurity security;
  const std::vector<RpcAddress> addresses = TcpAddressesOf(config);
  if (addresses.empty()) return security;
  absl::StatusOr<ConnectionSecurity> loaded = LoadSecurity(SecurityFilesOf(config));
  // The error begins with the file's key.
  if (!loaded.ok()) return absl::Status(loaded.status().code(), absl::StrCat("security.", loaded.status().message()));
  security = *std::move(loaded);
  // On other machines they would be others.
  const bool is_local =
      std::all_of(addresses.begin(), addresses.end(), [](const RpcAddress& address) { return address.is_loopback(); });
  if (security.tokens.empty() && is_local) {
    LEEWAY_ASSIGN_OR_RETURN(security.tokens, TokensOfRun(paths.tokens()));
  }
  security.role = role;
  return security;
}

}  // namespace leeway
