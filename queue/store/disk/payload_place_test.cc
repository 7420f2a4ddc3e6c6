#include "queue/store/disk/payload_place.h"

#include "gtest/gtest.h"

namespace leeway {
namespace {

TEST(PayloadPlaceTest, KeysAreOrderedByTicketAndMember) {
  const PayloadKey keys[] = {{0, 0}, {0, 1}, {1, 0}, {255, 300}, {256, 0}, {1ull << 63, 0xffffffff}};
  for (size_t i = 0; i < std::size(keys); ++i) {
    const std::string bytes = EncodePlaceKey(keys[i]);
    EXPECT_GE(bytes, std::string(kPlaceKeysBegin));
    EXPECT_LT(bytes, std::string(kPlaceKeysEnd));
    EXPECT_TRUE(DecodePlaceKey(bytes).value() == keys[i]);
    if (i == 0) continue;
    EXPECT_LT(EncodePlaceKey(keys[i - 1]), bytes);
  }
  EXPECT_EQ(EncodePlaceKey({0x0102, 3}), std::string("P\0\0\0\0\0\0\x01\x02\0\0\0\x03", 13));
}

TEST(PayloadPlaceTest, PlacesComeBack) {
  const PayloadPlace place{1, 2ull << 40, 3, 0xfedcba9876543210};
  const std::string bytes = EncodePlace(place);
  EXPECT_EQ(bytes.size(), 32u);
  EXPECT_EQ(bytes.substr(24), "\x10\x32\x54\x76\x98\xba\xdc\xfe");
  EXPECT_TRUE(DecodePlace(bytes).value() == place);
  EXPECT_FALSE(place.is_inline());
}

TEST(PayloadPlaceTest, ForeignBytesAreDamage) {
  EXPECT_EQ(DecodePlaceKey("P123").status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(DecodePlaceKey(std::string(13, 'Q')).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(DecodePlace(std::string(31, 'x')).status().code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace leeway
