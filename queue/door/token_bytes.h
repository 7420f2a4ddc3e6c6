#ifndef LEEWAY_QUEUE_DOOR_TOKEN_BYTES_H_
#define LEEWAY_QUEUE_DOOR_TOKEN_BYTES_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace leeway {

// Packed fields of a span, checked in their serialised form, sixteen bytes at a time. Pure functions.

// Whether a packed `repeated sfixed32` holds whole numbers from 0 to below `vocabulary_size`.
bool AreIds(absl::string_view bytes, int32_t vocabulary_size);

// Whether a packed `repeated float` holds whole, finite numbers that are not above 0.
bool AreLogprobs(absl::string_view bytes);

}  // namespace leeway

#endif  // LEEWAY_QUEUE_DOOR_TOKEN_BYTES_H_
