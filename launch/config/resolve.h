#ifndef LEEWAY_LAUNCH_CONFIG_RESOLVE_H_
#define LEEWAY_LAUNCH_CONFIG_RESOLVE_H_

#include <memory>
#include <string>
#include <vector>

#include "envs/environment.h"
#include "launch/config/config.h"
#include "launch/config/diagnostic.h"
#include "tokenizer/tokenizer.h"

namespace leeway {

// A configuration with everything derived filled in, and the objects that its derivation needed.
struct ResolvedConfig {
  Config config;
  // Null after an error in `task.*`.
  std::unique_ptr<Task> task;
  std::unique_ptr<Tokenizer> tokenizer;
  std::vector<Diagnostic> errors;
};

// Fills in what is derived (keys whose 0 or empty text means "from the rest"), makes relative paths absolute, and makes
// the task (which reads the question file: blocks on it). `name` is the run's name if `run.name` is empty. Resolving a
// resolved configuration changes nothing.
ResolvedConfig ResolveConfig(const Config& config, const std::string& name);

// The default name of a run: the last file's name without folder and ending.
std::string RunNameOf(const std::vector<std::string>& files);

}  // namespace leeway

#endif  // LEEWAY_LAUNCH_CONFIG_RESOLVE_H_
