#include "weightsync/manifest.h"

#include <xxhash.h>

#include <cstring>
#include <numeric>

#include "absl/strings/str_format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace leeway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// By xxHash itself, not by base/hash.
std::string XxhDigest(const void* data, size_t size) {
  const XXH128_hash_t hash = XXH3_128bits(data, size);
  return absl::StrFormat("%016x%016x", hash.high64, hash.low64);
}

v1::WeightsVersion Version(uint64_t lineage, uint64_t version) {
  v1::WeightsVersion weights;
  weights.set_lineage(lineage);
  weights.set_version(version);
  return weights;
}

std::vector<std::byte> Bytes(size_t size, unsigned seed = 1) {
  std::vector<std::byte> bytes(size);
  uint32_t state = seed;
  for (std::byte& byte : bytes) {
    state = state * 1664525u + 1013904223u;
    byte = static_cast<std::byte>(state >> 24);
  }
  return bytes;
}

TensorView View(std::string name, std::vector<int64_t> shape, std::string dtype, absl::Span<const std::byte> bytes) {
  return TensorView{std::move(name), std::move(shape), std::move(dtype), bytes};
}

v1::Manifest Layout(const std::vector<TensorView>& tensors) {
  const auto layout = MakeLayout(tensors);
  EXPECT_TRUE(layout.ok()) << layout.status();
  return *layout;
}

TEST(ManifestTest, LaysTensorsBackToBackAndHashesEach) {
  const auto a = Bytes(24, 1);
  const auto b = Bytes(6, 2);
  std::vector<std::byte> all = a;
  all.insert(all.end(), b.begin(), b.end());
  std::vector<std::byte> copy(30);
  const auto manifest =
      MakeManifest(Version(2, 7), {View("a", {2, 3}, "F32", a), View("b", {3}, "BF16", b)}, absl::MakeSpan(copy));
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  EXPECT_EQ(manifest->weights().lineage(), 2);
  EXPECT_EQ(manifest->weights().version(), 7);
  EXPECT_EQ(manifest->total_bytes(), 30);
  EXPECT_EQ(manifest->tensors(1).offset(), 24);
  EXPECT_EQ(manifest->tensors(1).byte_length(), 6);
  EXPECT_EQ(manifest->tensors(0).hash(), XxhDigest(a.data(), a.size()));
  EXPECT_EQ(manifest->tensors(1).hash(), XxhDigest(b.data(), b.size()));
  EXPECT_EQ(manifest->digest(), XxhDigest(all.data(), all.size()));
  EXPECT_EQ(copy, all);
  EXPECT_TRUE(CheckManifest(*manifest).ok()) << CheckManifest(*manifest);
  EXPECT_TRUE(VerifyBytes(*manifest, copy).ok());
}

TEST(ManifestTest, TensorsLargerThanOnePieceHashAsAWhole) {
  const auto large = Bytes(3 * (256 << 10) + 17);
  const auto manifest = MakeManifest(Version(1, 1), {View("large", {static_cast<int64_t>(large.size())}, "U8", large)});
  ASSERT_TRUE(manifest.ok());
  EXPECT_EQ(manifest->tensors(0).hash(), XxhDigest(large.data(), large.size()));
  EXPECT_EQ(manifest->digest(), manifest->tensors(0).hash());
}

TEST(ManifestTest, ZeroSizeAndScalarTensorsAreLegal) {
  const auto scalar = Bytes(8);
  const auto manifest = MakeManifest(Version(1, 1), {View("none", {4, 0, 3}, "F32", {}),
                                                     View("scalar", {}, "F64", scalar), View("end", {0}, "U8", {})});
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  EXPECT_EQ(manifest->total_bytes(), 8);
  EXPECT_EQ(manifest->tensors(0).hash(), XxhDigest("", 0));
  EXPECT_TRUE(CheckManifest(*manifest).ok());
  EXPECT_TRUE(VerifyBytes(*manifest, scalar).ok());

  const auto empty = MakeManifest(Version(1, 1), {});
  ASSERT_TRUE(empty.ok());
  EXPECT_EQ(empty->total_bytes(), 0);
  EXPECT_TRUE(CheckManifest(*empty).ok());
  EXPECT_TRUE(VerifyBytes(*empty, {}).ok());
}

TEST(ManifestTest, RefusesBadTensorsAndNamesAllOfThem) {
  const auto bytes = Bytes(4);
  const auto bad = MakeLayout({View("", {1}, "F32", bytes), View("x", {-1}, "F32", bytes), View("y", {1}, "F31", bytes),
                               View("x", {int64_t{1} << 40, int64_t{1} << 40}, "F32", bytes)});
  ASSERT_EQ(bad.status().code(), absl::StatusCode::kInvalidArgument);
  const std::string message(bad.status().message());
  EXPECT_THAT(message, HasSubstr("tensor 0 has no name"));
  EXPECT_THAT(message, HasSubstr("\"x\": impossible shape [-1]"));
  EXPECT_THAT(message, HasSubstr("unknown dtype \"F31\""));
  EXPECT_THAT(message, HasSubstr("\"x\" appears twice"));
  EXPECT_THAT(message, HasSubstr("1099511627776, 1099511627776"));
}

