#include "formats/strict_json.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace leeway {
namespace {

constexpr int kMaxDepth = 64;

// Thrown through the parser to stop it; never leaves this file.
struct Refusal {
  size_t offset;  // of the byte where the fault begins
  std::string message;
};

// Walks over the text and tells how far the parser has read.
class TrackedByte {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  TrackedByte(const char* at, const char** read) : at_(at), read_(read) {}
  reference operator*() const { return *at_; }
  TrackedByte& operator++() {
    *read_ = ++at_;
    return *this;
  }
  bool operator==(const TrackedByte& other) const { return at_ == other.at_; }
  bool operator!=(const TrackedByte& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  const char** read_;
};

// Where the string begins whose closing quote is the last byte of `text`.
size_t StartOfString(absl::string_view text) {
  size_t quote = text.size() - 1;
  bool is_escaped = true;
  while (is_escaped) {
    quote = text.rfind('"', quote - 1);
    size_t backslashes = 0;
    while (backslashes < quote && text[quote - 1 - backslashes] == '\\') ++backslashes;
    is_escaped = backslashes % 2 == 1;
  }
  return quote;
}

// "PATH:LINE:COLUMN: MESSAGE" of byte `offset`.
absl::Status FaultAt(absl::string_view text, size_t offset, const std::string& path, int64_t first_line,
                     const std::string& message) {
  const absl::string_view before = text.substr(0, offset);
  const int64_t line = first_line + std::count(before.begin(), before.end(), '\n');
  const size_t line_start = before.rfind('\n');
  const size_t column = before.size() - (line_start == absl::string_view::npos ? 0 : line_start + 1) + 1;
  return absl::InvalidArgumentError(absl::StrCat(path, ":", line, ":", column, ": ", message));
}

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
  const char* read = text.data();
  const auto offset = [&] { return static_cast<size_t>(read - text.data()); };
  // Keys seen so far in each object that is open.
  std::vector<std::set<std::string>> open_objects;
  const auto refuse = [&](int depth, nlohmann::json::parse_event_t event, nlohmann::json& parsed) {
    using Event = nlohmann::json::parse_event_t;
    // The parser has just read the bracket, or the key's closing quote.
    const bool opens = event == Event::object_start || event == Event::array_start;
    if (opens && depth >= kMaxDepth)
      throw Refusal{offset() - 1, absl::StrCat("nested more than ", kMaxDepth, " levels deep")};
    if (event == Event::object_start) open_objects.emplace_back();
    if (event == Event::object_end) open_objects.pop_back();
    if (event == Event::key) {
      const std::string key = parsed.get<std::string>();
      if (!open_objects.back().insert(key).second) {
        throw Refusal{StartOfString(text.substr(0, offset())), absl::StrCat("key '", key, "' is given twice")};
      }
    }
    return true;
  };
  try {
    return nlohmann::json::parse(TrackedByte(text.data(), &read), TrackedByte(text.data() + text.size(), &read),
                                 refuse);
  } catch (const nlohmann::json::parse_error& error) {
    return FaultAt(text, error.byte > 0 ? error.byte - 1 : 0, path, first_line, TextOf(error));
  } catch (const nlohmann::json::exception& error) {
    return FaultAt(text, offset(), path, first_line, error.what());
  } catch (const Refusal& refusal) {
    return FaultAt(text, refusal.offset, path, first_line, refusal.message);
  }
}

}  // namespace leeway
