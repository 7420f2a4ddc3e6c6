#include "launch/config/config.h"

#include <utility>

#include "base/hash.h"
#include "base/status_macros.h"
#include "fmt/format.h"

namespace leeway {

Config::Config() {
  for (const KeyInfo& info : Schema()) entries_[info.key()] = Entry{info.default_value(), Place{}};
}

const Config::Entry& Config::EntryOf(const std::string& key) const {
  const auto found = entries_.find(key);
  LEEWAY_CHECK(found != entries_.end()) << "no configuration key " << key;
  return found->second;
}

const ConfigValue& Config::Get(const std::string& key) const { return EntryOf(key).value; }
const Place& Config::PlaceOf(const std::string& key) const { return EntryOf(key).place; }

bool Config::GetBoolean(const std::string& key) const {
  const auto* value = std::get_if<bool>(&Get(key));
  LEEWAY_CHECK(value != nullptr) << key << " is no boolean";
  return *value;
}

int64_t Config::GetInteger(const std::string& key) const {
  const auto* value = std::get_if<int64_t>(&Get(key));
  LEEWAY_CHECK(value != nullptr) << key << " is no integer";
  return *value;
}

double Config::GetReal(const std::string& key) const {
  const auto* value = std::get_if<double>(&Get(key));
  LEEWAY_CHECK(value != nullptr) << key << " is no real number";
  return *value;
}

const std::string& Config::GetString(const std::string& key) const {
  const auto* value = std::get_if<std::string>(&Get(key));
  LEEWAY_CHECK(value != nullptr) << key << " is no text";
  return *value;
}

void Config::Set(const std::string& key, ConfigValue value, Place place) {
  const KeyInfo* info = FindKey(key);
  LEEWAY_CHECK(info != nullptr) << "no configuration key " << key;
  LEEWAY_CHECK(value.index() == info->default_value().index()) << key << " has another type";
  const std::string problem = info->CheckValue(value);
  LEEWAY_CHECK(problem.empty()) << key << ": " << problem;
  entries_[key] = Entry{std::move(value), std::move(place)};
}

std::string Config::ToToml() const {
  std::string text = "# Resolved configuration, written by leeway.\n";
  std::string section;
  for (const KeyInfo& info : Schema()) {
    if (info.section() != section) {
      section = info.section();
      text += fmt::format("\n[{}]\n", section);
    }
    const std::string name = section.empty() ? info.key() : info.key().substr(section.size() + 1);
    text += fmt::format("{} = {}\n", name, FormatValue(Get(info.key())));
  }
  return text;
}

std::string Config::RunFingerprint() const {
  std::string text;
  for (const KeyInfo& info : Schema()) {
    if (info.resume() == ResumeRule::kFixed) text += fmt::format("{}={}\n", info.key(), FormatValue(Get(info.key())));
  }
  return Digest128(text.data(), text.size());
}

std::vector<ConfigDifference> CompareForResume(const Config& existing, const Config& wanted) {
  std::vector<ConfigDifference> differences;
  for (const KeyInfo& info : Schema()) {
    const ConfigValue& before = existing.Get(info.key());
    const ConfigValue& after = wanted.Get(info.key());
    if (before == after) continue;
    bool is_refused = info.resume() == ResumeRule::kFixed;
    if (info.resume() == ResumeRule::kMayGrow) is_refused = std::get<int64_t>(after) < std::get<int64_t>(before);
    differences.push_back({info.key(), FormatValue(before), FormatValue(after), is_refused});
  }
  return differences;
}

}  // namespace leeway
