#ifndef LEEWAY_TOKENIZER_CHARACTER_TOKENIZER_H_
#define LEEWAY_TOKENIZER_CHARACTER_TOKENIZER_H_

#include <array>

#include "tokenizer/tokenizer.h"

namespace leeway {

// One id per character over the 64 symbols that the built-in procedural tasks use:
//   0 end-of-text · 1 beginning · 2-11 digits · 12-37 lower-case letters · 38-63 space, newline, punctuation, D G L R S
//   U
// The order is part of the format of runs and checkpoints: never renumber.
class CharacterTokenizer : public Tokenizer {
 public:
  CharacterTokenizer();

  std::string name() const override { return "character"; }
  int32_t vocabulary_size() const override { return 64; }
  int32_t end_of_text_id() const override { return 0; }
  int32_t beginning_id() const override { return 1; }
  absl::StatusOr<std::vector<int32_t>> Encode(absl::string_view text) const override;
  absl::StatusOr<std::string> Decode(absl::Span<const int32_t> ids) const override;
  std::string Fingerprint() const override;

  // The characters of ids 2, 3, ..., 63, in order.
  static absl::string_view Characters();

 private:
  // Id of each byte value; -1 = not in the vocabulary.
  std::array<int32_t, 256> id_of_byte_;
};

}  // namespace leeway

#endif  // LEEWAY_TOKENIZER_CHARACTER_TOKENIZER_H_
