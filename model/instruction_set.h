#ifndef LEEWAY_MODEL_INSTRUCTION_SET_H_
#define LEEWAY_MODEL_INSTRUCTION_SET_H_

// Which of the compiled kernels run. All of them give the same bits; they differ in speed only, so the choice is never
// part of a run's identity. Any thread; none of these functions blocks.

#include <optional>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace leeway {

enum class InstructionSet { kScalar, kAvx2, kAvx512 };

// scalar, avx2, avx512.
absl::string_view InstructionSetName(InstructionSet set);

// Whether this processor can run it.
bool IsSupported(InstructionSet set);

// The set named by `name`. INVALID_ARGUMENT: unknown name (lists the known ones) or this processor lacks it.
absl::StatusOr<InstructionSet> InstructionSetFromName(absl::string_view name);

// What a Transformer constructed now will use: the override below, else the environment variable LEEWAY_INSTRUCTION_SET
// (a wrong value there is reported on the standard error stream once and ignored), else the best one supported.
InstructionSet ActiveInstructionSet();

// Overrides the choice for objects constructed afterwards; nullopt takes the override back. `set` must be supported.
void OverrideInstructionSet(std::optional<InstructionSet> set);

}  // namespace leeway

#endif  // LEEWAY_MODEL_INSTRUCTION_SET_H_
