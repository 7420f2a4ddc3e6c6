#ifndef LEEWAY_MODEL_TRANSFORMER_TRANSFORMER_STATE_H_
#define LEEWAY_MODEL_TRANSFORMER_TRANSFORMER_STATE_H_

// The inside of Transformer, shared by its forward (transformer.cc, transformer_score-inl.h) and backward passes
// (transformer_backward-inl.h).
//
// Parallelism: the rows of a call are cut into blocks of whole sequences. With enough blocks, threads take blocks and
// run each alone (`inner` = null inside); else all threads work together on one block, product by product (`inner` =
// the ParallelFor). Neither changes a bit: a row's results depend on its own sequence only.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "absl/types/span.h"
#include "base/executor.h"
#include "model/kernels/buffer.h"
#include "model/kernels/kernels.h"
#include "model/kernels/packed_matrix.h"
#include "model/transformer/key_value_cache.h"
#include "model/transformer/shard_exchange.h"
#include "model/transformer/transformer.h"
#include "model/weight_format.h"

namespace leeway {
namespace internal {

// The four products of a layer, once as [outputs][depth] of the forward pass and once transposed for gradients of
// inputs.
template <typename Real>
struct LayerMatrices {
  PackedMatrix<Real> qkv;      // query, key and value heads side by side
  PackedMatrix<Real> output;   // sum over heads in 4 blocks
  PackedMatrix<Real> gate_up;  // gate | up, each padded
  PackedMatrix<Real> down;     // sum over the intermediate size in 4 blocks
};

// Where one layer's activations of some rows lie.
template <typename Real>
struct LayerActivations {
  Real* input;      // residual stream [rows][hidden]
  Real* qkv;        // rotated [rows][qkv_width]
  Real* attention;  // [rows][query_width]
  Real* middle;     // residual stream after attention [rows][hidden]
  Real* gate_up;    // [rows][2 * intermediate]
  // With query and key norms, if a backward pass follows: what they were applied to. Else null.
  Real* raw_queries = nullptr;  // [rows][query_width]
  Real* raw_keys = nullptr;     // [rows][key_width]
};

// A run of whole sequences.
struct RowBlock {
  int64_t row_begin = 0;
  int64_t row_end = 0;
  int64_t sequence_begin = 0;
  int64_t sequence_end = 0;
};

// What the rows of a call are. Indexed by row unless said otherwise.
template <typename Real>
struct RowTable {
  std::vector<int32_t> tokens;
  std::vector<int64_t> positions;   // within the sequence
  std::vector<int64_t> sequences;   // of the row
  std::vector<int64_t> starts;      // first row of each sequence, and the end
  std::vector<Real* const*> tiles;  // by sequence: its tile pointers
  int64_t layer_offset = 0;         // Reals between the tiles of two layers
  std::vector<RowBlock> blocks;
  bool blocks_in_parallel = false;  // threads take blocks, or share each block
  int64_t longest = 0;              // positions of the longest sequence, cache included
  int64_t largest_block = 0;        // rows

  int64_t row_count() const { return static_cast<int64_t>(tokens.size()); }
  int64_t sequence_count() const { return static_cast<int64_t>(tiles.size()); }

  // Forgets the last call, keeps the memory.
  void Clear() {
    tokens.clear();
    positions.clear();
    sequences.clear();
    starts.assign(1, 0);
    tiles.clear();
    longest = 0;
  }

