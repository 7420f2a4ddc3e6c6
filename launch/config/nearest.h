#ifndef LEEWAY_LAUNCH_CONFIG_NEAREST_H_
#define LEEWAY_LAUNCH_CONFIG_NEAREST_H_

#include <optional>
#include <string>
#include <vector>

namespace leeway {

// Number of single-character insertions, deletions, replacements and swaps of neighbours that turn `a` into `b`
// (optimal string alignment).
int EditDistance(const std::string& a, const std::string& b);

// The candidate that `word` was probably meant to be: the nearest one, if it is near (at most a third of the word's
// length, at least 2) or `word` is its last dotted part ("budget" -> "staleness.budget"). The first one wins a tie.
std::optional<std::string> NearestWord(const std::string& word, const std::vector<std::string>& candidates);

}  // namespace leeway

#endif  // LEEWAY_LAUNCH_CONFIG_NEAREST_H_
