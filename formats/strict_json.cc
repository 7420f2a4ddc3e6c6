#include "formats/strict_json.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace leeway {
namespace {

constexpr int kMaxDepth = 64;

// Thrown through the parser to stop it; never leaves this file.
struct Refusal {
  std::string message;
};

// The parser's own text without its code and position: "[json.exception.parse_error.101] parse error at line 1, column
// 5: TEXT".
std::string TextOf(const nlohmann::json::parse_error& error) {
  const std::string text = error.what();
  const size_t column = text.find(", column ");
  const size_t colon = column == std::string::npos ? std::string::npos : text.find(": ", column);
  return colon == std::string::npos ? text : text.substr(colon + 2);
}

}  // namespace

absl::StatusOr<nlohmann::json> ParseStrictJson(absl::string_view text, const std::string& path, int64_t first_line) {
  // Keys seen so far in each object that is open.
  std::vector<std::set<std::string>> open_objects;
  const auto refuse = [&](int depth, nlohmann::json::parse_event_t event, nlohmann::json& parsed) {
    using Event = nlohmann::json::parse_event_t;
    if (depth > kMaxDepth) throw Refusal{absl::StrCat("nested more than ", kMaxDepth, " levels deep")};
    if (event == Event::object_start) open_objects.emplace_back();
    if (event == Event::object_end) open_objects.pop_back();
    if (event == Event::key) {
      const std::string key = parsed.get<std::string>();
      if (!open_objects.back().insert(key).second) throw Refusal{absl::StrCat("key '", key, "' is given twice")};
    }
    return true;
  };
  try {
    return nlohmann::json::parse(text.data(), text.data() + text.size(), refuse);
  } catch (const nlohmann::json::parse_error& error) {
    const absl::string_view before = text.substr(0, error.byte > 0 ? error.byte - 1 : 0);
    const int64_t line = first_line + std::count(before.begin(), before.end(), '\n');
    const size_t line_start = before.rfind('\n');
    const size_t column = before.size() - (line_start == absl::string_view::npos ? 0 : line_start + 1) + 1;
    return absl::InvalidArgumentError(absl::StrCat(path, ":", line, ":", column, ": ", TextOf(error)));
  } catch (const nlohmann::json::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat(path, ":", first_line, ": ", error.what()));
  } catch (const Refusal& refusal) {
    return absl::InvalidArgumentError(absl::StrCat(path, ":", first_line, ": ", refusal.message));
  }
}

}  // namespace leeway
