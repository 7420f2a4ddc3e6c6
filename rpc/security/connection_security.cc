#include "rpc/security/connection_security.h"

#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "base/file_system.h"
#include "base/status_macros.h"
#include "rpc/security/secret_file.h"

namespace leeway {
namespace {

constexpr char kTlsRemedy[] =
    "set security.certificate, security.key and security.authority (`leeway doctor --make-certificates DIR` makes "
    "them)";

absl::Status About(const char* field, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(field, ": ", status.message()));
}

absl::StatusOr<std::string> ReadPublic(const char* field, const std::string& path) {
  const absl::StatusOr<uint64_t> size = RealFileSystem()->FileSize(path);
  if (!size.ok()) return About(field, size.status());
  if (*size > kMaxSecretFileBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(field, ": ", path, " has ", *size, " bytes, the limit is ", kMaxSecretFileBytes));
  }
  absl::StatusOr<std::string> text = RealFileSystem()->ReadFile(path);
  if (!text.ok()) return About(field, text.status());
  return text;
}

}  // namespace

absl::StatusOr<ConnectionSecurity> LoadSecurity(const SecurityFiles& files) {
  ConnectionSecurity security;
  const std::pair<const char*, const std::string*> parts[] = {
      {"certificate", &files.certificate}, {"key", &files.key}, {"authority", &files.authority}};
  bool any = false;
  for (const auto& [field, path] : parts) any = any || !path->empty();
  for (const auto& [field, path] : parts) {
    if (any && path->empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(field, ": is missing; certificate, key and authority are set together, or none of them"));
    }
  }
  if (any) {
    LEEWAY_ASSIGN_OR_RETURN(security.tls.certificate, ReadPublic("certificate", files.certificate));
    LEEWAY_ASSIGN_OR_RETURN(security.tls.authority, ReadPublic("authority", files.authority));
    absl::StatusOr<std::string> key = ReadSecretFile(files.key);
    if (!key.ok()) return About("key", key.status());
    security.tls.key = *std::move(key);
    LEEWAY_RETURN_IF_ERROR(CheckTls(security.tls));
  }
  if (!files.token_file.empty()) {
    absl::StatusOr<RoleTokens> tokens = RoleTokens::ReadFile(files.token_file);
    if (!tokens.ok()) return About("token_file", tokens.status());
    security.tokens = *std::move(tokens);
  }
  return security;
}

absl::Status CheckServerSecurity(const RpcAddress& address, const ConnectionSecurity& security) {
  if (address.is_unix()) return absl::OkStatus();
  const std::string where = absl::StrCat("cannot listen on ", address.ToString(), ": ");
  if (!address.is_loopback() && security.tls.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, "other machines can reach it and TLS is not configured; ", kTlsRemedy,
                     " and security.token_file, or listen on 127.0.0.1 or a unix socket"));
  }
  for (const Role role : kRoles) {
    if (security.tokens.has(role)) continue;
    return absl::InvalidArgumentError(absl::StrCat(where, "there is no token of role ", RoleName(role),
                                                   "; set security.token_file to a file with those of push, train and "
                                                   "admin, or listen on a unix socket"));
  }
  return absl::OkStatus();
}

absl::Status CheckClientSecurity(const RpcAddress& address, const ConnectionSecurity& security) {
  if (address.is_unix() || address.is_loopback() || !security.tls.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("cannot connect to ", address.ToString(),
                                                 ": it is not this machine and TLS is not configured; ", kTlsRemedy));
}

}  // namespace leeway
