#include "weightsync/transport/bucket_codec.h"

#include "gtest/gtest.h"
#include "leeway/v1/weights.pb.h"

namespace leeway {
namespace {

TEST(BucketCodecTest, HeaderAndDataAreAProtobufMessage) {
  for (const uint64_t offset : {uint64_t{0}, uint64_t{127}, uint64_t{128}, uint64_t{1} << 40, ~uint64_t{0}}) {
    for (const size_t size : {0u, 1u, 127u, 128u, 70000u}) {
      const uint64_t hash = offset * 3 + size;
      const std::string data(size, 'd');
      const std::string message = EncodeBucketHeader(offset, hash, size) + data;
      v1::Bucket bucket;
      ASSERT_TRUE(bucket.ParseFromString(message));
      EXPECT_EQ(bucket.offset(), offset);
      EXPECT_EQ(bucket.hash(), hash);
      EXPECT_EQ(bucket.data(), data);

      const auto header =
          DecodeBucketHeader(absl::string_view(message).substr(0, kMaxBucketHeaderBytes), message.size());
      ASSERT_TRUE(header.has_value());
      EXPECT_EQ(header->offset, offset);
      EXPECT_EQ(header->hash, hash);
      EXPECT_EQ(header->data_bytes, size);
      EXPECT_EQ(header->data_begin + size, message.size());
    }
  }
}

TEST(BucketCodecTest, OtherFormsOfTheMessageAreLeftToProtobuf) {
  v1::Bucket bucket;
  bucket.set_offset(5);
  bucket.set_data("data");
  bucket.set_hash(7);  // canonical order: the hash lies behind the data
  const std::string message = bucket.SerializeAsString();
  EXPECT_FALSE(DecodeBucketHeader(message, message.size()).has_value());
}

TEST(BucketCodecTest, EveryTruncationAndLengthIsRefusedOrConsistent) {
  const std::string message = EncodeBucketHeader(300, ~uint64_t{0}, 4) + "data";
  for (size_t known = 0; known <= message.size(); ++known) {
    for (size_t claimed = 0; claimed < message.size() + 3; ++claimed) {
      const auto header = DecodeBucketHeader(absl::string_view(message).substr(0, known), claimed);
      if (header.has_value()) {
        EXPECT_EQ(claimed, message.size());
        EXPECT_LE(header->data_begin, known);
      }
    }
  }
}

TEST(BucketCodecTest, GarbageNeverReadsBeyondItsEnd) {
  uint32_t state = 1;
  for (int round = 0; round < 20000; ++round) {
    std::string garbage(round % 60, '\0');
    for (char& byte : garbage) {
      state = state * 1664525u + 1013904223u;
      byte = static_cast<char>(state >> 24);
    }
    const auto header = DecodeBucketHeader(garbage, garbage.size());
    EXPECT_TRUE(!header.has_value() || header->data_begin + header->data_bytes == garbage.size());
  }
}

}  // namespace
}  // namespace leeway
