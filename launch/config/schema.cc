#include "launch/config/schema.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/status_macros.h"
#include "fmt/format.h"
#include "fmt/ranges.h"

namespace leeway {
const std::vector<KeyInfo>& Schema() {
  static const auto* const table = new std::vector<KeyInfo>(internal::MakeSchema());
  return *table;
}

const KeyInfo* FindKey(const std::string& key) {
  static const auto* const by_key = [] {
    auto* map = new std::map<std::string, const KeyInfo*>;
    for (const KeyInfo& info : Schema()) {
      LEEWAY_CHECK(map->emplace(info.key(), &info).second) << info.key() << " is twice in the schema";
    }
    return map;
  }();
  const auto found = by_key->find(key);
  return found == by_key->end() ? nullptr : found->second;
}

std::vector<std::string> SchemaKeys() {
  std::vector<std::string> keys;
  for (const KeyInfo& info : Schema()) keys.push_back(info.key());
  return keys;
}

std::string SectionDocumentation(const std::string& section) {
  static const auto* const documentation = new std::map<std::string, std::string>{
      {"", "The run as a whole."},
      {"run", "Run directory and supervision."},
      {"task", "What is trained on."},
      {"model", "Family and shape of the transformer."},
      {"rollout", "Rollout workers: generation and environments."},
      {"queue", "Ledger, bounds and policies between rollout and training."},
      {"security",
       "Who may talk to the job's processes over TCP. Unix sockets, the default, need nothing: the kernel lets this "
       "user in only."},
      {"staleness", "How far rollout and training may drift apart."},
      {"trainer", "The train loop."},
      {"trainer.warm_start", "Supervised training before version 1."},
      {"objective", "Loss and advantages."},
      {"optimizer", "The optimizer and its schedule."},
      {"checkpoint", "Checkpoints."},
      {"eval", "Evaluation on held-out instances while training."},
      {"weights", "Publishing weights to the rollout workers."},
      {"trajectories", "Trajectories kept for people."},
      {"metrics", "Prometheus endpoints."},
  };
  const auto found = documentation->find(section);
  return found == documentation->end() ? "" : found->second;
}

std::string KeyInfo::section() const {
  const size_t dot = key_.rfind('.');
  return dot == std::string::npos ? "" : key_.substr(0, dot);
}

std::string KeyInfo::Expected() const {
  if (!choices_.empty()) return fmt::format("one of {}", fmt::join(choices_, ", "));
  std::string range;
  if (std::isfinite(minimum_)) range += fmt::format(" {} {}", minimum_is_excluded_ ? ">" : ">=", minimum_);
  if (std::isfinite(maximum_)) range += fmt::format("{} <= {}", range.empty() ? "" : " and", maximum_);
  switch (type_) {
    case ValueType::kBoolean:
      return "true or false";
    case ValueType::kInteger:
      if (unit_ == "bytes") return fmt::format("bytes: an integer{} or a text such as \"256MiB\"", range);
      return "an integer" + range;
    case ValueType::kReal:
      return "a number" + range;
    case ValueType::kString:
      return "a text";
  }
  return "";
}

std::string KeyInfo::CheckValue(const ConfigValue& value) const {
  bool is_legal = true;
  if (const auto* text = std::get_if<std::string>(&value); text != nullptr && !choices_.empty()) {
    is_legal = std::find(choices_.begin(), choices_.end(), *text) != choices_.end();
  }
  double number = 0;
  if (const auto* integer = std::get_if<int64_t>(&value)) number = static_cast<double>(*integer);
  if (const auto* real = std::get_if<double>(&value)) number = *real;
  if (type_ == ValueType::kInteger || type_ == ValueType::kReal) {
    is_legal =
        std::isfinite(number) && (minimum_is_excluded_ ? number > minimum_ : number >= minimum_) && number <= maximum_;
  }
  return is_legal ? "" : fmt::format("expected {}, got {}", Expected(), FormatValue(value));
}

}  // namespace leeway
