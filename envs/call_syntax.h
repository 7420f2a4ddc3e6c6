#ifndef LEEWAY_ENVS_CALL_SYNTAX_H_
#define LEEWAY_ENVS_CALL_SYNTAX_H_

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace leeway::internal {

// The arguments of a configuration value of the form "function(key=value, key=value)", white space free between the
// parts. INVALID_ARGUMENT: another form or function, an empty or repeated key, or one that is not in `known_keys`
// (comma-separated). Every message ends with `example`.
absl::StatusOr<std::map<std::string, std::string>> ParseCall(absl::string_view text, absl::string_view function,
                                                             absl::string_view known_keys, absl::string_view example);

}  // namespace leeway::internal

#endif  // LEEWAY_ENVS_CALL_SYNTAX_H_
