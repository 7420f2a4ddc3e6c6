#ifndef LEEWAY_LAUNCH_ROLES_SECURITY_OPTIONS_H_
#define LEEWAY_LAUNCH_ROLES_SECURITY_OPTIONS_H_

#include "absl/status/statusor.h"
#include "launch/config/config.h"
#include "launch/run/run_directory.h"
#include "rpc/security/connection_security.h"

namespace leeway {

// The files that `config` (resolved) names under security.*.
SecurityFiles SecurityFilesOf(const Config& config);

// How a process of the run and its peers know each other; `role` is what it is as a client. Blocking file I/O.
//
// While queue and weights are unix sockets there is nothing to know. On loopback without security.token_file the tokens
// are the run's own: they lie in its directory (RunPaths::tokens, mode 0600), are made by whichever process comes
// first, and serve processes of this machine and user. Errors: those of LoadSecurity, and of the token file.
absl::StatusOr<ConnectionSecurity> SecurityOf(const Config& config, const RunPaths& paths, Role role);

}  // namespace leeway

#endif  // LEEWAY_LAUNCH_ROLES_SECURITY_OPTIONS_H_
