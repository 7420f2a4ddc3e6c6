#include "launch/config/config_loader.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <sstream>

#include "fmt/format.h"
#include "launch/config/nearest.h"

#define TOML_EXCEPTIONS 0
#define TOML_HEADER_ONLY 1

// toml++ asserts what a broken file breaks (a table's name that starts with '?'), and reports it as an error right
// after: it is to go on to that.
#define TOML_ASSERT(expr) static_cast<void>(0)
#include "toml++/toml.h"

namespace leeway {
namespace {

std::string TypeWords(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::table:
      return "a table";
    case toml::node_type::array:
      return "an array";
    case toml::node_type::string:
      return fmt::format("the text \"{}\"", node.as_string()->get());
    case toml::node_type::integer:
      return fmt::format("the integer {}", node.as_integer()->get());
    case toml::node_type::floating_point:
      return fmt::format("the number {}", FormatValue(node.as_floating_point()->get()));
    case toml::node_type::boolean:
      return node.as_boolean()->get() ? "true" : "false";
    default:
      return "a date or time";
  }
}

// "256MiB" -> bytes; also a plain number in quotes.
std::optional<int64_t> ParseBytes(const std::string& text) {
  size_t digits = 0;
  int64_t number = 0;
  while (digits < text.size() && text[digits] >= '0' && text[digits] <= '9') {
    if (number > (INT64_MAX >> 4) / 10) return std::nullopt;
    number = number * 10 + (text[digits++] - '0');
  }
  if (digits == 0) return std::nullopt;
  int shift = 0;
  const std::string suffix = text.substr(digits);
  if (suffix == "KiB") shift = 10;
  if (suffix == "MiB") shift = 20;
  if (suffix == "GiB") shift = 30;
  if (shift == 0 && !suffix.empty()) return std::nullopt;
  if (number > (INT64_MAX >> shift)) return std::nullopt;
  return number << shift;
}

// The key's value out of a TOML value; nullopt if it has another type.
std::optional<ConfigValue> Convert(const KeyInfo& info, const toml::node& node) {
  switch (info.type()) {
    case ValueType::kBoolean:
      if (const auto* value = node.as_boolean()) return ConfigValue(value->get());
      return std::nullopt;
    case ValueType::kInteger:
      if (const auto* value = node.as_integer()) return ConfigValue(value->get());
      if (const auto* value = node.as_string(); value != nullptr && info.unit() == "bytes") {
        if (const auto bytes = ParseBytes(value->get())) return ConfigValue(*bytes);
      }
      return std::nullopt;
    case ValueType::kReal:
      if (const auto* value = node.as_floating_point()) return ConfigValue(value->get());
      if (const auto* value = node.as_integer()) return ConfigValue(static_cast<double>(value->get()));
      return std::nullopt;
    case ValueType::kString:
      if (const auto* value = node.as_string()) return ConfigValue(value->get());
      return std::nullopt;
  }
  return std::nullopt;
}

// "8k" where a number is expected: the number that its digits spell.
std::string NumberHint(const KeyInfo& info, const toml::node& node) {
  if (info.type() != ValueType::kInteger && info.type() != ValueType::kReal) return "";
  const auto* text = node.as_string();
  if (text == nullptr) return "";
  size_t digits = 0;
  while (digits < text->get().size() && isdigit(static_cast<unsigned char>(text->get()[digits]))) ++digits;
  // Only a unit is missing its meaning: "8k". Anything else would be another number.
  const std::string rest = text->get().substr(digits);
  const bool is_unit =
      std::all_of(rest.begin(), rest.end(), [](char c) { return isalpha(static_cast<unsigned char>(c)); });
  return digits == 0 || rest.empty() || !is_unit ? ""
                                                 : fmt::format(" (did you mean {}?)", text->get().substr(0, digits));
}

class Merger {
 public:
  explicit Merger(LoadedConfig* out) : out_(out) {}

  // `place_of` turns a source region of toml++ into a place (files and overrides differ).
  template <typename PlaceOf>
  void Merge(const toml::table& table, const std::string& prefix, const PlaceOf& place_of) {
    for (const auto& [name, node] : table) {
      const std::string key = prefix + std::string(name.str());
      if (const KeyInfo* info = FindKey(key); info != nullptr) {
        Take(*info, node, place_of(node.source()));
      } else if (node.is_table() && IsSection(key)) {
        Merge(*node.as_table(), key + ".", place_of);
      } else {
        Unknown(key, node.is_table(), place_of(name.source()));
      }
    }
  }

  void Error(Place place, std::string key, std::string message) {
    out_->errors.push_back({std::move(place), std::move(key), std::move(message)});
  }

  void RequireRequired(const Place& at) {
    for (const KeyInfo& info : Schema()) {
      if (info.is_required() && seen_.count(info.key()) == 0) {
        Error(at, info.key(), fmt::format("missing; expected {}: {}", info.Expected(), info.documentation()));
      }
    }
  }