TEST(ManifestTest, RefusesBytesThatDoNotFillTheShapeAndUnsetVersions) {
  const auto bytes = Bytes(4);
  const auto short_bytes = MakeManifest(Version(1, 1), {View("w", {2}, "F32", bytes)});
  EXPECT_THAT(std::string(short_bytes.status().message()), HasSubstr("\"w\": 4 bytes, but F32 [2] takes 8"));
  EXPECT_EQ(MakeManifest(Version(0, 1), {}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(MakeManifest(Version(1, 0), {}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(ManifestTest, ListsEveryDifferenceOfLayout) {
  const v1::Manifest expected = Layout(
      {View("a", {2, 3}, "F32", {}), View("b", {4}, "F32", {}), View("c", {5}, "F32", {}), View("d", {6}, "F32", {})});
  const v1::Manifest announced = Layout(
      {View("a", {3, 2}, "F32", {}), View("b", {4}, "BF16", {}), View("d", {6}, "F32", {}), View("e", {}, "F64", {})});
  EXPECT_THAT(LayoutDifferences(expected, announced), ElementsAre("\"a\": expected F32 [2, 3], announced F32 [3, 2]",
                                                                  "\"b\": expected F32 [4], announced BF16 [4]",
                                                                  "missing \"c\" (F32 [5])", "surplus \"e\" (F64 [])"));
  EXPECT_THAT(LayoutDifferences(expected, expected), IsEmpty());
}

TEST(ManifestTest, ADifferentOrderIsADifference) {
  const v1::Manifest expected = Layout({View("a", {1}, "F32", {}), View("b", {1}, "F32", {})});
  const v1::Manifest announced = Layout({View("b", {1}, "F32", {}), View("a", {1}, "F32", {})});
  EXPECT_THAT(LayoutDifferences(expected, announced),
              ElementsAre(HasSubstr("expected \"a\" where \"b\""), HasSubstr("expected \"b\" where \"a\"")));
}

TEST(ManifestTest, VerifyFindsEveryFlippedBit) {
  auto a = Bytes(16, 1);
  const auto b = Bytes(16, 2);
  std::vector<std::byte> held(32);
  const auto manifest =
      MakeManifest(Version(1, 3), {View("a", {4}, "F32", a), View("b", {4}, "F32", b)}, absl::MakeSpan(held));
  ASSERT_TRUE(manifest.ok());
  for (size_t bit = 0; bit < held.size() * 8; ++bit) {
    held[bit / 8] ^= std::byte{1} << (bit % 8);
    const absl::Status status = VerifyBytes(*manifest, held);
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(std::string(status.message()), HasSubstr(bit < 128 ? "wrong tensors: \"a\"" : "wrong tensors: \"b\""));
    held[bit / 8] ^= std::byte{1} << (bit % 8);
  }
  EXPECT_TRUE(VerifyBytes(*manifest, held).ok());
  EXPECT_EQ(VerifyBytes(*manifest, absl::MakeSpan(held).subspan(1)).code(), absl::StatusCode::kDataLoss);
}

TEST(ManifestTest, AnInconsistentManifestIsRefused) {
  const auto bytes = Bytes(12);
  const v1::Manifest good = *MakeManifest(Version(1, 1), {View("a", {2}, "F32", absl::MakeSpan(bytes).subspan(0, 8)),
                                                          View("b", {1}, "F32", absl::MakeSpan(bytes).subspan(8))});
  const auto check = [&](const char* what, auto&& change) {
    v1::Manifest bad = good;
    change(&bad);
    const absl::Status status = CheckManifest(bad);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << what;
    EXPECT_THAT(std::string(status.message()), HasSubstr(what));
  };
  check("version >= 1", [](v1::Manifest* m) { m->mutable_weights()->set_version(0); });
  check("says 7 bytes", [](v1::Manifest* m) { m->mutable_tensors(0)->set_byte_length(7); });
  check("lies at 9 instead of 8", [](v1::Manifest* m) { m->mutable_tensors(1)->set_offset(9); });
  check("empty or repeated", [](v1::Manifest* m) { m->mutable_tensors(1)->set_name("a"); });
  check("hash \"XYZ\"", [](v1::Manifest* m) { m->mutable_tensors(1)->set_hash("XYZ"); });
  check("total is 13", [](v1::Manifest* m) { m->set_total_bytes(13); });
  check("digest \"\"", [](v1::Manifest* m) { m->clear_digest(); });
  check("impossible shape", [](v1::Manifest* m) { m->mutable_tensors(0)->set_shape(0, -2); });
  check("unknown dtype", [](v1::Manifest* m) { m->mutable_tensors(0)->set_dtype("F8"); });
}

TEST(ManifestTest, VersionsAreOrderedByLineageFirst) {
  EXPECT_TRUE(IsNewerVersion(Version(2, 1), Version(1, 9)));
  EXPECT_TRUE(IsNewerVersion(Version(1, 3), Version(1, 2)));
  EXPECT_FALSE(IsNewerVersion(Version(1, 2), Version(1, 2)));
  EXPECT_FALSE(IsNewerVersion(Version(1, 9), Version(2, 1)));
  EXPECT_TRUE(IsSameVersion(Version(1, 2), Version(1, 2)));
  EXPECT_FALSE(IsSameVersion(Version(1, 2), Version(2, 2)));
}

}  // namespace
}  // namespace leeway
