#ifndef LEEWAY_FORMATS_SAFETENSORS_HEADER_H_
#define LEEWAY_FORMATS_SAFETENSORS_HEADER_H_

// The header of a safetensors file as text and as entries, without any file.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "formats/safetensors.h"

namespace leeway::internal {

// Longest header that is read.
constexpr uint64_t kMaxSafetensorsHeaderBytes = 100'000'000;

struct SafetensorsHeader {
  // In the order of their bytes.
  std::vector<SafetensorsEntry> entries;
  SafetensorsMetadata metadata;
};

// Parses and validates the JSON part against the `data_bytes` bytes that follow it. Never throws, never recurses.
// INVALID_ARGUMENT: the first fault found, naming the tensor.
absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(absl::string_view text, uint64_t data_bytes);

// The header of entries whose order and offsets are already right, padded with spaces so that 8 + its size is a
// multiple of 8. INVALID_ARGUMENT: text that is not UTF-8.
absl::StatusOr<std::string> FormatSafetensorsHeader(const SafetensorsHeader& header);

// Bits of one element of a dtype by the format's name for it; 0 = unknown.
int SafetensorsDTypeBits(absl::string_view dtype);

}  // namespace leeway::internal

#endif  // LEEWAY_FORMATS_SAFETENSORS_HEADER_H_