  void AppendSequence(absl::Span<const int32_t> ids, int64_t first_position, Real* const* sequence_tiles) {
    tokens.insert(tokens.end(), ids.begin(), ids.end());
    const int64_t count = static_cast<int64_t>(ids.size());
    for (int64_t i = 0; i < count; ++i) positions.push_back(first_position + i);
    sequences.insert(sequences.end(), ids.size(), sequence_count());
    starts.push_back(row_count());
    tiles.push_back(sequence_tiles);
    longest = std::max(longest, first_position + count);
  }
};

// Scratch of one thread for one block.
template <typename Real>
struct BlockScratch {
  Buffer<Real> hidden;
  Buffer<Real> qkv;
  Buffer<Real> attention;
  Buffer<Real> middle;
  Buffer<Real> gate_up;
  Buffer<Real> activated;
  Buffer<Real> scores;
};

// -infinity for every one of the logits of ids [first_id, first_id + count) that is not in `legal` (ascending).
template <typename Real>
void KeepLegal(absl::Span<const int32_t> legal, int64_t first_id, int64_t count, Real* logits) {
  constexpr Real kForbidden = -std::numeric_limits<Real>::infinity();
  int64_t next = 0;
  for (auto id = std::lower_bound(legal.begin(), legal.end(), first_id); id != legal.end() && *id < first_id + count;
       ++id) {
    std::fill(logits + next, logits + (*id - first_id), kForbidden);
    next = *id - first_id + 1;
  }
  std::fill(logits + next, logits + count, kForbidden);
}

// Weights below this stay in every core's cache, so threads need not share one reading of them.
constexpr int64_t kCachedWeightBytes = int64_t{4} << 20;

// Ids of the head that are transposed at once: a chain of the product with them.
constexpr int64_t kHeadBlock = 2048;

// Where a layer's parameters begin in the flat order.
struct LayerOffsets {
  int64_t attention_norm, query, key, value, output, mlp_norm, gate, up, down;
  // Only in families that have them.
  int64_t query_bias, key_bias, value_bias, query_norm, key_norm;
};

}  // namespace internal

template <typename Real>
struct Transformer<Real>::State {
  State(const ModelShape& model_shape, ParallelFor* parallel_for, const TransformerOptions& options);

  // Room for the weights of `count` layers at once, unless it is there.
  void MakeSlots(int64_t count);
  // The slot of `layers` that holds a layer's weights.
  int64_t SlotOf(int64_t layer) const { return stream == nullptr ? layer : 0; }
  // Packs one layer, given in the flat order.
  void PackLayer(int64_t layer, const WeightSpan<Real>& flat, ParallelFor* inner);
  void PackHead(const WeightSpan<Real>& flat);
  // to = `count` of the values from `offset` on, as the model computes with them.
  void CopyWeights(const WeightSpan<Real>& from, int64_t offset, int64_t count, Real* to) const {
    from.subspan(offset, count).CopyTo(weight_format, to);
  }
  // With a stream: takes unit `unit` from it, which is needed before unit `next`.
  absl::StatusOr<WeightSpan<Real>> Acquire(int64_t unit, int64_t next);
  absl::Status LoadLayer(int64_t layer, int64_t next_unit);

  // Widths of padded rows.
  int64_t hidden_width() const { return internal::RoundUpToPanel(shape.hidden); }
  int64_t intermediate_width() const { return internal::RoundUpToPanel(shape.intermediate); }
  int64_t vocabulary_width() const { return internal::RoundUpToPanel(shape.vocabulary); }
  int64_t key_width() const { return attention.key_value_heads * attention.head_dim_padded; }

  // Runs body(part) for part in [0, parts), on all threads.
  void RunParts(int64_t parts, const std::function<void(int64_t part)>& body);
  // Runs body(block, scratch index, inner) over all blocks of `rows`.
  void ForBlocks(const std::function<void(const internal::RowBlock& block, int64_t part, ParallelFor* inner)>& body);
  // Splits [0, count) over `inner`'s threads if there is an inner and the work is worth it.
  static void Split(ParallelFor* inner, int64_t count, int64_t minimum,
                    const std::function<void(int64_t, int64_t)>& body);
  // y = x times weights.
  void Multiply(ParallelFor* inner, const Real* x, int64_t x_stride, int64_t row_count,
                const internal::PackedMatrix<Real>& matrix, int64_t depth_blocks, Real* y) const;

  // cos/sin tables for positions below `positions`.
  void PreparePositions(int64_t positions);
  // Cuts rows into blocks, given starts.
  void CutBlocks();
  // Room in the scratch of every part for the blocks of `rows`.
  void ReserveScratch();

  // The forward pass of the call's rows; the residual stream after the last layer goes to final_stream rows.
  absl::Status Forward();
  void EmbedBlock(const internal::RowBlock& block, int64_t part);
  void ForwardLayerOfBlock(int64_t layer, const internal::RowBlock& block, int64_t part, ParallelFor* inner);
  // One layer: from a.input to `next` (which may be a.input). A recompute stops at what a backward pass reads, and
  // has no `next`.
  void ForwardLayer(int64_t layer, const internal::RowBlock& block, const internal::LayerActivations<Real>& a,
                    Real* hidden, Real* activated, Real* next, bool is_recompute, int64_t part, ParallelFor* inner);
  // What lies between the product with qkv and the rotation, for one row (`index` within `a`): biases, or norms of the
  // queries and keys.
  void FinishProjection(int64_t layer, const internal::LayerActivations<Real>& a, int64_t index);
  // Normed rows of the residual stream, times the head.
  void HeadLogits(const int64_t* row_indices, int64_t count, Real* head_logits);

