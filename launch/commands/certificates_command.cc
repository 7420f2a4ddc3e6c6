#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "base/file_system.h"
#include "base/status_macros.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "launch/commands/commands.h"
#include "rpc/security/certificates.h"
#include "rpc/security/role_tokens.h"
#include "rpc/security/secret_file.h"

namespace leeway {
namespace {

struct File {
  const char* name;
  std::string content;
};

std::vector<std::string> HostsOf(const CertificateArguments& arguments) {
  std::vector<std::string> hosts = {"localhost", "127.0.0.1", "::1"};
  char name[HOST_NAME_MAX + 1] = "";
  if (gethostname(name, sizeof(name) - 1) == 0 && *name != '\0') hosts.emplace_back(name);
  for (const std::string& host : arguments.hosts) {
    if (std::find(hosts.begin(), hosts.end(), host) == hosts.end()) hosts.push_back(host);
  }
  return hosts;
}

absl::Status WriteAll(const std::string& directory, const std::vector<File>& files) {
  // Before the first is written: half of a new set beside half of an old one would be of no use.
  for (const File& file : files) {
    const std::string path = JoinPath(directory, file.name);
    if (RealFileSystem()->Exists(path)) {
      return absl::AlreadyExistsError(
          absl::StrCat(path, " exists; nothing is overwritten: choose another folder, or move it away"));
    }
  }
  std::error_code error;
  if (!std::filesystem::exists(directory, error)) {
    LEEWAY_RETURN_IF_ERROR(RealFileSystem()->CreateDirectory(directory));
    if (chmod(directory.c_str(), 0700) != 0)
      return absl::PermissionDeniedError(absl::StrCat(directory, ": ", strerror(errno)));
  }
  for (const File& file : files) {
    LEEWAY_RETURN_IF_ERROR(CreateSecretFile(JoinPath(directory, file.name), file.content));
  }
  return absl::OkStatus();
}

}  // namespace

ExitCode MakeCertificatesCommand(const CertificateArguments& arguments) {
  const std::vector<std::string> hosts = HostsOf(arguments);
  const absl::StatusOr<MadeCertificates> made = MakeCertificates(hosts, arguments.days);
  const RoleTokens tokens = RoleTokens::Generate();
  absl::Status status = made.status();
  if (status.ok()) {
    status = WriteAll(arguments.directory, {{"authority.pem", made->authority},
                                            {"authority.key", made->authority_key},
                                            {"server.pem", made->server},
                                            {"server.key", made->server_key},
                                            {"client.pem", made->client},
                                            {"client.key", made->client_key},
                                            {"tokens", tokens.ToText()},
                                            {"worker-tokens", tokens.Only(Role::kPush).ToText()}});
  }
  if (!status.ok()) {
    fmt::print(stderr, "{}\n", std::string(status.message()));
    return ExitCode::kConfiguration;
  }
  const std::string folder = std::filesystem::absolute(arguments.directory).lexically_normal().string();
  fmt::print(
      "made in {}, valid for {} days, for the hosts {}:\n\n"
      "  the machine of queue and trainer        machines with rollout workers only\n"
      "  [security]                              [security]\n"
      "  certificate = \"server.pem\"              certificate = \"client.pem\"\n"
      "  key = \"server.key\"                      key = \"client.key\"\n"
      "  authority = \"authority.pem\"             authority = \"authority.pem\"\n"
      "  token_file = \"tokens\"                   token_file = \"worker-tokens\"\n\n"
      "Give each machine only its own files. authority.key signs further certificates: no process of a job needs it.\n",
      folder, arguments.days, fmt::join(hosts, ", "));
  return ExitCode::kDone;
}

}  // namespace leeway
