#include "tokenizer/tokenizer.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "tokenizer/byte_tokenizer.h"
#include "tokenizer/character_tokenizer.h"

namespace leeway {

absl::StatusOr<std::unique_ptr<Tokenizer>> NewTokenizer(absl::string_view name) {
  if (name == "character") return std::make_unique<CharacterTokenizer>();
  if (name == "byte") return std::make_unique<ByteTokenizer>();
  return absl::InvalidArgumentError(absl::StrCat("unknown tokenizer '", name, "'; known: character, byte"));
}

absl::StatusOr<std::vector<int32_t>> LegalIds(const Tokenizer& tokenizer, absl::string_view characters,
                                              bool end_of_text_is_legal) {
  auto encoded = tokenizer.Encode(characters);
  if (!encoded.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("legal characters: ", std::string(encoded.status().message())));
  }
  std::vector<int32_t> ids = std::move(encoded).value();
  if (end_of_text_is_legal) ids.push_back(tokenizer.end_of_text_id());
  if (ids.empty()) return absl::InvalidArgumentError("legal characters: none, and end-of-text is not legal either");
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

}  // namespace leeway
