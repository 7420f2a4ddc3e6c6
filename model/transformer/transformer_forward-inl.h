// How rows run through the layers, for Decode and Score alike. Included by transformer.cc only.

#ifndef LEEWAY_MODEL_TRANSFORMER_TRANSFORMER_FORWARD_INL_H_
#define LEEWAY_MODEL_TRANSFORMER_TRANSFORMER_FORWARD_INL_H_

#include <algorithm>
#include <atomic>

#include "base/status_macros.h"
#include "model/transformer/transformer_state.h"

namespace leeway {
namespace internal {

// Rows of a block that one thread runs through all layers: its activations then stay in the second-level cache.
constexpr int64_t kBlockRows = 256;
// Multiply-adds that are worth waking a thread for.
constexpr int64_t kWorthSplitting = 50'000;

}  // namespace internal

template <typename Real>
void Transformer<Real>::State::RunParts(int64_t parts, const std::function<void(int64_t)>& body) {
  parallel->Run(parts, 1, [&body](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) body(part);
  });
}

template <typename Real>
void Transformer<Real>::State::ForBlocks(
    const std::function<void(const internal::RowBlock&, int64_t, ParallelFor*)>& body) {
  if (!rows.blocks_in_parallel) {
    for (const internal::RowBlock& block : rows.blocks) body(block, 0, parallel);
    return;
  }
  const int64_t count = static_cast<int64_t>(rows.blocks.size());
  std::atomic<int64_t> next{0};
  RunParts(std::min<int64_t>(parallel->threads(), count), [&](int64_t part) {
    for (int64_t i = next++; i < count; i = next++) body(rows.blocks[i], part, nullptr);
  });
}

template <typename Real>
void Transformer<Real>::State::Split(ParallelFor* inner, int64_t count, int64_t minimum,
                                     const std::function<void(int64_t, int64_t)>& body) {
  if (inner == nullptr) {
    if (count > 0) body(0, count);
  } else {
    inner->Run(count, std::max<int64_t>(minimum, 1), body);
  }
}

template <typename Real>
void Transformer<Real>::State::Multiply(ParallelFor* inner, const Real* x, int64_t x_stride, int64_t row_count,
                                        const internal::PackedMatrix<Real>& matrix, int64_t depth_blocks,
                                        Real* y) const {
  const int64_t depth = matrix.depth();
  const int64_t y_stride = matrix.padded_outputs();
  const int64_t panels = matrix.panels();
  if (inner != nullptr && panels < 4 * inner->threads() && row_count > panels) {
    Split(inner, row_count, internal::kWorthSplitting / (panels * internal::kPanel * depth) + 1,
          [&](int64_t begin, int64_t end) {
            matrix.Product(*kernels, x + begin * x_stride, x_stride, end - begin, depth_blocks, 0, panels,
                           y + begin * y_stride);
          });
    return;
  }
  Split(inner, panels, internal::kWorthSplitting / (row_count * internal::kPanel * depth) + 1,
        [&](int64_t begin, int64_t end) {
          matrix.Product(*kernels, x, x_stride, row_count, depth_blocks, begin, end, y);
        });
}

template <typename Real>
void Transformer<Real>::State::CutBlocks() {
  const int64_t threads = parallel->threads();
  const int64_t total = rows.row_count();
  const int64_t sequences = rows.sequence_count();
  int64_t longest_run = 0;
  for (int64_t i = 0; i < sequences; ++i) longest_run = std::max(longest_run, rows.starts[i + 1] - rows.starts[i]);
  const bool weights_are_cached =
      shape.ParameterCount() * static_cast<int64_t>(sizeof(Real)) <= internal::kCachedWeightBytes;
  const bool enough_rows = total >= (weights_are_cached ? 8 : 128) * threads;
  const bool balanced = longest_run * threads <= total + total / 4;
  // Ranks exchange rows between the products of a layer, so they go through it together, in one block.
  rows.blocks_in_parallel = shard_exchange.size() == 1 && (threads == 1 || (enough_rows && balanced));
  const int64_t target = rows.blocks_in_parallel ? std::min(internal::kBlockRows, (total + threads - 1) / threads)
                                                 : std::max<int64_t>(total, 1);
  rows.blocks.clear();
  rows.largest_block = 0;
  for (int64_t i = 0; i < sequences;) {
    internal::RowBlock block{rows.starts[i], rows.starts[i], i, i};
    // A sequence joins the block if that leaves it nearer to the target.
    while (block.sequence_end < sequences) {
      const int64_t end = rows.starts[block.sequence_end + 1];
      if (block.row_end > block.row_begin && end - block.row_begin > target) break;
      block.row_end = end;
      ++block.sequence_end;
    }
    i = block.sequence_end;
    rows.largest_block = std::max(rows.largest_block, block.row_end - block.row_begin);
    if (block.row_end > block.row_begin) rows.blocks.push_back(block);
  }
}

