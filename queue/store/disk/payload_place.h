#ifndef LEEWAY_QUEUE_STORE_DISK_PAYLOAD_PLACE_H_
#define LEEWAY_QUEUE_STORE_DISK_PAYLOAD_PLACE_H_

// Where a durable payload lies, and how that is written down.
//
// The database holds, per payload, key "P" + ticket (8 bytes, big endian) + member (4 bytes, big endian) -> place (4
// numbers of 8 bytes, little endian). Callers' records start with a small letter, so the two never meet, and payloads
// are ordered by ticket and member.

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "queue/store/queue_store.h"

namespace leeway {

struct PayloadPlace {
  // Number of the segment file; 0 = the bytes lie in the database itself, under the same key in its own column family.
  uint64_t segment = 0;
  uint64_t offset = 0;
  uint64_t size_bytes = 0;
  // xxh3-64 of the bytes.
  uint64_t hash = 0;

  bool is_inline() const { return segment == 0; }
  friend bool operator==(const PayloadPlace& a, const PayloadPlace& b) {
    return a.segment == b.segment && a.offset == b.offset && a.size_bytes == b.size_bytes && a.hash == b.hash;
  }
};

// The first letter of all keys above, and the first key behind them.
inline constexpr absl::string_view kPlaceKeysBegin = "P";
inline constexpr absl::string_view kPlaceKeysEnd = "Q";

std::string EncodePlaceKey(const PayloadKey& key);
std::string EncodePlace(const PayloadPlace& place);
// DATA_LOSS: not what the two above write.
absl::StatusOr<PayloadKey> DecodePlaceKey(absl::string_view bytes);
absl::StatusOr<PayloadPlace> DecodePlace(absl::string_view bytes);

// "ticket 7 member 2", for messages.
std::string DescribePayload(const PayloadKey& key);

}  // namespace leeway

#endif  // LEEWAY_QUEUE_STORE_DISK_PAYLOAD_PLACE_H_
