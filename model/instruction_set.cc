#include "model/instruction_set.h"

#include <atomic>
#include <cstdlib>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace leeway {
namespace {

constexpr InstructionSet kAll[] = {InstructionSet::kScalar, InstructionSet::kAvx2, InstructionSet::kAvx512};
constexpr int kNoOverride = -1;
std::atomic<int> override_set{kNoOverride};

InstructionSet FromEnvironment() {
  const InstructionSet best = IsSupported(InstructionSet::kAvx512) ? InstructionSet::kAvx512
                              : IsSupported(InstructionSet::kAvx2) ? InstructionSet::kAvx2
                                                                   : InstructionSet::kScalar;
  const char* name = std::getenv("LEEWAY_INSTRUCTION_SET");
  if (name == nullptr || *name == '\0') return best;
  const absl::StatusOr<InstructionSet> set = InstructionSetFromName(name);
  if (set.ok()) return *set;
  std::cerr << "LEEWAY_INSTRUCTION_SET ignored: " << set.status().message() << std::endl;
  return best;
}

}  // namespace

absl::string_view InstructionSetName(InstructionSet set) {
  switch (set) {
    case InstructionSet::kScalar:
      return "scalar";
    case InstructionSet::kAvx2:
      return "avx2";
    case InstructionSet::kAvx512:
      return "avx512";
  }
  return "unknown";
}

bool IsSupported(InstructionSet set) {
  switch (set) {
    case InstructionSet::kScalar:
      return true;
    case InstructionSet::kAvx2:
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    case InstructionSet::kAvx512:
      return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("fma");
  }
  return false;
}

absl::StatusOr<InstructionSet> InstructionSetFromName(absl::string_view name) {
  for (const InstructionSet set : kAll) {
    if (name != InstructionSetName(set)) continue;
    if (IsSupported(set)) return set;
    return absl::InvalidArgumentError(absl::StrCat("this processor has no ", name));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("unknown instruction set \"", name, "\": expected scalar, avx2 or avx512"));
}

InstructionSet ActiveInstructionSet() {
  const int forced = override_set.load(std::memory_order_relaxed);
  if (forced != kNoOverride) return static_cast<InstructionSet>(forced);
  static const InstructionSet from_environment = FromEnvironment();
  return from_environment;
}

void OverrideInstructionSet(std::optional<InstructionSet> set) {
  LEEWAY_CHECK(!set.has_value() || IsSupported(*set)) << InstructionSetName(*set);
  override_set.store(set.has_value() ? static_cast<int>(*set) : kNoOverride, std::memory_order_relaxed);
}

}  // namespace leeway
