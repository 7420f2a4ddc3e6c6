#include "tokenizer/hugging_face_tokenizer.h"

#include <vector>

#include "absl/strings/string_view.h"
#include "base/status_macros.h"
#include "nlohmann/json.hpp"

namespace leeway {
namespace {

using Json = nlohmann::ordered_json;

// A code point below 0x800 as UTF-8.
std::string Utf8(uint32_t code_point) {
  if (code_point < 0x80) return std::string(1, static_cast<char>(code_point));
  return {static_cast<char>(0xc0 | code_point >> 6), static_cast<char>(0x80 | (code_point & 0x3f))};
}

// How byte-level tokenizers write each byte: as itself if it is printable, else as the next code point from 256 on.
std::vector<std::string> ByteNames() {
  std::vector<std::string> names;
  uint32_t unprintable = 256;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const bool is_printable = (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
    names.push_back(Utf8(is_printable ? byte : unprintable++));
  }
  return names;
}

// The names of all ids, special ones included.
Json VocabularyOf(const Tokenizer& tokenizer) {
  const std::vector<std::string> byte_names = ByteNames();
  Json vocabulary = Json::object();
  for (int32_t id = 0; id < tokenizer.vocabulary_size(); ++id) {
    std::string name;
    if (id == tokenizer.end_of_text_id()) {
      name = kEndOfTextName;
    } else if (id == tokenizer.beginning_id()) {
      name = kBeginningName;
    } else {
      // Of one byte, in both vocabularies.
      const absl::StatusOr<std::string> text = tokenizer.Decode({id});
      LEEWAY_CHECK(text.ok() && text->size() == 1) << id;
      name = byte_names[static_cast<unsigned char>(text->front())];
    }
    vocabulary[name] = id;
  }
  return vocabulary;
}

Json RemoveName(const char* name) { return {{"type", "Replace"}, {"pattern", {{"String", name}}}, {"content", ""}}; }

}  // namespace

std::string FormatTokenizerJson(const Tokenizer& tokenizer) {
  const bool is_byte = tokenizer.name() == "byte";
  Json json;
  json["version"] = "1.0";
  json["truncation"] = nullptr;
  json["padding"] = nullptr;
  // The special ids are none of these: added tokens are looked for in texts.
  json["added_tokens"] = Json::array();
  json["normalizer"] = nullptr;
  const Json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", false}, {"use_regex", false}};
  // Characters one by one; a dot would leave out the newline.
  const Json split = {
      {"type", "Split"}, {"pattern", {{"Regex", "[\\s\\S]"}}}, {"behavior", "Isolated"}, {"invert", false}};
  json["pre_tokenizer"] =
      is_byte ? byte_level : Json{{"type", "Sequence"}, {"pretokenizers", Json::array({split, byte_level})}};
  json["post_processor"] = nullptr;
  json["decoder"] = {{"type", "Sequence"},
                     {"decoders", Json::array({RemoveName(kEndOfTextName), RemoveName(kBeginningName), byte_level})}};
  if (is_byte) {
    // Without merges every byte stays a token.
    json["model"] = {{"type", "BPE"},
                     {"dropout", nullptr},
                     {"unk_token", nullptr},
                     {"continuing_subword_prefix", nullptr},
                     {"end_of_word_suffix", nullptr},
                     {"fuse_unk", false},
                     {"byte_fallback", false},
                     {"ignore_merges", false},
                     {"vocab", VocabularyOf(tokenizer)},
                     {"merges", Json::array()}};
  } else {
    // A name that the vocabulary lacks: an unknown character is an error there too.
    json["model"] = {{"type", "WordLevel"}, {"vocab", VocabularyOf(tokenizer)}, {"unk_token", "<|unknown|>"}};
  }
  return json.dump(2) + "\n";
}

std::string FormatTokenizerConfig(int64_t max_tokens) {
  Json json;
  json["tokenizer_class"] = "PreTrainedTokenizerFast";
  json["bos_token"] = kBeginningName;
  json["eos_token"] = kEndOfTextName;
  json["pad_token"] = kEndOfTextName;
  // Else some classes add a token of their own, beyond the model's vocabulary.
  json["unk_token"] = kEndOfTextName;
  json["model_max_length"] = max_tokens;
  json["clean_up_tokenization_spaces"] = false;
  // A text that spells a special token's name is a text.
  json["split_special_tokens"] = true;
  json["model_input_names"] = {"input_ids", "attention_mask"};
  return json.dump(2) + "\n";
}

}  // namespace leeway
