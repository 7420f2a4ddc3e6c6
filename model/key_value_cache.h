#ifndef LEEWAY_MODEL_KEY_VALUE_CACHE_H_
#define LEEWAY_MODEL_KEY_VALUE_CACHE_H_

// The inside of KeyValueCache, for the transformer.

#include <cstdint>
#include <vector>

#include "model/buffer.h"
#include "model/kernels.h"
#include "model/transformer.h"

namespace leeway {

namespace internal {

inline AttentionShape AttentionShapeOf(const ModelShape& shape) {
  return {shape.heads, shape.key_value_heads, shape.head_dim, RoundUpToPanel(shape.head_dim)};
}

}  // namespace internal

// Blocks of 16 positions, each with the tiles of all layers: [layer][tile]. A block never moves once it is allocated.
template <typename Real>
struct KeyValueCache<Real>::State {
  int64_t layers = 0;
  internal::AttentionShape attention;
  int64_t length = 0;
  std::vector<internal::Buffer<Real>> blocks;
  std::vector<Real*> tiles;  // data of blocks, as the kernels want it

  // Makes room for positions below `positions`.
  void Grow(int64_t positions) {
    const size_t wanted = static_cast<size_t>((positions + internal::kPanel - 1) / internal::kPanel);
    while (blocks.size() < wanted) {
      blocks.emplace_back();
      tiles.push_back(blocks.back().Reserve(layers * attention.tile_size()));
    }
  }
};

}  // namespace leeway

#endif  // LEEWAY_MODEL_KEY_VALUE_CACHE_H_
