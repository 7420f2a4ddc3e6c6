#include <stdio.h>
#include <unistd.h>

#include "fmt/format.h"
#include "launch/commands/commands.h"
#include "launch/commands/prepared_config.h"
#include "launch/config/check.h"
#include "launch/config/schema.h"
#include "launch/run/launch_plan.h"

namespace leeway {

ExitCode CheckCommand(const std::vector<std::string>& arguments) {
  const PreparedConfig prepared = PrepareConfig(arguments);
  if (!prepared.errors.empty()) {
    fmt::print(stderr, "{}", DescribeErrors(prepared.errors));
    return ExitCode::kConfiguration;
  }
  fmt::print("{}\n", prepared.resolved.config.ToToml());
  fmt::print("{}", DescribeFeasibility(prepared.resolved));
  fmt::print("run          {} {}\n", prepared.run_directory,
             prepared.run_exists ? "(exists: would be resumed)" : "(new)");
  return ExitCode::kDone;
}

ExitCode RoleCommand(const std::string& role, const std::vector<std::string>& arguments) {
  const absl::StatusOr<std::string> binaries = FindBinaries();
  if (!binaries.ok()) {
    fmt::print(stderr, "{}\n", std::string(binaries.status().message()));
    return ExitCode::kEnvironment;
  }
  std::vector<std::string> words = {*binaries + "/leeway-" + role};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  execv(pointers[0], pointers.data());
  perror(pointers[0]);
  return ExitCode::kEnvironment;
}

ExitCode DocsCommand(const std::string& topic) {
  fmt::print("{}", topic == "schema" ? SchemaJson() : SchemaMarkdown());
  return ExitCode::kDone;
}

}  // namespace leeway
