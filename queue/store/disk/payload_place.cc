#include "queue/store/disk/payload_place.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace leeway {
namespace {

constexpr size_t kKeyBytes = 1 + 8 + 4;
constexpr size_t kPlaceBytes = 4 * 8;

}  // namespace

std::string EncodePlaceKey(const PayloadKey& key) {
  std::string bytes(kKeyBytes, kPlaceKeysBegin[0]);
  for (int i = 0; i < 8; ++i) bytes[1 + i] = static_cast<char>(key.ticket >> (56 - 8 * i));
  for (int i = 0; i < 4; ++i) bytes[9 + i] = static_cast<char>(key.member >> (24 - 8 * i));
  return bytes;
}

std::string EncodePlace(const PayloadPlace& place) {
  std::string bytes(kPlaceBytes, '\0');
  const uint64_t numbers[] = {place.segment, place.offset, place.size_bytes, place.hash};
  for (size_t i = 0; i < kPlaceBytes; ++i) bytes[i] = static_cast<char>(numbers[i / 8] >> (8 * (i % 8)));
  return bytes;
}

absl::StatusOr<PayloadKey> DecodePlaceKey(absl::string_view bytes) {
  if (bytes.size() != kKeyBytes || bytes[0] != kPlaceKeysBegin[0]) {
    return absl::DataLossError(absl::StrCat("no key of a payload: ", absl::CHexEscape(bytes)));
  }
  PayloadKey key;
  for (int i = 0; i < 8; ++i) key.ticket = key.ticket << 8 | static_cast<uint8_t>(bytes[1 + i]);
  for (int i = 0; i < 4; ++i) key.member = key.member << 8 | static_cast<uint8_t>(bytes[9 + i]);
  return key;
}

absl::StatusOr<PayloadPlace> DecodePlace(absl::string_view bytes) {
  if (bytes.size() != kPlaceBytes) {
    return absl::DataLossError(absl::StrCat("no place of a payload: ", absl::CHexEscape(bytes)));
  }
  uint64_t numbers[4] = {};
  for (size_t i = 0; i < kPlaceBytes; ++i) {
    numbers[i / 8] |= static_cast<uint64_t>(static_cast<uint8_t>(bytes[i])) << (8 * (i % 8));
  }
  return PayloadPlace{numbers[0], numbers[1], numbers[2], numbers[3]};
}

std::string DescribePayload(const PayloadKey& key) {
  return absl::StrCat("ticket ", key.ticket, " member ", key.member);
}

}  // namespace leeway
