#include "queue/store/disk/payload_place.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "queue/store/record_keys.h"

namespace leeway {
namespace {

constexpr size_t kListKeyBytes = 1 + 8;
// Segment, offset; ticket, member, size, hash.
constexpr size_t kHeadBytes = 8 + 8;
constexpr size_t kEntryBytes = 8 + 4 + 8 + 8;

void AppendNumber(uint64_t number, size_t size_bytes, std::string* bytes) {
  char buffer[8];
  for (size_t i = 0; i < size_bytes; ++i) buffer[i] = static_cast<char>(number >> (8 * i));
  bytes->append(buffer, size_bytes);
}

uint64_t TakeNumber(size_t size_bytes, absl::string_view* bytes) {
  uint64_t number = 0;
  for (size_t i = 0; i < size_bytes; ++i) number |= static_cast<uint64_t>(static_cast<uint8_t>((*bytes)[i])) << (8 * i);
  bytes->remove_prefix(size_bytes);
  return number;
}

}  // namespace

std::string ListKey(uint64_t list) { return absl::StrCat(kListKeysBegin, Fixed64(list)); }
std::string EndedKey(uint64_t list) { return absl::StrCat(kEndedKeysBegin, Fixed64(list)); }
std::string BundleKey(uint64_t list) { return Fixed64(list); }

ListEncoder::ListEncoder(uint64_t segment, uint64_t offset) {
  AppendNumber(segment, 8, &bytes_);
  AppendNumber(offset, 8, &bytes_);
}

void ListEncoder::Add(const PayloadKey& key, uint64_t size_bytes, uint64_t hash) {
  AppendNumber(key.ticket, 8, &bytes_);
  AppendNumber(key.member, 4, &bytes_);
  AppendNumber(size_bytes, 8, &bytes_);
  AppendNumber(hash, 8, &bytes_);
}

absl::StatusOr<uint64_t> DecodeListKey(absl::string_view key) {
  if (key.size() != kListKeyBytes || ReadFixed64(key, 1) == 0) {
    return absl::DataLossError(absl::StrCat("no key of a list of payloads: ", absl::CHexEscape(key)));
  }
  return ReadFixed64(key, 1);
}

absl::StatusOr<std::vector<PlacedPayload>> DecodeList(uint64_t list, absl::string_view bytes) {
  if (bytes.size() < kHeadBytes + kEntryBytes || (bytes.size() - kHeadBytes) % kEntryBytes != 0) {
    return absl::DataLossError(absl::StrCat("list ", list, " of payloads is damaged: it has ", bytes.size(), " bytes"));
  }
  PayloadPlace place;
  place.list = list;
  place.segment = TakeNumber(8, &bytes);
  place.offset = TakeNumber(8, &bytes);
  std::vector<PlacedPayload> payloads;
  payloads.reserve(bytes.size() / kEntryBytes);
  for (; !bytes.empty(); ++place.index) {
    PayloadKey key;
    key.ticket = TakeNumber(8, &bytes);
    key.member = static_cast<uint32_t>(TakeNumber(4, &bytes));
    place.size_bytes = TakeNumber(8, &bytes);
    place.hash = TakeNumber(8, &bytes);
    payloads.push_back({key, place});
    place.offset += place.size_bytes;
  }
  return payloads;
}

std::string DescribePayload(const PayloadKey& key) {
  return absl::StrCat("ticket ", key.ticket, " member ", key.member);
}

}  // namespace leeway
