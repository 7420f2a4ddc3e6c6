#ifndef LEEWAY_MODEL_TRANSFORMER_KEY_VALUE_CACHE_H_
#define LEEWAY_MODEL_TRANSFORMER_KEY_VALUE_CACHE_H_

// The inside of KeyValueCache, for the transformer.

#include <cstdint>
#include <vector>

#include "model/kernels/kernels.h"
#include "model/transformer/tile_pool.h"
#include "model/transformer/transformer.h"

namespace leeway {

namespace internal {

inline AttentionShape AttentionShapeOf(const ModelShape& shape) {
  return {shape.heads, shape.key_value_heads, shape.head_dim, RoundUpToPanel(shape.head_dim)};
}

}  // namespace internal

// Blocks of 16 positions, each with the tiles of all layers: [layer][tile]. A block never moves while it is held.
template <typename Real>
struct KeyValueCache<Real>::State {
  explicit State(const ModelShape& shape) : attention(internal::AttentionShapeOf(shape)) {
    block_bytes = static_cast<size_t>(shape.layers * attention.tile_size()) * sizeof(Real);
  }
  ~State() {
    for (Real* block : tiles) internal::TilePool::Shared()->Return(block, block_bytes);
  }

  // Makes room for positions below `positions`.
  void Grow(int64_t positions) {
    const size_t wanted = static_cast<size_t>((positions + internal::kPanel - 1) / internal::kPanel);
    while (tiles.size() < wanted) tiles.push_back(static_cast<Real*>(internal::TilePool::Shared()->Take(block_bytes)));
  }

  internal::AttentionShape attention;
  size_t block_bytes = 0;
  int64_t length = 0;
  std::vector<Real*> tiles;  // one block each, as the kernels want them
};

}  // namespace leeway

#endif  // LEEWAY_MODEL_TRANSFORMER_KEY_VALUE_CACHE_H_
