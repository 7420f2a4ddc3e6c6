#include "model/memory.h"

#include "model/kernels/kernels.h"
#include "model/tensor_parallel.h"
#include "model/transformer/transformer_state.h"

namespace leeway {

using internal::kHeadBlock;
using internal::RoundUpToPanel;

int64_t ActivationBytes(const ModelShape& shape, const TensorRank& rank, Recompute recompute,
                        absl::Span<const int64_t> lengths, int64_t real_bytes) {
  const ModelShape shard = TensorShard(shape, rank.rank, rank.size);
  const int64_t hidden = RoundUpToPanel(shape.hidden);
  const int64_t head = RoundUpToPanel(shape.head_dim);
  int64_t rows = 0;
  int64_t tiled_rows = 0;
  for (const int64_t length : lengths) {
    rows += length;
    tiled_rows += RoundUpToPanel(length);
  }
  const int64_t own_rows = rank.sequence ? rows * (rank.rank + 1) / rank.size - rows * rank.rank / rank.size : rows;
  const int64_t inside_layers = recompute == Recompute::kFull ? 1 : shape.layers;
  const int64_t wide_layers = recompute == Recompute::kNone ? shape.layers : 1;
  const int64_t raw_heads = shape.has_qk_norm() ? shard.heads + shard.key_value_heads : 0;
  const int64_t inside = own_rows * hidden + rows * (2 * shard.heads + 2 * shard.key_value_heads + raw_heads) * head +
                         tiled_rows * 2 * shard.key_value_heads * head;
  const int64_t values = rows * hidden + shape.layers * own_rows * hidden + inside_layers * inside +
                         wide_layers * rows * 2 * RoundUpToPanel(shard.intermediate);
  return values * real_bytes;
}

int64_t PackedWeightBytes(const ModelShape& shape, const TensorRank& rank, bool is_streamed, bool backward,
                          int64_t real_bytes, WeightFormat format) {
  const ModelShape shard = TensorShard(shape, rank.rank, rank.size);
  const int64_t hidden = RoundUpToPanel(shape.hidden);
  const int64_t head = RoundUpToPanel(shape.head_dim);
  const int64_t intermediate = RoundUpToPanel(shard.intermediate);
  const int64_t vocabulary = RoundUpToPanel(shard.vocabulary);
  const int64_t query = shard.heads * head;
  const int64_t qkv = query + 2 * shard.key_value_heads * head;
  const int64_t layers = is_streamed ? 1 : shape.layers;
  // Outputs are padded, the depth is not; transposed it is the other way round.
  int64_t matrices =
      layers * (qkv * shape.hidden + hidden * query + 2 * intermediate * shape.hidden + hidden * shard.intermediate);
  matrices += vocabulary * shape.hidden;
  if (backward) {
    matrices += hidden * qkv + query * hidden + hidden * 2 * intermediate + intermediate * hidden;
    matrices += hidden * (vocabulary <= kHeadBlock ? vocabulary : kHeadBlock + vocabulary % kHeadBlock);
  }
  if (!is_streamed) matrices += shard.vocabulary * shape.hidden;
  const int64_t vectors =
      hidden + layers * (2 * hidden + (shape.has_qkv_bias() ? qkv : 0) + (shape.has_qk_norm() ? 2 * head : 0));
  return matrices * (format == WeightFormat::kBf16 ? 2 : real_bytes) + vectors * real_bytes;
}

WeightFormat FormatOfBf16(const ModelShape& shape) {
  return shape.ParameterCount() * static_cast<int64_t>(sizeof(float)) <= internal::kCachedWeightBytes
             ? WeightFormat::kRoundedReal
             : WeightFormat::kBf16;
}

}  // namespace leeway
