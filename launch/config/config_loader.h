#ifndef LEEWAY_LAUNCH_CONFIG_CONFIG_LOADER_H_
#define LEEWAY_LAUNCH_CONFIG_CONFIG_LOADER_H_

#include <string>
#include <vector>

#include "launch/config/config.h"
#include "launch/config/diagnostic.h"

namespace leeway {

// What a command line says about the configuration: TOML files in the order in which they are merged (later ones win),
// and `a.b=value` overrides (a TOML value, or a bare word, which is a text).
struct ConfigSources {
  std::vector<std::string> files;
  std::vector<std::string> overrides;
};

// Splits positional arguments: what holds a '=' before any '/' is an override, everything else a file.
ConfigSources SplitArguments(const std::vector<std::string>& arguments);

struct LoadedConfig {
  Config config;
  // Everything wrong with the sources: syntax, unknown keys (with the nearest one), types, ranges, missing required
  // keys. Empty = usable.
  std::vector<Diagnostic> errors;
};

// Reads and merges the sources. Blocks on the files only. Never stops at the first error, except at a syntax error of a
// file, which hides the rest of that file.
LoadedConfig LoadConfig(const ConfigSources& sources);

// The same for one text in memory; `name` stands for its file in places.
LoadedConfig ParseConfig(const std::string& text, const std::string& name);

}  // namespace leeway

#endif  // LEEWAY_LAUNCH_CONFIG_CONFIG_LOADER_H_