template <typename Real>
void Transformer<Real>::State::ReserveScratch() {
  for (size_t i = 0; i < scratch.size(); ++i) {
    internal::BlockScratch<Real>& part = scratch[i];
    part.scores.Reserve(internal::RoundUpToPanel(rows.longest));
    // Threads that share one block share the first part's scratch.
    if (i > 0 && !rows.blocks_in_parallel) continue;
    part.hidden.Reserve(rows.largest_block * hidden_width());
    part.activated.Reserve(rows.largest_block * intermediate_width());
    if (keep) continue;
    part.qkv.Reserve(rows.largest_block * attention.qkv_width());
    part.attention.Reserve(rows.largest_block * attention.query_width());
    part.middle.Reserve(rows.largest_block * hidden_width());
    part.gate_up.Reserve(rows.largest_block * 2 * intermediate_width());
  }
}

template <typename Real>
internal::LayerActivations<Real> Transformer<Real>::State::Kept(int64_t layer, int64_t row) {
  const int64_t own_count = OwnRows(rows.row_count()).count;
  const int64_t input = layer * own_count + row;
  const bool is_whole = recompute != Recompute::kFull;
  const int64_t middle = (is_whole ? layer : 0) * own_count + row;
  const int64_t inside = (is_whole ? layer : 0) * rows.row_count() + row;
  const int64_t wide = (recompute == Recompute::kNone ? layer : 0) * rows.row_count() + row;
  return {kept_stream.data() + input * hidden_width(),
          kept_qkv.data() + inside * attention.qkv_width(),
          kept_attention.data() + inside * attention.query_width(),
          kept_middle.data() + middle * hidden_width(),
          kept_gate_up.data() + wide * 2 * intermediate_width(),
          shape.has_qk_norm() ? kept_raw_queries.data() + inside * attention.query_width() : nullptr,
          shape.has_qk_norm() ? kept_raw_keys.data() + inside * key_width() : nullptr};
}

template <typename Real>
absl::Status Transformer<Real>::State::Forward() {
  if (stream == nullptr) {
    // Block by block, so that a block's rows stay in the cache from layer to layer.
    ForBlocks([this](const internal::RowBlock& block, int64_t part, ParallelFor* inner) {
      EmbedBlock(block, part);
      for (int64_t layer = 0; layer < shape.layers; ++layer) ForwardLayerOfBlock(layer, block, part, inner);
    });
  } else {
    const int64_t last = static_cast<int64_t>(units.size()) - 1;
    LEEWAY_ASSIGN_OR_RETURN(embedding_rows, Acquire(0, 1));
    ForBlocks([this](const internal::RowBlock& block, int64_t part, ParallelFor*) { EmbedBlock(block, part); });
    if (shape.tied_head) PackHead(embedding_rows);
    for (int64_t layer = 0; layer < shape.layers; ++layer) {
      LEEWAY_RETURN_IF_ERROR(LoadLayer(layer, 2 + layer));
      ForBlocks([this, layer](const internal::RowBlock& block, int64_t part, ParallelFor* inner) {
        ForwardLayerOfBlock(layer, block, part, inner);
      });
    }
    LEEWAY_ASSIGN_OR_RETURN(const WeightSpan<Real> flat, Acquire(last, -1));
    CopyWeights(flat, 0, shape.hidden, final_norm());
    if (!shape.tied_head) PackHead(flat.subspan(shape.hidden, flat.size() - shape.hidden));
  }
  shard_exchange.GatherRows(final_stream.data(), rows.row_count(), hidden_width());
  return shard_exchange.status();
}

