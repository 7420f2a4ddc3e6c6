#ifndef LEEWAY_TOKENIZER_BYTE_TOKENIZER_H_
#define LEEWAY_TOKENIZER_BYTE_TOKENIZER_H_

#include "tokenizer/tokenizer.h"

namespace leeway {

// One id per byte: 0-255 the bytes, 256 end-of-text, 257 beginning. Encodes any text, UTF-8 or not. Decoded bytes need
// not be valid UTF-8: a policy may stop in the middle of a character.
class ByteTokenizer : public Tokenizer {
 public:
  std::string name() const override { return "byte"; }
  int32_t vocabulary_size() const override { return 258; }
  int32_t end_of_text_id() const override { return 256; }
  int32_t beginning_id() const override { return 257; }
  absl::StatusOr<std::vector<int32_t>> Encode(absl::string_view text) const override;
  absl::StatusOr<std::string> Decode(absl::Span<const int32_t> ids) const override;
  std::string Fingerprint() const override;
};

}  // namespace leeway

#endif  // LEEWAY_TOKENIZER_BYTE_TOKENIZER_H_
