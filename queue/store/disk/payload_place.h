#ifndef LEEWAY_QUEUE_STORE_DISK_PAYLOAD_PLACE_H_
#define LEEWAY_QUEUE_STORE_DISK_PAYLOAD_PLACE_H_

// Where durable payloads lie, and how that is written down.
//
// Payloads that one group put one behind the other, into a segment file or into a *bundle* (a value of the database),
// are listed together in one record, a *list*: what lies there, how long it is, and its hash. A list is never changed.
// Which of its payloads have ended is a second record, a bit each; when the last ends both go, and the bundle.
//
//   "P" + NUMBER   the list (8 bytes, big endian, rising): EncodeList
//   "E" + NUMBER   which of it have ended: bit i % 8 of byte i / 8 is payload i; no record = none
//   NUMBER         in the column family of the bundles: the bytes, if the list is of a bundle
//
// Callers' records start with a small letter, so the two never meet.

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "queue/store/queue_store.h"

namespace leeway {

struct PayloadPlace {
  // The list and the number in it, from 0; list 0 = nowhere.
  uint64_t list = 0;
  uint32_t index = 0;
  // Number of the segment file; 0 = the bundle that has the list's number.
  uint64_t segment = 0;
  // In the segment or bundle.
  uint64_t offset = 0;
  uint64_t size_bytes = 0;
  // xxh3-64 of the bytes.
  uint64_t hash = 0;

  bool is_bundled() const { return segment == 0; }
  friend bool operator==(const PayloadPlace& a, const PayloadPlace& b) {
    return a.list == b.list && a.index == b.index && a.segment == b.segment && a.offset == b.offset &&
           a.size_bytes == b.size_bytes && a.hash == b.hash;
  }
};

struct PlacedPayload {
  PayloadKey key;
  PayloadPlace place;
};

// The first letter of the keys above, and the first key behind them.
inline constexpr absl::string_view kListKeysBegin = "P";
inline constexpr absl::string_view kListKeysEnd = "Q";
inline constexpr absl::string_view kEndedKeysBegin = "E";
inline constexpr absl::string_view kEndedKeysEnd = "F";

std::string ListKey(uint64_t list);
std::string EndedKey(uint64_t list);
std::string BundleKey(uint64_t list);

// Writes a list payload by payload; they lie one behind the other in the order of Add.
class ListEncoder {
 public:
  // Where its first payload begins.
  ListEncoder(uint64_t segment, uint64_t offset);
  void Add(const PayloadKey& key, uint64_t size_bytes, uint64_t hash);
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

// DATA_LOSS: not what the above write.
absl::StatusOr<uint64_t> DecodeListKey(absl::string_view key);
absl::StatusOr<std::vector<PlacedPayload>> DecodeList(uint64_t list, absl::string_view bytes);

// "ticket 7 member 2", for messages.
std::string DescribePayload(const PayloadKey& key);

}  // namespace leeway

#endif  // LEEWAY_QUEUE_STORE_DISK_PAYLOAD_PLACE_H_
