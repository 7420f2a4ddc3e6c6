#include "tokenizer/character_tokenizer.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/hash.h"

namespace leeway {
namespace {

constexpr int32_t kFirstCharacterId = 2;
constexpr char kCharacters[] =
    "0123456789"
    "abcdefghijklmnopqrstuvwxyz"
    " \n>+-=*/.,:;?!#()@|_"
    "DGLRSU";
static_assert(sizeof(kCharacters) - 1 == 62, "two special ids and 62 characters make 64 symbols");

}  // namespace

absl::string_view CharacterTokenizer::Characters() { return absl::string_view(kCharacters, sizeof(kCharacters) - 1); }

CharacterTokenizer::CharacterTokenizer() {
  id_of_byte_.fill(-1);
  int32_t id = kFirstCharacterId;
  for (const char character : Characters()) id_of_byte_[static_cast<unsigned char>(character)] = id++;
}

absl::StatusOr<std::vector<int32_t>> CharacterTokenizer::Encode(absl::string_view text) const {
  std::vector<int32_t> ids;
  ids.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    const int32_t id = id_of_byte_[static_cast<unsigned char>(text[i])];
    if (id < 0) {
      return absl::InvalidArgumentError(absl::StrCat("character '", absl::CHexEscape(text.substr(i, 1)), "' at byte ",
                                                     i, " is not in the character vocabulary (digits, a-z, ",
                                                     absl::CHexEscape(Characters().substr(36)), ")"));
    }
    ids.push_back(id);
  }
  return ids;
}

absl::StatusOr<std::string> CharacterTokenizer::Decode(absl::Span<const int32_t> ids) const {
  std::string text;
  text.reserve(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= vocabulary_size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("id ", ids[i], " at position ", i, " is outside the character vocabulary of 64"));
    }
    if (ids[i] >= kFirstCharacterId) text.push_back(kCharacters[ids[i] - kFirstCharacterId]);
  }
  return text;
}

std::string CharacterTokenizer::Fingerprint() const {
  const std::string meaning = absl::StrCat("character\n", Characters());
  return Digest128(meaning.data(), meaning.size());
}

}  // namespace leeway
