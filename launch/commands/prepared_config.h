#ifndef LEEWAY_LAUNCH_COMMANDS_PREPARED_CONFIG_H_
#define LEEWAY_LAUNCH_COMMANDS_PREPARED_CONFIG_H_

#include <string>
#include <vector>

#include "launch/config/diagnostic.h"
#include "launch/config/resolve.h"

namespace leeway {

// A configuration from a command line, with everything that is wrong with it: reading, meaning, and against the run
// that exists.
struct PreparedConfig {
  ResolvedConfig resolved;
  std::vector<Diagnostic> errors;
  std::string run_directory;  // absolute
  bool run_exists = false;
};

PreparedConfig PrepareConfig(const std::vector<std::string>& arguments);

// The errors, and how many, for standard error.
std::string DescribeErrors(const std::vector<Diagnostic>& errors);

}  // namespace leeway

#endif  // LEEWAY_LAUNCH_COMMANDS_PREPARED_CONFIG_H_