  // Where the activations of `layer` lie from row `row` on, kept or computed again.
  internal::LayerActivations<Real> Kept(int64_t layer, int64_t row);

  // The most positions in a chunk of the head: whole [positions][vocabulary] need not exist for a large vocabulary.
  int64_t HeadChunk() const;
  // Of chunks of nearly equal size, for all scored positions.
  int64_t HeadChunks() const { return (static_cast<int64_t>(positions.size()) + HeadChunk() - 1) / HeadChunk(); }
  int64_t HeadChunkBegin(int64_t chunk) const {
    return static_cast<int64_t>(positions.size()) * chunk / std::max<int64_t>(HeadChunks(), 1);
  }
  // Logits of scored positions [begin, end) into `logits`, restricted to their legal sets.
  void ScoredLogits(int64_t begin, int64_t end);
  // The target's place among this rank's logits; -1 = another rank has it.
  int64_t LocalTarget(const ScoredPosition& position) const {
    const int64_t local = position.target - vocabulary_begin;
    return local >= 0 && local < shape.vocabulary ? local : -1;
  }
  // Scores of positions [begin, end), whose logits are there.
  void ScoreChunk(int64_t begin, int64_t end, PositionScores<Real>* scores);

  // Backward pass, see transformer_backward-inl.h.
  void TransposeLayer(int64_t slot);
  // Row of logits' gradients -> rows of gradients of the head's inputs.
  void MultiplyByHead(int64_t count, Real* d_head);
  absl::Status Backward(absl::Span<const Real> logprob_gradients, absl::Span<const Real> entropy_gradients,
                        Real* gradients, GradientSink<Real>* sink);
  // Functions below add to gradients of one unit: `gradients` is where the unit begins.
  void BackwardHead(absl::Span<const Real> logprob_gradients, absl::Span<const Real> entropy_gradients,
                    Real* head_gradients, Real* norm_gradient);
  // A block's norm as in the forward pass, from the stream's own rows [own rows of all blocks] to all of the block's
  // rows of backward_normed; inverse_norms by own row.
  void NormAgain(ParallelFor* inner, const internal::RowBlock& block, const Real* stream, const Real* weight);
  // Once d_normed holds this rank's part of the gradient behind a norm: d_in = d_out + the gradient before it, in the
  // block's own rows.
  void BackwardNorm(ParallelFor* inner, const internal::RowBlock& block, const Real* stream, const Real* weight,
                    const Real* d_out, Real* d_in);
  // Adds a layer norm's weight gradient, of the own rows; norm: 0 = attention's, 1 = mlp's.
  void AddNormGradient(const Real* stream, int64_t norm, Real* gradient);
  // The last part of it, for the norms of a layer: where every rank saw its own rows or heads only.
  void SumNormGradients(Real* gradients);
  void BackwardMlp(int64_t layer, Real* gradients);
  void BackwardAttention(int64_t layer, Real* gradients);
  // Through the norms of queries and keys, in d_qkv; what their weights' gradients need goes to d_queries, d_keys and
  // the inverses.
  void BackwardHeadNorms(int64_t layer, int64_t row_begin, int64_t row_end);
  void BackwardEmbedding(Real* gradients);

  // The rows of a block of `count` rows whose residual stream is here: all of them, or this rank's part with sequence
  // parallelism (there is one block then, which begins at row 0).
  internal::RowRange OwnRows(int64_t count) const { return shard_exchange.OwnRows(count); }

  ModelShape whole;
  internal::ShardExchange<Real> shard_exchange;
  ModelShape shape;              // of this rank's share
  int64_t vocabulary_begin = 0;  // first id of the share
  int64_t sum_blocks = 4;        // of the four blocks of each split sum, how many are here
  ParallelFor* parallel;
  const internal::Kernels<Real>* kernels;
  internal::AttentionShape attention;
  Real attention_scale;
  Real epsilon;

  Recompute recompute;

  // Weights.
  const WeightFormat weight_format;
  ParameterStream<Real>* stream = nullptr;
  std::vector<ParameterUnit> units;
  internal::LayerOffsets offsets;                         // from where a layer's unit begins
  std::vector<internal::LayerMatrices<Real>> layers;      // by slot
  std::vector<internal::LayerMatrices<Real>> transposed;  // of the layer in work; empty until the first Backward
  std::vector<internal::PackedMatrix<Real>> head;         // one
  // Room for kHeadBlock ids, and for the rest; empty until the first Backward.
  std::vector<internal::PackedMatrix<Real>> head_transposed;
  // [vocabulary][hidden], in one of them.
  internal::Buffer<Real> embedding;
  internal::Buffer<uint16_t> bf16_embedding;
  WeightSpan<Real> embedding_rows;  // the same, or the stream's
  internal::Buffer<Real> norms;     // [1 + 2 * slots][hidden_width]: final, attention and mlp of each slot

