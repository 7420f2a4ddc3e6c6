#ifndef LEEWAY_FORMATS_STRICT_JSON_H_
#define LEEWAY_FORMATS_STRICT_JSON_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace leeway {

// One JSON value and nothing else: valid UTF-8, no key twice in an object, at most 64 levels deep. Never throws.
// INVALID_ARGUMENT: "PATH:LINE:COLUMN: what is wrong". `first_line` is the line of the file that `text` begins at.
absl::StatusOr<nlohmann::json> ParseStrictJson(absl::string_view text, const std::string& path, int64_t first_line = 1);

}  // namespace leeway

#endif  // LEEWAY_FORMATS_STRICT_JSON_H_
