#include "formats/safetensors_header.h"

#include "base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace leeway::internal {
namespace {

using ::testing::ElementsAre;

TEST(SafetensorsDTypeTest, KnowsTheSizesOfTheFormat) {
  EXPECT_EQ(SafetensorsDTypeBits("BOOL"), 8);
  EXPECT_EQ(SafetensorsDTypeBits("F8_E8M0"), 8);
  EXPECT_EQ(SafetensorsDTypeBits("F6_E3M2"), 6);
  EXPECT_EQ(SafetensorsDTypeBits("F4"), 4);
  EXPECT_EQ(SafetensorsDTypeBits("BF16"), 16);
  EXPECT_EQ(SafetensorsDTypeBits("F32"), 32);
  EXPECT_EQ(SafetensorsDTypeBits("C64"), 64);
  EXPECT_EQ(SafetensorsDTypeBits("f32"), 0);
  EXPECT_EQ(SafetensorsDTypeBits(""), 0);
}

TEST(SafetensorsHeaderTest, FormattedHeadersAreReadBack) {
  SafetensorsHeader header;
  header.metadata = {{"quote \"", "line\nbreak"}, {"é", ""}};
  header.entries = {{"a", "F64", {2, 1}, 0, 16}, {"b/\"", "U8", {}, 16, 17}};
  const auto text = FormatSafetensorsHeader(header);
  ASSERT_TRUE(text.ok());
  EXPECT_EQ(text->size() % 8, 0u);
  const auto read = ParseSafetensorsHeader(*text, 17);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->metadata, header.metadata);
  ASSERT_EQ(read->entries.size(), 2u);
  EXPECT_EQ(read->entries[1].name, "b/\"");
  EXPECT_THAT(read->entries[0].shape, ElementsAre(2, 1));
  EXPECT_FALSE(ParseSafetensorsHeader(*text, 16).ok());
  header.metadata = {{"k", "\xc3"}};
  EXPECT_FALSE(FormatSafetensorsHeader(header).ok());
}

TEST(SafetensorsHeaderTest, MessagesStayReadableWhateverTheNames) {
  const std::string long_name(100'000, 'n');
  const auto message_of = [](const std::string& text) {
    return std::string(ParseSafetensorsHeader(text, 0).status().message());
  };
  EXPECT_LT(message_of("{\"" + long_name + "\":{}}").size(), 300u);
  EXPECT_LT(message_of("{\"a\":{\"" + long_name + "\":1}}").size(), 400u);
  EXPECT_LT(message_of("{\"__metadata__\":{\"" + long_name + "\":1}}").size(), 400u);
  EXPECT_THAT(message_of("{\"a\\u0001\\nb\":{}}"), testing::HasSubstr("tensor 'a\\x01\\nb' has no dtype"));
  EXPECT_THAT(message_of("{\"größe\":{}}"), testing::HasSubstr("tensor 'größe' has no dtype"));
}

TEST(SafetensorsHeaderTest, FieldsOfAnEntryMayComeInAnyOrder) {
  const auto read = ParseSafetensorsHeader(
      R"({ "b" : {"data_offsets":[8,12], "shape":[ ], "dtype":"U32"}, "a":{"shape":[1],"data_offsets":[0,8],"dtype":"F64"} })",
      12);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->entries[0].name, "a");
  EXPECT_EQ(read->entries[1].name, "b");
}

// Checkpoints of a million tensors exist; nothing here may be quadratic.
TEST(SafetensorsHeaderTest, ManyTensorsAreRead) {
  SafetensorsHeader header;
  for (uint64_t i = 0; i < 100'000; ++i) header.entries.push_back({"layer." + std::to_string(i), "U8", {1}, i, i + 1});
  const auto text = FormatSafetensorsHeader(header);
  ASSERT_TRUE(text.ok());
  const auto read = ParseSafetensorsHeader(*text, 100'000);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->entries.size(), 100'000u);
  EXPECT_EQ(read->entries[99'999].name, "layer.99999");
}

// What damage leaves readable still keeps every promise that the reader makes about a header.
TEST(SafetensorsHeaderTest, RandomDamageIsRefusedOrKeepsThePromises) {
  SafetensorsHeader header;
  header.metadata = {{"k", "v"}};
  header.entries = {
      {"x", "I64", {2}, 0, 16}, {"norm", "F32", {4}, 16, 32}, {"m", "BF16", {2, 3}, 32, 44}, {"e", "U8", {0}, 44, 44}};
  const std::string good = *FormatSafetensorsHeader(header);
  const std::string json_bytes = "{}[],:\"0123456789-eE. \\ntf";
  RandomStream random({.seed = 7});
  int read_count = 0;
  for (int round = 0; round < 50'000; ++round) {
    std::string text = good;
    if (random.NextBelow(8) == 0) text.resize(random.NextBelow(text.size()));
    for (uint64_t flips = random.NextBelow(4); flips > 0 && !text.empty(); --flips) {
      char& byte = text[random.NextBelow(text.size())];
      byte = random.NextBelow(4) == 0 ? static_cast<char>(random.NextBelow(256))
                                      : json_bytes[random.NextBelow(json_bytes.size())];
    }
    const auto read = ParseSafetensorsHeader(text, 44);
    if (!read.ok()) {
      EXPECT_FALSE(read.status().message().empty());
      continue;
    }
    ++read_count;
    uint64_t at = 0;
    for (const SafetensorsEntry& entry : read->entries) {
      EXPECT_EQ(entry.begin, at);
      at = entry.end;
      int64_t bits = SafetensorsDTypeBits(entry.dtype);
      for (const int64_t dimension : entry.shape) bits *= dimension;
      EXPECT_EQ(static_cast<uint64_t>(bits), (entry.end - entry.begin) * 8);
    }
    EXPECT_EQ(at, 44u);
  }
  EXPECT_GT(read_count, 1000);
  EXPECT_LT(read_count, 40'000);
}

}  // namespace
}  // namespace leeway::internal
