#ifndef LEEWAY_QUEUE_DOOR_TOKEN_BYTES_H_
#define LEEWAY_QUEUE_DOOR_TOKEN_BYTES_H_

#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"

namespace leeway {

// Packed fields of a span, checked in their serialised form, sixteen bytes at a time. Pure functions.

// How many ids a packed `repeated int32` holds, when every one of them is at least 0, below `vocabulary_size`, and
// written in at most three bytes. nullopt: not so, or not certain. The three bytes before `bytes` must be readable, and
// the last of them below 0x80 (as the end of a length is).
std::optional<uint64_t> CountIds(absl::string_view bytes, int32_t vocabulary_size);

// Whether a packed `repeated float` holds whole, finite numbers that are not above 0.
bool AreLogprobs(absl::string_view bytes);

}  // namespace leeway

#endif  // LEEWAY_QUEUE_DOOR_TOKEN_BYTES_H_
