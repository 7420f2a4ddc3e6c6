#include "queue/store/disk/payload_place.h"

#include "gtest/gtest.h"

namespace leeway {
namespace {

std::string Bytes(std::initializer_list<int> bytes) { return std::string(bytes.begin(), bytes.end()); }

TEST(PayloadPlaceTest, KeysRiseWithTheNumber) {
  const uint64_t numbers[] = {1, 2, 255, 256, 1ull << 63};
  for (size_t i = 0; i < std::size(numbers); ++i) {
    EXPECT_EQ(DecodeListKey(ListKey(numbers[i])).value(), numbers[i]);
    EXPECT_GE(ListKey(numbers[i]), std::string(kListKeysBegin));
    EXPECT_LT(ListKey(numbers[i]), std::string(kListKeysEnd));
    EXPECT_GE(EndedKey(numbers[i]), std::string(kEndedKeysBegin));
    EXPECT_LT(EndedKey(numbers[i]), std::string(kEndedKeysEnd));
    if (i == 0) continue;
    EXPECT_LT(ListKey(numbers[i - 1]), ListKey(numbers[i]));
    EXPECT_LT(BundleKey(numbers[i - 1]), BundleKey(numbers[i]));
  }
  EXPECT_EQ(ListKey(0x0102), "P" + Bytes({0, 0, 0, 0, 0, 0, 1, 2}));
  EXPECT_EQ(BundleKey(0x0102), Bytes({0, 0, 0, 0, 0, 0, 1, 2}));
}

TEST(PayloadPlaceTest, PayloadsLieOneBehindTheOther) {
  ListEncoder encoder(/*segment=*/9, /*offset=*/1ull << 40);
  encoder.Add({7, 3}, 100, 0xfedcba9876543210);
  encoder.Add({1ull << 63, 0xffffffff}, 0, 1);
  encoder.Add({8, 0}, 5, 2);
  EXPECT_EQ(encoder.bytes().size(), 16u + 3 * 28);
  EXPECT_EQ(encoder.bytes().substr(0, 28), Bytes({9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0,  //
                                                  7, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0}));
  const std::vector<PlacedPayload> payloads = DecodeList(4, encoder.bytes()).value();
  ASSERT_EQ(payloads.size(), 3u);
  EXPECT_TRUE(payloads[0].key == (PayloadKey{7, 3}));
  EXPECT_TRUE(payloads[0].place == (PayloadPlace{4, 0, 9, 1ull << 40, 100, 0xfedcba9876543210}));
  EXPECT_TRUE(payloads[1].key == (PayloadKey{1ull << 63, 0xffffffff}));
  EXPECT_TRUE(payloads[1].place == (PayloadPlace{4, 1, 9, (1ull << 40) + 100, 0, 1}));
  EXPECT_TRUE(payloads[2].place == (PayloadPlace{4, 2, 9, (1ull << 40) + 100, 5, 2}));
  EXPECT_FALSE(payloads[0].place.is_bundled());
  EXPECT_TRUE(DecodeList(4, ListEncoder(0, 0).bytes() + encoder.bytes().substr(16)).value()[2].place.is_bundled());
}

TEST(PayloadPlaceTest, ForeignBytesAreDamage) {
  EXPECT_EQ(DecodeListKey("P123").status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(DecodeListKey(ListKey(0)).status().code(), absl::StatusCode::kDataLoss);
  ListEncoder encoder(9, 0);
  EXPECT_EQ(DecodeList(1, encoder.bytes()).status().code(), absl::StatusCode::kDataLoss);  // lists nothing
  encoder.Add({7, 3}, 100, 1);
  for (size_t size = 0; size < encoder.bytes().size(); ++size) {
    EXPECT_EQ(DecodeList(1, encoder.bytes().substr(0, size)).status().code(), absl::StatusCode::kDataLoss) << size;
  }
}

}  // namespace
}  // namespace leeway
