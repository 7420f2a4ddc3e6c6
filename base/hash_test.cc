#include "base/hash.h"

#include "gtest/gtest.h"

namespace leeway {
namespace {

// Digests of the xxhsum 0.8.1 program (-H2 and -H3 of an empty file; the algorithm's published test vector).
TEST(HashTest, EmptyInputHasThePublishedDigest) {
  EXPECT_EQ(Digest128("", 0), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(Hash64("", 0), 0x2d06800538d394c2u);
}

TEST(HashTest, PiecesGiveTheSameDigestAsTheWhole) {
  std::string data(1000, 'x');
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<char>(i * 31);
  for (size_t cut : {size_t{0}, size_t{1}, size_t{241}, size_t{999}}) {
    Digest128Stream stream;
    stream.Update(data.data(), cut);
    stream.Update(data.data() + cut, data.size() - cut);
    EXPECT_EQ(stream.Finish(), Digest128(data.data(), data.size()));
  }
}

TEST(HashTest, OneFlippedBitChangesTheDigest) {
  std::string data(64, 'x');
  const std::string before = Digest128(data.data(), data.size());
  data[40] ^= 1;
  EXPECT_NE(Digest128(data.data(), data.size()), before);
}

}  // namespace
}  // namespace leeway
