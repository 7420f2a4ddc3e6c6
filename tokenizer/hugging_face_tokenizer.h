#ifndef LEEWAY_TOKENIZER_HUGGING_FACE_TOKENIZER_H_
#define LEEWAY_TOKENIZER_HUGGING_FACE_TOKENIZER_H_

// The built-in tokenizers as files of the Hugging Face libraries, so that an exported model can be used without leeway.
// The same text gives the same ids there, and is refused there if it is refused here; the two special ids come out of
// no text, and decode to nothing.
//
// Tokens have the names of byte-level tokenizers ("\u0120" is a space), since transformers' AutoTokenizer builds the
// tokenizer of a qwen2 model anew from the names, whatever else the files say (5.24): ids are equal then for texts in
// normal form C, and unknown characters are dropped. PreTrainedTokenizerFast reads the files as they are.

#include <cstdint>
#include <string>

#include "tokenizer/tokenizer.h"

namespace leeway {

// What the ids without text are called in the files.
inline constexpr char kEndOfTextName[] = "<|end_of_text|>";
inline constexpr char kBeginningName[] = "<|beginning|>";

// tokenizer.json, for the `tokenizers` package. Deterministic.
std::string FormatTokenizerJson(const Tokenizer& tokenizer);

// tokenizer_config.json, for transformers' AutoTokenizer, which reads it beside tokenizer.json. `max_tokens`: the
// longest sequence that the model was made for.
std::string FormatTokenizerConfig(int64_t max_tokens);

}  // namespace leeway

#endif  // LEEWAY_TOKENIZER_HUGGING_FACE_TOKENIZER_H_
