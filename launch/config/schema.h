#ifndef LEEWAY_LAUNCH_CONFIG_SCHEMA_H_
#define LEEWAY_LAUNCH_CONFIG_SCHEMA_H_

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace leeway {

// A value of a configuration key. The alternative in use is fixed by the key's ValueType.
using ConfigValue = std::variant<bool, int64_t, double, std::string>;

enum class ValueType { kBoolean, kInteger, kReal, kString };

// What a resume of an existing run may do to a key.
enum class ResumeRule {
  kFree,     // may change; the launcher prints what changed
  kFixed,    // part of the run's identity (and of its fingerprint): a change is refused
  kMayGrow,  // may be raised, not lowered
};

// One row of the schema: everything that leeway knows about a key. The same row parses, validates, prints and documents
// the key and gives its JSON Schema. Built by the chain of calls in schema.cc.
class KeyInfo {
 public:
  KeyInfo(std::string key, ValueType type, ConfigValue default_value)
      : key_(std::move(key)), type_(type), default_value_(std::move(default_value)) {}

  KeyInfo AtLeast(double minimum) && { return (minimum_ = minimum, std::move(*this)); }
  KeyInfo Above(double minimum) && { return (minimum_ = minimum, minimum_is_excluded_ = true, std::move(*this)); }
  KeyInfo AtMost(double maximum) && { return (maximum_ = maximum, std::move(*this)); }
  KeyInfo OneOf(std::vector<std::string> choices) && { return (choices_ = std::move(choices), std::move(*this)); }
  // "s", "bytes", "tokens", ...: documentation, except that "bytes" keys also accept texts such as "256MiB".
  KeyInfo Unit(std::string unit) && { return (unit_ = std::move(unit), std::move(*this)); }
  KeyInfo ReadBy(std::string readers) && { return (readers_ = std::move(readers), std::move(*this)); }
  KeyInfo Resume(ResumeRule rule) && { return (resume_ = rule, std::move(*this)); }
  KeyInfo Required() && { return (is_required_ = true, std::move(*this)); }
  KeyInfo Doc(std::string text) && { return (documentation_ = std::move(text), std::move(*this)); }

  const std::string& key() const { return key_; }
  ValueType type() const { return type_; }
  const ConfigValue& default_value() const { return default_value_; }
  double minimum() const { return minimum_; }
  bool minimum_is_excluded() const { return minimum_is_excluded_; }
  double maximum() const { return maximum_; }
  const std::vector<std::string>& choices() const { return choices_; }
  const std::string& unit() const { return unit_; }
  // Which processes read it: "queue, rollout, trainer, launcher".
  const std::string& readers() const { return readers_; }
  ResumeRule resume() const { return resume_; }
  bool is_required() const { return is_required_; }
  const std::string& documentation() const { return documentation_; }

  // "trainer" of "trainer.warm_start.steps"; empty for top-level keys.
  std::string section() const;
  // "an integer >= 1", "one of async, sync", "bytes: an integer >= 0 or a text such as \"256MiB\"".
  std::string Expected() const;
  // Empty if `value` (of the key's type) is legal, else what is wrong with it: "expected ..., got ...".
  std::string CheckValue(const ConfigValue& value) const;

 private:
  std::string key_;
  ValueType type_;
  ConfigValue default_value_;
  double minimum_ = -std::numeric_limits<double>::infinity();
  bool minimum_is_excluded_ = false;
  double maximum_ = std::numeric_limits<double>::infinity();
  std::vector<std::string> choices_;
  std::string unit_;
  std::string readers_;
  ResumeRule resume_ = ResumeRule::kFree;
  bool is_required_ = false;
  std::string documentation_;
};

// The table, in the order in which it is printed: sections together. Made once; thread-safe.
const std::vector<KeyInfo>& Schema();
// nullptr if there is no such key.
const KeyInfo* FindKey(const std::string& key);
std::vector<std::string> SchemaKeys();
// One sentence on what a section ("trainer", "trainer.warm_start") is for; empty for unknown ones.
std::string SectionDocumentation(const std::string& section);

// A value as TOML spells it: true, 42, 0.001, "text".
std::string FormatValue(const ConfigValue& value);

// The table as the markdown of docs/configuration.md, and as a JSON Schema (draft 2020-12) for editors.
std::string SchemaMarkdown();
std::string SchemaJson();

namespace internal {
// The rows (schema_table.cc).
std::vector<KeyInfo> MakeSchema();
}  // namespace internal

}  // namespace leeway

#endif  // LEEWAY_LAUNCH_CONFIG_SCHEMA_H_
