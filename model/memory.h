#ifndef LEEWAY_MODEL_MEMORY_H_
#define LEEWAY_MODEL_MEMORY_H_

// What a Transformer holds, said before it is made: the terms of `leeway check`. Tests compare with what it allocates.

#include <cstdint>

#include "absl/types/span.h"
#include "model/shape.h"
#include "model/transformer/transformer.h"

namespace leeway {

// A tensor-parallel rank, for formulas.
struct TensorRank {
  int64_t rank = 0;
  int64_t size = 1;
  bool sequence = false;
};

// Bytes that rank keeps between Score and Backward for sequences of these lengths, in Reals of `real_bytes` each:
//
//   a row:              H                 the stream behind the last layer
//   a row and layer:    2 H' + (a + 2g) d + a d + 2 F     input', middle', q k v, attention, gate and up
//                     + (a + g) d       with norms over heads (Qwen3): queries and keys before them
//   a sequence, layer:  2 g d (length rounded up to 16)   keys and values by tiles
//
// H hidden, d head size and F intermediate are rounded up to 16; a heads, g key/value heads and F are the rank's; H'
// counts only the rank's rows with sequence parallelism. Selective recomputation keeps gate and up of one layer, full
// recomputation everything but the input of one layer. Scratch of the passes is not counted: it does not grow with the
// layers.
int64_t ActivationBytes(const ModelShape& shape, const TensorRank& rank, Recompute recompute,
                        absl::Span<const int64_t> lengths, int64_t real_bytes);

// Bytes of the weights as the kernels read them, beside the parameters in flat order: every matrix packed, with
// `backward` also those of one layer and a part of the head transposed, and the norms; the embedding's rows too unless
// the parameters are streamed, when only one layer is there at a time. Norms and biases are Reals in every format.
int64_t PackedWeightBytes(const ModelShape& shape, const TensorRank& rank, bool is_streamed, bool backward,
                          int64_t real_bytes, WeightFormat format = WeightFormat::kReal);

// How a model of bf16 weights had best keep them: as Reals where all of them stay in the cache anyway, which the
// kernels then need not widen. No bit depends on it.
WeightFormat FormatOfBf16(const ModelShape& shape);
// The same for a model whose weights may be bf16 or not.
inline WeightFormat WeightFormatOf(const ModelShape& shape, bool is_bf16) {
  return is_bf16 ? FormatOfBf16(shape) : WeightFormat::kReal;
}

}  // namespace leeway

#endif  // LEEWAY_MODEL_MEMORY_H_