template <typename Real>
void Transformer<Real>::State::EmbedBlock(const internal::RowBlock& block, int64_t part) {
  const int64_t width = hidden_width();
  const int64_t count = block.row_end - block.row_begin;
  const internal::RowRange own = OwnRows(count);
  Real* const input =
      keep ? Kept(0, block.row_begin).input : final_stream.data() + (block.row_begin + own.begin) * width;
  Real* const embedded = shard_exchange.splits_rows() ? scratch[part].hidden.data() : input;
  for (int64_t row = block.row_begin; row < block.row_end; ++row) {
    const int64_t id = rows.tokens[row] - vocabulary_begin;
    Real* const to = embedded + (row - block.row_begin) * width;
    const bool is_here = id >= 0 && id < shape.vocabulary;
    if (is_here) CopyWeights(embedding_rows, id * shape.hidden, shape.hidden, to);
    std::fill(to + (is_here ? shape.hidden : 0), to + width, Real(0));
  }
  shard_exchange.SumRows(embedded, count, width);
  if (embedded != input) std::copy_n(embedded + own.begin * width, own.count * width, input);
}

template <typename Real>
void Transformer<Real>::State::ForwardLayerOfBlock(int64_t layer, const internal::RowBlock& block, int64_t part,
                                                   ParallelFor* inner) {
  const internal::RowRange own_rows = OwnRows(block.row_end - block.row_begin);
  internal::BlockScratch<Real>& own = scratch[part];
  Real* const final_rows = final_stream.data() + (block.row_begin + own_rows.begin) * hidden_width();
  Real* next = final_rows;
  internal::LayerActivations<Real> a{final_rows, own.qkv.data(), own.attention.data(), own.middle.data(),
                                     own.gate_up.data()};
  if (keep) {
    a = Kept(layer, block.row_begin);
    if (layer + 1 < shape.layers) next = Kept(layer + 1, block.row_begin).input;
  }
  ForwardLayer(layer, block, a, own.hidden.data(), own.activated.data(), next, /*is_recompute=*/false, part, inner);
}

template <typename Real>
void Transformer<Real>::State::FinishProjection(int64_t layer, const internal::LayerActivations<Real>& a,
                                                int64_t index) {
  const int64_t padded = attention.head_dim_padded;
  Real* const queries = a.qkv + index * attention.qkv_width();
  Real* const keys = queries + attention.query_width();
  if (shape.has_qkv_bias()) kernels->add(qkv_bias(layer), attention.qkv_width(), queries);
  if (shape.has_qk_norm()) {
    if (a.raw_queries != nullptr) {
      std::copy_n(queries, attention.query_width(), a.raw_queries + index * attention.query_width());
      std::copy_n(keys, key_width(), a.raw_keys + index * key_width());
    }
    kernels->rms_norm(queries, padded, attention.heads, shape.head_dim, query_norm(layer), epsilon, queries);
    kernels->rms_norm(keys, padded, attention.key_value_heads, shape.head_dim, key_norm(layer), epsilon, keys);
  }
}