  Real* final_norm() { return norms.data(); }
  Real* attention_norm(int64_t layer) { return norms.data() + (1 + 2 * SlotOf(layer)) * hidden_width(); }
  Real* mlp_norm(int64_t layer) { return norms.data() + (2 + 2 * SlotOf(layer)) * hidden_width(); }

  // Empty in families without them. Heads lie as in a row of qkv.
  internal::Buffer<Real> qkv_biases;  // [slots][qkv_width]
  internal::Buffer<Real> head_norms;  // [2 * slots][head_dim_padded]: queries, keys of each slot
  Real* qkv_bias(int64_t layer) { return qkv_biases.data() + SlotOf(layer) * attention.qkv_width(); }
  Real* query_norm(int64_t layer) { return head_norms.data() + 2 * SlotOf(layer) * attention.head_dim_padded; }
  Real* key_norm(int64_t layer) { return query_norm(layer) + attention.head_dim_padded; }

  // [position][head_dim / 2]
  std::vector<Real> cosines;
  std::vector<Real> sines;

  // The call in progress, or the last Score with activations.
  internal::RowTable<Real> rows;
  bool keep = false;
  bool has_activations = false;
  int64_t kept_bytes = 0;
  std::vector<internal::BlockScratch<Real>> scratch;  // by part
  std::vector<Real*> tile_pointers;                   // of Score's own tiles, sequence by sequence
  internal::Buffer<Real> tiles;
  internal::Buffer<Real> final_stream;  // [rows][hidden_width]
  internal::Buffer<Real> kept_stream;   // [layers][own rows][hidden_width]
  internal::Buffer<Real> kept_qkv;
  internal::Buffer<Real> kept_attention;
  internal::Buffer<Real> kept_middle;
  internal::Buffer<Real> kept_gate_up;
  internal::Buffer<Real> kept_raw_queries;
  internal::Buffer<Real> kept_raw_keys;

  // Head.
  internal::Buffer<Real> normed;  // [chunk][hidden_width]
  internal::Buffer<Real> logits;  // [chunk][vocabulary_width]
  int64_t logits_begin = -1;      // of which chunk they are; -1: of none any more
  std::vector<int64_t> head_rows;
  std::vector<ScoredPosition> positions;
  std::vector<std::vector<int32_t>> legal_sets;
  std::vector<internal::SoftmaxSummary<Real>> summaries;
  std::vector<Real> head_maxima;  // by position of a chunk
  std::vector<Real> head_sums;    // [chunk] x {sum, weighted sum, target's logit}

  // Backward.
  internal::Buffer<Real> d_stream;  // [rows][hidden_width]
  internal::Buffer<Real> d_middle;  // [rows][hidden_width]
  internal::Buffer<Real> d_normed;  // [rows][hidden_width], and of head positions
  internal::Buffer<Real> d_head_part;
  internal::Buffer<Real> backward_normed;
  internal::Buffer<Real> inverse_norms;
  internal::Buffer<Real> backward_activated;
  internal::Buffer<Real> d_gate_up;
  internal::Buffer<Real> d_qkv;
  // With query and key norms: gradients of what they gave, [rows][heads][head_dim_padded], and 1 / norm of each head.
  internal::Buffer<Real> d_queries;
  internal::Buffer<Real> d_keys;
  internal::Buffer<Real> query_inverses;
  internal::Buffer<Real> key_inverses;
  // Gradients of those norms over this rank's heads, before the sum over ranks.
  std::vector<Real> head_norm_gradients;  // [queries, keys][head_dim]
  // With sequence parallelism: gradients of a layer's norms over this rank's rows, before the sum over ranks.
  std::vector<Real> norm_gradients;       // [attention, mlp][hidden]
  internal::Buffer<Real> unit_gradients;  // of the unit in work, for a sink
  internal::Buffer<Real> tied_gradients;  // of unit 0 from the head on, with a tied head
};

}  // namespace leeway

#endif  // LEEWAY_MODEL_TRANSFORMER_TRANSFORMER_STATE_H_
