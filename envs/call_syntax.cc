#include "envs/call_syntax.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace leeway::internal {

absl::StatusOr<std::map<std::string, std::string>> ParseCall(absl::string_view text, absl::string_view function,
                                                             absl::string_view known_keys, absl::string_view example) {
  const auto fault = [&](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat("'", text, "': ", what, "; expected for example ", example));
  };
  absl::string_view rest = absl::StripAsciiWhitespace(text);
  if (!absl::ConsumePrefix(&rest, function)) return fault(absl::StrCat("does not begin with '", function, "('"));
  rest = absl::StripLeadingAsciiWhitespace(rest);
  if (!absl::ConsumePrefix(&rest, "(") || !absl::ConsumeSuffix(&rest, ")")) {
    return fault(absl::StrCat("needs its arguments in parentheses after '", function, "'"));
  }
  const std::vector<std::string> known = absl::StrSplit(known_keys, ',');
  std::map<std::string, std::string> arguments;
  if (absl::StripAsciiWhitespace(rest).empty()) return arguments;
  for (const absl::string_view part : absl::StrSplit(rest, ',')) {
    const std::pair<std::string, std::string> key_value = absl::StrSplit(part, absl::MaxSplits('=', 1));
    const std::string key(absl::StripAsciiWhitespace(key_value.first));
    const std::string value(absl::StripAsciiWhitespace(key_value.second));
    if (key.empty() || value.empty())
      return fault(absl::StrCat("'", absl::StripAsciiWhitespace(part), "' is not key=value"));
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      return fault(
          absl::StrCat("unknown key '", key, "' (known: ", absl::StrReplaceAll(known_keys, {{",", ", "}}), ")"));
    }
    if (!arguments.emplace(key, value).second) return fault(absl::StrCat("'", key, "' is given twice"));
  }
  return arguments;
}

}  // namespace leeway::internal
