#ifndef LEEWAY_TOKENIZER_TOKENIZER_H_
#define LEEWAY_TOKENIZER_TOKENIZER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace leeway {

// Text to token ids and back. Immutable and thread-safe; never blocks.
//
// Ids are 0 .. vocabulary_size()-1. Two of them stand for no text: end-of-text (the policy samples it to end its turn)
// and beginning (the first id of every episode). Encode never yields them, so text can not smuggle them in.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // "character" or "byte".
  virtual std::string name() const = 0;
  virtual int32_t vocabulary_size() const = 0;
  virtual int32_t end_of_text_id() const = 0;
  virtual int32_t beginning_id() const = 0;

  // INVALID_ARGUMENT: names the first character that is not in the vocabulary and its position (in bytes, from 0).
  virtual absl::StatusOr<std::vector<int32_t>> Encode(absl::string_view text) const = 0;
  // End-of-text and beginning become nothing. INVALID_ARGUMENT: names the first id outside the vocabulary and its
  // position.
  virtual absl::StatusOr<std::string> Decode(absl::Span<const int32_t> ids) const = 0;

  // Digest of what every id means. Sides that exchange ids compare it before they start.
  virtual std::string Fingerprint() const = 0;
};

// A built-in tokenizer. INVALID_ARGUMENT: an unknown name; the message lists the known ones.
absl::StatusOr<std::unique_ptr<Tokenizer>> NewTokenizer(absl::string_view name);

// The ids of a set of characters, strictly ascending, with end-of-text when `end_of_text_is_legal`: the legal set of a
// sampler. INVALID_ARGUMENT: an unknown character, or a set without any id.
absl::StatusOr<std::vector<int32_t>> LegalIds(const Tokenizer& tokenizer, absl::string_view characters,
                                              bool end_of_text_is_legal);

}  // namespace leeway

#endif  // LEEWAY_TOKENIZER_TOKENIZER_H_
