#include "launch/roles/security_options.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "rpc/security/secret_file.h"

namespace leeway {
namespace {

bool IsTcp(const std::string& address) { return !address.empty() && address.rfind("unix:", 0) != 0; }

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
  if (!IsTcp(config.GetString("queue.address")) && !IsTcp(config.GetString("weights.address"))) return security;
  absl::StatusOr<ConnectionSecurity> loaded = LoadSecurity(SecurityFilesOf(config));
  // The error begins with the file's key.
  if (!loaded.ok()) return absl::Status(loaded.status().code(), absl::StrCat("security.", loaded.status().message()));
  security = *std::move(loaded);
  if (security.tokens.empty()) {
    LEEWAY_ASSIGN_OR_RETURN(security.tokens, TokensOfRun(paths.tokens()));
  }
  security.role = role;
  return security;
}

}  // namespace leeway