 private:
  void Take(const KeyInfo& info, const toml::node& node, Place place) {
    seen_.insert(info.key());
    std::optional<ConfigValue> value = Convert(info, node);
    if (!value.has_value()) {
      Error(std::move(place), info.key(),
            fmt::format("expected {}, got {}{}", info.Expected(), TypeWords(node), NumberHint(info, node)));
      return;
    }
    if (std::string problem = info.CheckValue(*value); !problem.empty()) {
      if (!info.choices().empty()) {
        if (const auto nearest = NearestWord(std::get<std::string>(*value), info.choices())) {
          problem += fmt::format(" (did you mean \"{}\"?)", *nearest);
        }
      }
      Error(std::move(place), info.key(), std::move(problem));
      return;
    }
    out_->config.Set(info.key(), *std::move(value), std::move(place));
  }

  void Unknown(const std::string& key, bool is_table, Place place) {
    std::vector<std::string> candidates = is_table ? Sections() : SchemaKeys();
    const auto nearest = NearestWord(key, candidates);
    Error(std::move(place), key,
          fmt::format("unknown {}{}", is_table ? "section" : "key",
                      nearest.has_value() ? fmt::format(" (did you mean {}?)", *nearest)
                                          : "; `leeway docs config` lists all keys"));
  }

  static std::vector<std::string> Sections() {
    std::set<std::string> sections;
    for (const KeyInfo& info : Schema()) {
      for (std::string section = info.section(); !section.empty();) {
        sections.insert(section);
        const size_t dot = section.rfind('.');
        section = dot == std::string::npos ? "" : section.substr(0, dot);
      }
    }
    return {sections.begin(), sections.end()};
  }
  static bool IsSection(const std::string& key) {
    static const auto* const sections = [] {
      const std::vector<std::string> list = Sections();
      return new std::set<std::string>(list.begin(), list.end());
    }();
    return sections->count(key) > 0;
  }

  LoadedConfig* out_;
  std::set<std::string> seen_;
};

void MergeText(const std::string& text, const std::string& file, Merger* merger) {
  const toml::parse_result result = toml::parse(text, file);
  if (!result) {
    const toml::source_position at = result.error().source().begin;
    merger->Error(Place{file, static_cast<int>(at.line), static_cast<int>(at.column)}, "",
                  fmt::format("not TOML: {}", result.error().description()));
    return;
  }
  merger->Merge(result.table(), "", [&file](const toml::source_region& region) {
    return Place{file, static_cast<int>(region.begin.line), static_cast<int>(region.begin.column)};
  });
}

void MergeFile(const std::string& path, Merger* merger) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    merger->Error(Place{path, 1, 1}, "",
                  "no such file; expected a TOML configuration file (overrides look like trainer.steps=100)");
    return;
  }
  if (std::filesystem::is_directory(path, error)) {
    merger->Error(Place{path, 1, 1}, "", "is a directory; expected a TOML configuration file");
    return;
  }
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  if (!file) {
    merger->Error(Place{path, 1, 1}, "", "can not be read");
    return;
  }
  MergeText(text.str(), path, merger);
}

void MergeOverride(const std::string& argument, int ordinal, Merger* merger) {
  const std::string file = fmt::format("<argument {}>", ordinal);
  const size_t equals = argument.find('=');
  // `a.b=value` is a line of TOML as it stands, so places come for free. A value that is none is a text: `mode=sync`
  // needs no quotes, which shells eat anyway.
  toml::parse_result parsed = toml::parse(argument, file);
  if (!parsed) parsed = toml::parse(argument.substr(0, equals + 1) + FormatValue(argument.substr(equals + 1)), file);
  if (!parsed || parsed.table().empty()) {
    merger->Error(Place{file, 1, 1}, "", fmt::format("expected section.key=value, got \"{}\"", argument));
    return;
  }
  merger->Merge(parsed.table(), "", [&file](const toml::source_region& region) {
    return Place{file, 1, static_cast<int>(region.begin.column)};
  });
}

}  // namespace

ConfigSources SplitArguments(const std::vector<std::string>& arguments) {
  ConfigSources sources;
  for (const std::string& argument : arguments) {
    const size_t equals = argument.find('=');
    const bool is_override = equals != std::string::npos && argument.find('/') > equals;
    (is_override ? sources.overrides : sources.files).push_back(argument);
  }
  return sources;
}

LoadedConfig LoadConfig(const ConfigSources& sources) {
  LoadedConfig loaded;
  Merger merger(&loaded);
  for (const std::string& file : sources.files) MergeFile(file, &merger);
  for (size_t i = 0; i < sources.overrides.size(); ++i) {
    MergeOverride(sources.overrides[i], static_cast<int>(i) + 1, &merger);
  }
  // A file that could not be read as TOML hides its keys: what is missing then says nothing.
  const bool has_hidden_keys = !loaded.errors.empty() && loaded.errors.front().key.empty();
  if (!has_hidden_keys)
    merger.RequireRequired(Place{sources.files.empty() ? "<arguments>" : sources.files.back(), 1, 1});
  return loaded;
}

LoadedConfig ParseConfig(const std::string& text, const std::string& name) {
  LoadedConfig loaded;
  Merger merger(&loaded);
  MergeText(text, name, &merger);
  if (loaded.errors.empty() || !loaded.errors.front().key.empty()) merger.RequireRequired(Place{name, 1, 1});
  return loaded;
}

}  // namespace leeway