template <typename Real>
void Transformer<Real>::State::ForwardLayer(int64_t layer, const internal::RowBlock& block,
                                            const internal::LayerActivations<Real>& a, Real* hidden, Real* activated,
                                            Real* next, bool is_recompute, int64_t part, ParallelFor* inner) {
  const internal::LayerMatrices<Real>& m = layers[SlotOf(layer)];
  const int64_t count = block.row_end - block.row_begin;
  const int64_t width = hidden_width();
  const int64_t qkv_width = attention.qkv_width();
  const int64_t query_width = attention.query_width();
  const int64_t padded = attention.head_dim_padded;
  const int64_t half = shape.head_dim / 2;
  const int64_t tile_offset = layer * rows.layer_offset;
  constexpr int64_t kMinimumRows = 16;
  const internal::RowRange own = OwnRows(count);
  // Sums of the two products go to the stream at once, or to the own part of it once all ranks' are added.
  const auto multiply_to_stream = [&](const Real* x, int64_t x_width, const internal::PackedMatrix<Real>& weights,
                                      Real* stream) {
    Real* const sums = shard_exchange.splits_rows() ? hidden : stream;
    Multiply(inner, x, x_width, count, weights, sum_blocks, sums);
    shard_exchange.SumRows(sums, count, width);
    if (sums != stream) std::copy_n(sums + own.begin * width, own.count * width, stream);
  };

  Split(inner, own.count, kMinimumRows, [&](int64_t begin, int64_t end) {
    kernels->rms_norm(a.input + begin * width, width, end - begin, shape.hidden, attention_norm(layer), epsilon,
                      hidden + (own.begin + begin) * width);
  });
  shard_exchange.GatherRows(hidden, count, width);
  Multiply(inner, hidden, width, count, m.qkv, 1, a.qkv);
  const auto store = [&](int64_t i) {
    const int64_t row = block.row_begin + i;
    const int64_t position = rows.positions[row];
    Real* qkv = a.qkv + i * qkv_width;
    Real* keys = qkv + attention.heads * padded;
    FinishProjection(layer, a, i);
    kernels->rotate(qkv, attention.heads + attention.key_value_heads, shape.head_dim, padded,
                    cosines.data() + position * half, sines.data() + position * half, Real(1));
    kernels->store_key_value(attention, keys, keys + attention.key_value_heads * padded, position,
                             rows.tiles[rows.sequences[row]][position / internal::kPanel] + tile_offset);
  };
  const auto attend = [&](int64_t i, Real* scores) {
    const int64_t row = block.row_begin + i;
    kernels->attention(attention, a.qkv + i * qkv_width, rows.tiles[rows.sequences[row]], tile_offset,
                       rows.positions[row], attention_scale, a.attention + i * query_width, scores);
  };
  if (inner == nullptr) {
    // A row needs earlier rows only; its tiles are in the first-level cache when it has just been stored.
    for (int64_t i = 0; i < count; ++i) {
      store(i);
      attend(i, scratch[part].scores.data());
    }
  } else {
    Split(inner, count, kMinimumRows, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) store(i);
    });
    // Rows are dealt out one by one: a late position costs more than an early one.
    const int64_t parts = std::min<int64_t>(inner->threads(), count);
    Split(inner, parts, 1, [&](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; ++p) {
        for (int64_t i = p; i < count; i += parts) attend(i, scratch[p].scores.data());
      }
    });
  }
  multiply_to_stream(a.attention, query_width, m.output, a.middle);
  Split(inner, own.count, kMinimumRows, [&](int64_t begin, int64_t end) {
    kernels->add(a.input + begin * width, (end - begin) * width, a.middle + begin * width);
    kernels->rms_norm(a.middle + begin * width, width, end - begin, shape.hidden, mlp_norm(layer), epsilon,
                      hidden + (own.begin + begin) * width);
  });
  shard_exchange.GatherRows(hidden, count, width);
  Multiply(inner, hidden, width, count, m.gate_up, 1, a.gate_up);
  if (is_recompute) return;
  Split(inner, count, kMinimumRows, [&](int64_t begin, int64_t end) {
    kernels->swiglu(a.gate_up + begin * 2 * intermediate_width(), end - begin, intermediate_width(),
                    activated + begin * intermediate_width());
  });
  multiply_to_stream(activated, intermediate_width(), m.down, next);
  Split(inner, own.count, kMinimumRows, [&](int64_t begin, int64_t end) {
    kernels->add(a.middle + begin * width, (end - begin) * width, next + begin * width);
  });
}

}  // namespace leeway

#endif  // LEEWAY_MODEL_TRANSFORMER_TRANSFORMER_FORWARD_INL_H_
