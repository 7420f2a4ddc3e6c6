#include "tokenizer/byte_tokenizer.h"

#include "absl/strings/str_cat.h"
#include "base/hash.h"

namespace leeway {

absl::StatusOr<std::vector<int32_t>> ByteTokenizer::Encode(absl::string_view text) const {
  std::vector<int32_t> ids;
  ids.reserve(text.size());
  for (const char byte : text) ids.push_back(static_cast<unsigned char>(byte));
  return ids;
}

absl::StatusOr<std::string> ByteTokenizer::Decode(absl::Span<const int32_t> ids) const {
  std::string text;
  text.reserve(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= vocabulary_size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("id ", ids[i], " at position ", i, " is outside the byte vocabulary of 258"));
    }
    if (ids[i] < 256) text.push_back(static_cast<char>(ids[i]));
  }
  return text;
}

std::string ByteTokenizer::Fingerprint() const {
  constexpr char kMeaning[] = "byte\n256 end-of-text\n257 beginning";
  return Digest128(kMeaning, sizeof(kMeaning) - 1);
}

}  // namespace leeway
