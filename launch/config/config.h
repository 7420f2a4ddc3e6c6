#ifndef LEEWAY_LAUNCH_CONFIG_CONFIG_H_
#define LEEWAY_LAUNCH_CONFIG_CONFIG_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "launch/config/diagnostic.h"
#include "launch/config/schema.h"

namespace leeway {

// A complete configuration: a legal value for every key of the schema, and where each came from. A plain value;
// thread-compatible. Getters of a key that is not in the schema, or of another type, are our bug and abort.
class Config {
 public:
  // All defaults (required keys hold their empty default).
  Config();

  bool GetBoolean(const std::string& key) const;
  int64_t GetInteger(const std::string& key) const;
  double GetReal(const std::string& key) const;
  const std::string& GetString(const std::string& key) const;
  const ConfigValue& Get(const std::string& key) const;
  const Place& PlaceOf(const std::string& key) const;
  bool IsDefault(const std::string& key) const { return PlaceOf(key).is_default(); }

  // `value` must have the key's type and be legal.
  void Set(const std::string& key, ConfigValue value, Place place);

  // The resolved configuration as one TOML file that reads back to the same values.
  std::string ToToml() const;
  // Digest over the keys that a run can not change (ResumeRule::kFixed): processes of one run must agree on it.
  std::string RunFingerprint() const;

 private:
  struct Entry {
    ConfigValue value;
    Place place;
  };
  const Entry& EntryOf(const std::string& key) const;

  std::map<std::string, Entry> entries_;
};

// One line for each key in which a resume differs from the run that exists.
struct ConfigDifference {
  std::string key;
  std::string before;  // as TOML
  std::string after;
  // False: the schema lets a resume change it so.
  bool is_refused = false;
};
std::vector<ConfigDifference> CompareForResume(const Config& existing, const Config& wanted);

}  // namespace leeway

#endif  // LEEWAY_LAUNCH_CONFIG_CONFIG_H_
