#ifndef LEEWAY_TRAINER_ENUM_NAMES_H_
#define LEEWAY_TRAINER_ENUM_NAMES_H_

// Names of enum values as the configuration writes them: one table for parsing, printing and error messages.

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"

namespace leeway::internal {

template <typename Enum>
struct EnumName {
  Enum value;
  const char* name;
};

// INVALID_ARGUMENT naming the possible values.
template <typename Enum, size_t count>
absl::StatusOr<Enum> ParseEnum(const EnumName<Enum> (&table)[count], absl::string_view what, absl::string_view name) {
  for (const EnumName<Enum>& entry : table) {
    if (name == entry.name) return entry.value;
  }
  std::vector<std::string> names;
  for (const EnumName<Enum>& entry : table) names.push_back(entry.name);
  return absl::InvalidArgumentError(
      absl::StrCat("unknown ", what, " \"", name, "\"; possible: ", absl::StrJoin(names, ", ")));
}

template <typename Enum, size_t count>
std::vector<std::string> EnumNames(const EnumName<Enum> (&table)[count]) {
  std::vector<std::string> names;
  for (const EnumName<Enum>& entry : table) names.push_back(entry.name);
  return names;
}

template <typename Enum, size_t count>
absl::string_view NameOfEnum(const EnumName<Enum> (&table)[count], Enum value) {
  for (const EnumName<Enum>& entry : table) {
    if (value == entry.value) return entry.name;
  }
  return "unknown";
}

}  // namespace leeway::internal

#endif  // LEEWAY_TRAINER_ENUM_NAMES_H_
