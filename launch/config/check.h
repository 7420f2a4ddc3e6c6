#ifndef LEEWAY_LAUNCH_CONFIG_CHECK_H_
#define LEEWAY_LAUNCH_CONFIG_CHECK_H_

#include <optional>
#include <string>
#include <vector>

#include "launch/config/config.h"
#include "launch/config/diagnostic.h"
#include "launch/config/resolve.h"

namespace leeway {

// Does a resolved configuration make sense, on this machine? Everything that can be known before a process starts:
// sizes that do not fit together, capacities that would deadlock, pairs that mean nothing, busy ports, missing files.
// All errors at once, each at the place of the key that should change. Reads files and tries ports; leaves nothing
// behind.
std::vector<Diagnostic> CheckConfig(const ResolvedConfig& resolved);

// Only what a resume adds: keys that differ from the run's own in a way that a resume must not change.
std::vector<Diagnostic> CheckResume(const Config& existing, const Config& wanted);

// What the run needs and can do, for people: parameters, memory by process, tokens and bytes of an episode, capacities.
std::string DescribeFeasibility(const ResolvedConfig& resolved);

}  // namespace leeway

#endif  // LEEWAY_LAUNCH_CONFIG_CHECK_H_
