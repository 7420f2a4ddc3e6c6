#include "tokenizer/tokenizer.h"

#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tokenizer/byte_tokenizer.h"
#include "tokenizer/character_tokenizer.h"

namespace leeway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(NewTokenizerTest, KnowsItsNames) {
  EXPECT_EQ((*NewTokenizer("character"))->name(), "character");
  EXPECT_EQ((*NewTokenizer("byte"))->name(), "byte");
  const auto unknown = NewTokenizer("charcter");
  EXPECT_EQ(unknown.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(unknown.status().message()), HasSubstr("'charcter'; known: character, byte"));
}

TEST(CharacterTokenizerTest, HasSixtyFourSymbolsInAFixedOrder) {
  const CharacterTokenizer tokenizer;
  EXPECT_EQ(tokenizer.vocabulary_size(), 64);
  EXPECT_EQ(tokenizer.end_of_text_id(), 0);
  EXPECT_EQ(tokenizer.beginning_id(), 1);
  // Counted by hand from the table in the header.
  EXPECT_THAT(*tokenizer.Encode("09az \n>_DGLRSU"), ElementsAre(2, 11, 12, 37, 38, 39, 40, 57, 58, 59, 60, 61, 62, 63));
  const absl::string_view characters = CharacterTokenizer::Characters();
  EXPECT_EQ(characters.size(), 62u);
  EXPECT_EQ(std::set<char>(characters.begin(), characters.end()).size(), 62u);
}

TEST(CharacterTokenizerTest, TextSurvivesARoundTripAndSpecialIdsBecomeNothing) {
  const CharacterTokenizer tokenizer;
  const absl::string_view all = CharacterTokenizer::Characters();
  std::vector<int32_t> ids = *tokenizer.Encode(all);
  EXPECT_EQ(*tokenizer.Decode(ids), std::string(all));
  ids.insert(ids.begin(), tokenizer.beginning_id());
  ids.push_back(tokenizer.end_of_text_id());
  EXPECT_EQ(*tokenizer.Decode(ids), std::string(all));
  EXPECT_TRUE(tokenizer.Encode("")->empty());
  EXPECT_EQ(*tokenizer.Decode({}), "");
}

TEST(CharacterTokenizerTest, NamesTheUnknownCharacterAndItsPlace) {
  const CharacterTokenizer tokenizer;
  const auto upper = tokenizer.Encode("abcX");
  EXPECT_EQ(upper.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(upper.status().message()), HasSubstr("character 'X' at byte 3"));
  EXPECT_THAT(std::string(tokenizer.Encode("a\xc3\xa9").status().message()), HasSubstr("character '\\xc3' at byte 1"));
  EXPECT_THAT(std::string(tokenizer.Encode(absl::string_view("\0", 1)).status().message()),
              HasSubstr("'\\x00' at byte 0"));
}

TEST(CharacterTokenizerTest, NamesTheIdOutsideTheVocabulary) {
  const CharacterTokenizer tokenizer;
  EXPECT_THAT(std::string(tokenizer.Decode({2, 64}).status().message()), HasSubstr("id 64 at position 1"));
  EXPECT_THAT(std::string(tokenizer.Decode({-1}).status().message()), HasSubstr("id -1 at position 0"));
}

TEST(ByteTokenizerTest, EveryByteIsItsOwnId) {
  const ByteTokenizer tokenizer;
  EXPECT_EQ(tokenizer.vocabulary_size(), 258);
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all.push_back(static_cast<char>(byte));
  const std::vector<int32_t> ids = *tokenizer.Encode(all);
  ASSERT_EQ(ids.size(), 256u);
  for (int byte = 0; byte < 256; ++byte) EXPECT_EQ(ids[byte], byte);
  EXPECT_EQ(*tokenizer.Decode(ids), all);
  EXPECT_EQ(*tokenizer.Decode({257, 'h', 'i', 256}), "hi");
  EXPECT_THAT(std::string(tokenizer.Decode({258}).status().message()), HasSubstr("id 258 at position 0"));
  EXPECT_FALSE(tokenizer.Decode({-7}).ok());
}

TEST(TokenizerTest, FingerprintsTellVocabulariesApartAndStayTheSame) {
  EXPECT_EQ(CharacterTokenizer().Fingerprint(), (*NewTokenizer("character"))->Fingerprint());
  EXPECT_NE(CharacterTokenizer().Fingerprint(), ByteTokenizer().Fingerprint());
  EXPECT_EQ(CharacterTokenizer().Fingerprint().size(), 32u);
}

TEST(LegalIdsTest, AreAscendingUniqueAndIncludeEndOfTextOnlyIfLegal) {
  const CharacterTokenizer tokenizer;
  EXPECT_THAT(*LegalIds(tokenizer, "UDLRUU", false), ElementsAre(58, 60, 61, 63));
  EXPECT_THAT(*LegalIds(tokenizer, "10", true), ElementsAre(0, 2, 3));
  EXPECT_THAT(*LegalIds(ByteTokenizer(), "a", true), ElementsAre(97, 256));
  EXPECT_THAT(*LegalIds(tokenizer, "", true), ElementsAre(0));
}

TEST(LegalIdsTest, RefusesASetThatNothingCanBeSampledFrom) {
  const CharacterTokenizer tokenizer;
  EXPECT_THAT(std::string(LegalIds(tokenizer, "", false).status().message()), HasSubstr("none"));
  EXPECT_THAT(std::string(LegalIds(tokenizer, "aQ", false).status().message()),
              HasSubstr("legal characters: character 'Q'"));
}

}  // namespace
}  // namespace leeway
