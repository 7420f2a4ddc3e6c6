// That the packages read these files with equal ids is tests/parity's business; here is what the files say.

#include "tokenizer/hugging_face_tokenizer.h"

#include <set>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tokenizer/byte_tokenizer.h"
#include "tokenizer/character_tokenizer.h"

namespace leeway {
namespace {

using nlohmann::json;

// Every id once, from 0 on.
void ExpectDense(const json& vocabulary, int32_t size) {
  std::set<int32_t> ids;
  for (const auto& [name, id] : vocabulary.items()) ids.insert(id.get<int32_t>());
  ASSERT_EQ(vocabulary.size(), static_cast<size_t>(size));
  ASSERT_EQ(ids.size(), static_cast<size_t>(size));
  EXPECT_EQ(*ids.begin(), 0);
  EXPECT_EQ(*ids.rbegin(), size - 1);
}

TEST(HuggingFaceTokenizerTest, CharactersAreWordsOfOneCharacter) {
  const json file = json::parse(FormatTokenizerJson(CharacterTokenizer()));
  const json& vocabulary = file["model"]["vocab"];
  ExpectDense(vocabulary, 64);
  EXPECT_EQ(file["model"]["type"], "WordLevel");
  EXPECT_EQ(vocabulary["<|end_of_text|>"], 0);
  EXPECT_EQ(vocabulary["<|beginning|>"], 1);
  EXPECT_EQ(vocabulary["0"], 2);
  EXPECT_EQ(vocabulary["z"], 37);
  EXPECT_EQ(vocabulary["\u0120"], 38);  // space
  EXPECT_EQ(vocabulary["\u010a"], 39);  // newline
  EXPECT_EQ(vocabulary["U"], 63);
  EXPECT_FALSE(vocabulary.contains(file["model"]["unk_token"].get<std::string>()));
  EXPECT_TRUE(file["added_tokens"].empty());
}

TEST(HuggingFaceTokenizerTest, BytesHaveTheNamesOfTheByteLevelAlphabet) {
  const json file = json::parse(FormatTokenizerJson(ByteTokenizer()));
  const json& vocabulary = file["model"]["vocab"];
  ExpectDense(vocabulary, 258);
  EXPECT_EQ(file["model"]["type"], "BPE");
  EXPECT_TRUE(file["model"]["merges"].empty());
  // GPT-2's table: printable Latin-1 is itself; space is U+0120, newline U+010A, the soft hyphen (173) U+0143.
  EXPECT_EQ(vocabulary["A"], 'A');
  EXPECT_EQ(vocabulary["\u0120"], ' ');
  EXPECT_EQ(vocabulary["\u010a"], '\n');
  EXPECT_EQ(vocabulary["\u0100"], 0);
  EXPECT_EQ(vocabulary["\u00ff"], 255);
  EXPECT_EQ(vocabulary["\u0143"], 173);
  EXPECT_EQ(vocabulary["<|end_of_text|>"], 256);
  EXPECT_EQ(vocabulary["<|beginning|>"], 257);
}

TEST(HuggingFaceTokenizerTest, TheConfigurationNamesTheSpecialTokens) {
  const json config = json::parse(FormatTokenizerConfig(128));
  EXPECT_EQ(config["eos_token"], "<|end_of_text|>");
  EXPECT_EQ(config["bos_token"], "<|beginning|>");
  EXPECT_EQ(config["model_max_length"], 128);
  EXPECT_EQ(config["split_special_tokens"], true);
}

}  // namespace
}  // namespace leeway
