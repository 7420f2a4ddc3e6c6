// Gradients, by hand, over the activations that Score kept. Included by transformer.cc only.
//
// Gradients of inputs are computed row by row (blocks of sequences, as forward). Gradients of weights sum over all rows
// in order, threads taking disjoint parts of the weights: no sum depends on how many threads there are.

#ifndef LEEWAY_MODEL_TRANSFORMER_TRANSFORMER_BACKWARD_INL_H_
#define LEEWAY_MODEL_TRANSFORMER_TRANSFORMER_BACKWARD_INL_H_

#include <algorithm>
#include <atomic>
#include <vector>

#include "base/status_macros.h"
#include "model/transformer/transformer_state.h"

namespace leeway {
namespace internal {

// sum[i][j] += over rows of a[.][i] * b[.][j], i < outputs, j < columns.
template <typename Real>
struct WeightGradient {
  const Real* a;
  int64_t a_stride;
  int64_t outputs;
  const Real* b;
  int64_t b_stride;
  int64_t columns;
  Real* sum;
  int64_t sum_stride;
};

// Outputs that a thread takes at once: a multiple of every table's tile height.
constexpr int64_t kOutputsAtOnce = 168;

template <typename Real>
void AddWeightGradients(const Kernels<Real>& kernels, ParallelFor* parallel, int64_t rows,
                        const std::vector<WeightGradient<Real>>& gradients) {
  struct Unit {
    const WeightGradient<Real>* gradient;
    int64_t begin;
    int64_t end;
  };
  std::vector<Unit> units;
  for (const WeightGradient<Real>& gradient : gradients) {
    for (int64_t begin = 0; begin < gradient.outputs; begin += kOutputsAtOnce) {
      units.push_back({&gradient, begin, std::min(gradient.outputs, begin + kOutputsAtOnce)});
    }
  }
  const int64_t count = static_cast<int64_t>(units.size());
  std::atomic<int64_t> next{0};
  parallel->Run(std::min<int64_t>(parallel->threads(), count), 1, [&](int64_t first, int64_t last) {
    for (int64_t i = next++; i < count; i = next++) {
      const WeightGradient<Real>& g = *units[i].gradient;
      kernels.outer_product(g.a, g.a_stride, g.b, g.b_stride, rows, units[i].begin, units[i].end, g.columns, g.sum,
                            g.sum_stride);
    }
  });
}

}  // namespace internal

template <typename Real>
void Transformer<Real>::State::TransposeLayer(int64_t slot) {
  if (transposed.empty()) {
    transposed.push_back({internal::PackedMatrix<Real>(shape.hidden, attention.qkv_width(), weight_format),
                          internal::PackedMatrix<Real>(attention.query_width(), hidden_width(), weight_format),
                          internal::PackedMatrix<Real>(shape.hidden, 2 * intermediate_width(), weight_format),
                          internal::PackedMatrix<Real>(shape.intermediate, hidden_width(), weight_format)});
  }
  const internal::LayerMatrices<Real>& from = layers[slot];
  internal::LayerMatrices<Real>& to = transposed[0];
  to.qkv.SetTransposed(from.qkv, parallel);
  to.output.SetTransposed(from.output, parallel);
  to.gate_up.SetTransposed(from.gate_up, parallel);
  to.down.SetTransposed(from.down, parallel);
}

template <typename Real>
void Transformer<Real>::State::MultiplyByHead(int64_t count, Real* d_head) {
  const int64_t width = hidden_width();
  const int64_t vocabulary = vocabulary_width();
  if (head_transposed.empty()) {
    head_transposed.emplace_back(shape.hidden, std::min(vocabulary, internal::kHeadBlock), weight_format);
    const int64_t rest = vocabulary % internal::kHeadBlock;
    if (vocabulary > internal::kHeadBlock && rest > 0) head_transposed.emplace_back(shape.hidden, rest, weight_format);
  }
  Real* const part = d_head_part.Reserve(count * width);
  for (int64_t id = 0; id < vocabulary; id += internal::kHeadBlock) {
    const bool is_rest = id > 0 && vocabulary - id < internal::kHeadBlock;
    internal::PackedMatrix<Real>& block = head_transposed[is_rest ? 1 : 0];
    block.SetTransposed(head[0], parallel, id);
    Multiply(parallel, logits.data() + id, vocabulary, count, block, 1, id == 0 ? d_head : part);
    if (id == 0) continue;
    Split(parallel, count, 16, [&](int64_t from, int64_t to) {
      kernels->add(part + from * width, (to - from) * width, d_head + from * width);
    });
  }
}

template <typename Real>
void Transformer<Real>::State::BackwardHead(absl::Span<const Real> logprob_gradients,
                                            absl::Span<const Real> entropy_gradients, Real* head_gradients,
                                            Real* norm_gradient) {
  const int64_t width = hidden_width();
  const int64_t count = static_cast<int64_t>(positions.size());
  const int64_t row_count = rows.row_count();
  // Scored positions row by row, so that a row with several of them sums in a fixed order.
  std::vector<int64_t> first(static_cast<size_t>(row_count) + 1, 0);
  for (const ScoredPosition& position : positions) ++first[position.row + 1];
  for (int64_t row = 0; row < row_count; ++row) first[row + 1] += first[row];
  std::vector<int64_t> by_row(static_cast<size_t>(count));
  std::vector<int64_t> next(first.begin(), first.end() - 1);
  for (int64_t i = 0; i < count; ++i) by_row[next[positions[i].row]++] = i;

  Real* d_head = d_normed.Reserve(count * width);
  Real* inverses = inverse_norms.Reserve(std::max(count, row_count));
  Real* gathered = backward_normed.Reserve(count * width);
  // The last chunk first: its logits are still there from Score.
  for (int64_t chunk = HeadChunks() - 1; chunk >= 0; --chunk) {
    const int64_t begin = HeadChunkBegin(chunk);
    const int64_t end = HeadChunkBegin(chunk + 1);
    if (logits_begin != begin) ScoredLogits(begin, end);
    logits_begin = -1;
    Split(parallel, end - begin, 16, [&](int64_t from, int64_t to) {
      for (int64_t i = begin + from; i < begin + to; ++i) {
        const ScoredPosition& position = positions[i];
        Real* row = logits.data() + (i - begin) * vocabulary_width();
        kernels->softmax_gradient(row, shape.vocabulary, Real(1) / static_cast<Real>(position.temperature),
                                  summaries[i], LocalTarget(position), logprob_gradients[i], entropy_gradients[i]);
        std::fill(row + shape.vocabulary, row + vocabulary_width(), Real(0));
      }
    });
    MultiplyByHead(end - begin, d_head + begin * width);
    internal::AddWeightGradients<Real>(*kernels, parallel, end - begin,
                                       {{logits.data(), vocabulary_width(), shape.vocabulary, normed.data(), width,
                                         shape.hidden, head_gradients, shape.hidden}});
  }
  // Every rank has the part of its vocabulary; from here on all have all rows.
  shard_exchange.SumAll(d_head, count * width);
  // Through the final norm: its weight sums over positions in order, the stream's gradient goes to the rows.
  Split(parallel, count, 16, [&](int64_t from, int64_t to) {
    for (int64_t i = from; i < to; ++i)
      std::copy_n(final_stream.data() + positions[i].row * width, width, gathered + i * width);
    kernels->rms_inverse(gathered + from * width, width, to - from, shape.hidden, epsilon, inverses + from);
  });
  kernels->rms_weight_gradient(gathered, d_head, inverses, width, count, 0, shape.hidden, norm_gradient);
  Split(parallel, row_count, 16, [&](int64_t from, int64_t to) {
    Real* d_rows = d_stream.data();
    std::fill(d_rows + from * width, d_rows + to * width, Real(0));
    for (int64_t k = first[from]; k < first[to]; ++k) {
      const int64_t i = by_row[k];
      kernels->rms_norm_backward(gathered + i * width, d_head + i * width, width, 1, shape.hidden, final_norm(),
                                 epsilon, d_rows + positions[i].row * width);
    }
  });
}

template <typename Real>
void Transformer<Real>::State::NormAgain(ParallelFor* inner, const internal::RowBlock& block, const Real* stream,
                                         const Real* weight) {
  const int64_t width = hidden_width();
  const int64_t count = block.row_end - block.row_begin;
  const internal::RowRange own = OwnRows(count);
  Real* const normed_rows = backward_normed.data() + block.row_begin * width;
  Split(inner, own.count, 16, [&](int64_t begin, int64_t end) {
    const Real* const x = stream + (block.row_begin + begin) * width;
    kernels->rms_norm(x, width, end - begin, shape.hidden, weight, epsilon, normed_rows + (own.begin + begin) * width);
    kernels->rms_inverse(x, width, end - begin, shape.hidden, epsilon, inverse_norms.data() + block.row_begin + begin);
  });
  shard_exchange.GatherRows(normed_rows, count, width);
}

template <typename Real>
void Transformer<Real>::State::BackwardNorm(ParallelFor* inner, const internal::RowBlock& block, const Real* stream,
                                            const Real* weight, const Real* d_out, Real* d_in) {
  const int64_t width = hidden_width();
  const int64_t count = block.row_end - block.row_begin;
  const internal::RowRange own = OwnRows(count);
  shard_exchange.SumRows(d_normed.data() + block.row_begin * width, count, width);
  Split(inner, own.count, 16, [&](int64_t begin, int64_t end) {
    const int64_t row = block.row_begin + own.begin + begin;
    std::copy_n(d_out + row * width, (end - begin) * width, d_in + row * width);
    kernels->rms_norm_backward(stream + (block.row_begin + begin) * width, d_normed.data() + row * width, width,
                               end - begin, shape.hidden, weight, epsilon, d_in + row * width);
  });
}

template <typename Real>
void Transformer<Real>::State::AddNormGradient(const Real* stream, int64_t norm, Real* gradient) {
  const internal::RowRange own = OwnRows(rows.row_count());
  Real* const sum = shard_exchange.splits_rows() ? norm_gradients.data() + norm * shape.hidden : gradient;
  Split(parallel, hidden_width() / internal::kPanel, 4, [&](int64_t begin, int64_t end) {
    kernels->rms_weight_gradient(stream, d_normed.data() + own.begin * hidden_width(), inverse_norms.data(),
                                 hidden_width(), own.count, begin * internal::kPanel,
                                 std::min(end * internal::kPanel, shape.hidden), sum);
  });
}

template <typename Real>
void Transformer<Real>::State::SumNormGradients(Real* gradients) {
  if (shape.has_qk_norm()) {
    shard_exchange.SumAll(head_norm_gradients.data(), 2 * shape.head_dim);
    for (int64_t i = 0; i < shape.head_dim; ++i) {
      gradients[offsets.query_norm + i] += head_norm_gradients[i];
      gradients[offsets.key_norm + i] += head_norm_gradients[shape.head_dim + i];
    }
  }
  if (!shard_exchange.splits_rows()) return;
  shard_exchange.SumAll(norm_gradients.data(), 2 * shape.hidden);
  for (int64_t i = 0; i < shape.hidden; ++i) {
    gradients[offsets.attention_norm + i] += norm_gradients[i];
    gradients[offsets.mlp_norm + i] += norm_gradients[shape.hidden + i];
  }
}

template <typename Real>
void Transformer<Real>::State::BackwardMlp(int64_t layer, Real* gradients) {
  const internal::LayerMatrices<Real>& m = transposed[0];
  const int64_t width = hidden_width();
  const int64_t inner_width = intermediate_width();
  const internal::LayerActivations<Real> kept = Kept(layer, 0);
  const int64_t row_count = rows.row_count();
  shard_exchange.GatherRows(d_stream.data(), row_count, width);
  ForBlocks([&](const internal::RowBlock& block, int64_t part, ParallelFor* inner) {
    const int64_t first = block.row_begin;
    const int64_t count = block.row_end - first;
    Real* d_activated = scratch[part].activated.data();
    Multiply(inner, d_stream.data() + first * width, width, count, m.down, 1, d_activated);
    NormAgain(inner, block, kept.middle, mlp_norm(layer));
    if (recompute == Recompute::kSelective) {
      Multiply(inner, backward_normed.data() + first * width, width, count, layers[SlotOf(layer)].gate_up, 1,
               kept.gate_up + first * 2 * inner_width);
    }
    Split(inner, count, 16, [&](int64_t begin, int64_t end) {
      const int64_t row = first + begin;
      kernels->swiglu(kept.gate_up + row * 2 * inner_width, end - begin, inner_width,
                      backward_activated.data() + row * inner_width);
      kernels->swiglu_backward(kept.gate_up + row * 2 * inner_width, d_activated + begin * inner_width, end - begin,
                               inner_width, d_gate_up.data() + row * 2 * inner_width);
    });
    Multiply(inner, d_gate_up.data() + first * 2 * inner_width, 2 * inner_width, count, m.gate_up, 1,
             d_normed.data() + first * width);
    BackwardNorm(inner, block, kept.middle, mlp_norm(layer), d_stream.data(), d_middle.data());
  });
  const internal::LayerOffsets& o = offsets;
  internal::AddWeightGradients<Real>(*kernels, parallel, row_count,
                                     {{d_gate_up.data(), 2 * inner_width, shape.intermediate, backward_normed.data(),
                                       width, shape.hidden, gradients + o.gate, shape.hidden},
                                      {d_gate_up.data() + inner_width, 2 * inner_width, shape.intermediate,
                                       backward_normed.data(), width, shape.hidden, gradients + o.up, shape.hidden},
                                      {d_stream.data(), width, shape.hidden, backward_activated.data(), inner_width,
                                       shape.intermediate, gradients + o.down, shape.intermediate}});
  AddNormGradient(kept.middle, 1, gradients + o.mlp_norm);
}

template <typename Real>
void Transformer<Real>::State::BackwardHeadNorms(int64_t layer, int64_t row_begin, int64_t row_end) {
  const internal::LayerActivations<Real> kept = Kept(layer, 0);
  const int64_t padded = attention.head_dim_padded;
  const auto backward = [&](const Real* raw, int64_t heads, const Real* weight, Real* d_normed_heads, Real* inverses,
                            Real* d_heads) {
    std::copy_n(d_heads, heads * padded, d_normed_heads);
    std::fill_n(d_heads, heads * padded, Real(0));
    kernels->rms_norm_backward(raw, d_normed_heads, padded, heads, shape.head_dim, weight, epsilon, d_heads);
    kernels->rms_inverse(raw, padded, heads, shape.head_dim, epsilon, inverses);
  };
  for (int64_t row = row_begin; row < row_end; ++row) {
    const int64_t queries = row * attention.query_width();
    const int64_t keys = row * key_width();
    Real* const d_row = d_qkv.data() + row * attention.qkv_width();
    backward(kept.raw_queries + queries, attention.heads, query_norm(layer), d_queries.data() + queries,
             query_inverses.data() + row * attention.heads, d_row);
    backward(kept.raw_keys + keys, attention.key_value_heads, key_norm(layer), d_keys.data() + keys,
             key_inverses.data() + row * attention.key_value_heads, d_row + attention.query_width());
  }
}

template <typename Real>
void Transformer<Real>::State::BackwardAttention(int64_t layer, Real* gradients) {
  const internal::LayerMatrices<Real>& m = transposed[0];
  const int64_t width = hidden_width();
  const int64_t qkv_width = attention.qkv_width();
  const int64_t query_width = attention.query_width();
  const int64_t padded = attention.head_dim_padded;
  const int64_t half = shape.head_dim / 2;
  const int64_t row_count = rows.row_count();
  const internal::LayerActivations<Real> kept = Kept(layer, 0);
  shard_exchange.GatherRows(d_middle.data(), row_count, width);
  ForBlocks([&](const internal::RowBlock& block, int64_t part, ParallelFor* inner) {
    const int64_t first = block.row_begin;
    const int64_t count = block.row_end - first;
    Real* d_attention = scratch[part].attention.data();
    Multiply(inner, d_middle.data() + first * width, width, count, m.output, 1, d_attention);
    // Whole sequences, one key/value head each.
    const int64_t pairs = (block.sequence_end - block.sequence_begin) * attention.key_value_heads;
    const int64_t parts = inner == nullptr ? 1 : std::min<int64_t>(inner->threads(), pairs);
    Split(inner, parts, 1, [&](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; ++p) {
        Real* scores = scratch[inner == nullptr ? part : p].scores.data();
        for (int64_t pair = p; pair < pairs; pair += parts) {
          const int64_t sequence = block.sequence_begin + pair / attention.key_value_heads;
          const int64_t row = rows.starts[sequence];
          const int64_t length = rows.starts[sequence + 1] - row;
          if (length == 0) continue;
          kernels->attention_backward(attention, pair % attention.key_value_heads, length, kept.qkv + row * qkv_width,
                                      rows.tiles[sequence], layer * rows.layer_offset,
                                      kept.attention + row * query_width, d_attention + (row - first) * query_width,
                                      attention_scale, d_qkv.data() + row * qkv_width, scores);
        }
      }
    });
    Split(inner, count, 16, [&](int64_t begin, int64_t end) {
      for (int64_t row = first + begin; row < first + end; ++row) {
        const int64_t position = rows.positions[row];
        kernels->rotate(d_qkv.data() + row * qkv_width, attention.heads + attention.key_value_heads, shape.head_dim,
                        padded, cosines.data() + position * half, sines.data() + position * half, Real(-1));
      }
      if (shape.has_qk_norm()) BackwardHeadNorms(layer, first + begin, first + end);
    });
    NormAgain(inner, block, kept.input, attention_norm(layer));
    Multiply(inner, d_qkv.data() + first * qkv_width, qkv_width, count, m.qkv, 1, d_normed.data() + first * width);
    BackwardNorm(inner, block, kept.input, attention_norm(layer), d_middle.data(), d_stream.data());
  });
  const internal::LayerOffsets& o = offsets;
  std::vector<internal::WeightGradient<Real>> weight_gradients;
  // Padded heads are not contiguous in the flat order: one by one then, else all at once.
  const int64_t heads = attention.heads;
  const int64_t pairs = attention.key_value_heads;
  const int64_t head_dim = shape.head_dim;
  // A bias is the weight of an input that is always 1.
  alignas(64) static constexpr Real kOnes[internal::kPanel] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
  const auto add_rows = [&](int64_t first_head, int64_t count, int64_t offset, int64_t bias_offset) {
    const int64_t step = padded == head_dim ? count : 1;
    for (int64_t head = 0; head < count; head += step) {
      const Real* d_heads = d_qkv.data() + (first_head + head) * padded;
      weight_gradients.push_back({d_heads, qkv_width, step * head_dim, backward_normed.data(), width, shape.hidden,
                                  gradients + offset + head * head_dim * shape.hidden, shape.hidden});
      if (!shape.has_qkv_bias()) continue;
      weight_gradients.push_back(
          {d_heads, qkv_width, step * head_dim, kOnes, 0, 1, gradients + bias_offset + head * head_dim, 1});
    }
  };
  add_rows(0, heads, o.query, o.query_bias);
  add_rows(heads, pairs, o.key, o.key_bias);
  add_rows(heads + pairs, pairs, o.value, o.value_bias);
  const int64_t step = padded == head_dim ? heads : 1;
  for (int64_t head = 0; head < heads; head += step) {
    weight_gradients.push_back({d_middle.data(), width, shape.hidden, kept.attention + head * padded, query_width,
                                step * head_dim, gradients + o.output + head * head_dim, heads * head_dim});
  }
  internal::AddWeightGradients<Real>(*kernels, parallel, row_count, weight_gradients);
  if (shape.has_qk_norm()) {
    // One weight for all heads: rows of heads, one behind the other.
    head_norm_gradients.assign(2 * head_dim, Real(0));
    kernels->rms_weight_gradient(kept.raw_queries, d_queries.data(), query_inverses.data(), padded, row_count * heads,
                                 0, head_dim, head_norm_gradients.data());
    kernels->rms_weight_gradient(kept.raw_keys, d_keys.data(), key_inverses.data(), padded, row_count * pairs, 0,
                                 head_dim, head_norm_gradients.data() + head_dim);
  }
  AddNormGradient(kept.input, 0, gradients + o.attention_norm);
}

template <typename Real>
void Transformer<Real>::State::BackwardEmbedding(Real* gradients) {
  const int64_t width = hidden_width();
  const int64_t hidden = shape.hidden;
  shard_exchange.GatherRows(d_stream.data(), rows.row_count(), width);
  Split(parallel, hidden, 16, [&](int64_t begin, int64_t end) {
    for (int64_t row = 0; row < rows.row_count(); ++row) {
      const int64_t id = rows.tokens[row] - vocabulary_begin;
      if (id < 0 || id >= shape.vocabulary) continue;
      const Real* from = d_stream.data() + row * width;
      Real* to = gradients + id * hidden;
      for (int64_t i = begin; i < end; ++i) to[i] += from[i];
    }
  });
}

template <typename Real>
absl::Status Transformer<Real>::State::Backward(absl::Span<const Real> logprob_gradients,
                                                absl::Span<const Real> entropy_gradients, Real* gradients,
                                                GradientSink<Real>* sink) {
  LEEWAY_CHECK(has_activations) << "Backward without a Score that kept activations";
  LEEWAY_CHECK(logprob_gradients.size() == positions.size()) << logprob_gradients.size() << " of " << positions.size();
  LEEWAY_CHECK(entropy_gradients.size() == positions.size()) << entropy_gradients.size() << " of " << positions.size();
  const int64_t row_count = rows.row_count();
  d_stream.Reserve(row_count * hidden_width());
  d_middle.Reserve(row_count * hidden_width());
  backward_activated.Reserve(row_count * intermediate_width());
  d_gate_up.Reserve(row_count * 2 * intermediate_width());
  d_qkv.Reserve(row_count * attention.qkv_width());
  if (shape.has_qk_norm()) {
    d_queries.Reserve(row_count * attention.query_width());
    d_keys.Reserve(row_count * key_width());
    query_inverses.Reserve(row_count * attention.heads);
    key_inverses.Reserve(row_count * attention.key_value_heads);
  }
  for (internal::BlockScratch<Real>& part : scratch) {
    part.attention.Reserve(rows.largest_block * attention.query_width());
    part.scores.Reserve(internal::AttentionBackwardScratch(attention, rows.longest));
  }

  // Where the gradient of a unit is added up, and what happens when it is whole.
  const auto zeroed = [this](internal::Buffer<Real>& buffer, int64_t unit) {
    Real* const values = buffer.Reserve(units[unit].element_count());
    std::fill_n(values, units[unit].element_count(), Real(0));
    return values;
  };
  const auto begin = [&](int64_t unit) {
    return sink == nullptr ? gradients + units[unit].begin : zeroed(unit_gradients, unit);
  };
  const auto end = [&](int64_t unit, const Real* values) -> absl::Status {
    LEEWAY_RETURN_IF_ERROR(shard_exchange.status());
    if (sink == nullptr) return absl::OkStatus();
    return sink->Add(unit, absl::MakeConstSpan(values, static_cast<size_t>(units[unit].element_count())));
  };

  const int64_t last = static_cast<int64_t>(units.size()) - 1;
  Real* tied = nullptr;
  if (shape.tied_head) tied = sink == nullptr ? gradients : zeroed(tied_gradients, 0);
  Real* unit = begin(last);
  BackwardHead(logprob_gradients, entropy_gradients, shape.tied_head ? tied : unit + shape.hidden, unit);
  LEEWAY_RETURN_IF_ERROR(end(last, unit));
  d_normed.Reserve(row_count * hidden_width());
  backward_normed.Reserve(row_count * hidden_width());
  for (int64_t layer = shape.layers - 1; layer >= 0; --layer) {
    if (stream != nullptr) LEEWAY_RETURN_IF_ERROR(LoadLayer(layer, layer > 0 ? layer : -1));
    TransposeLayer(SlotOf(layer));
    if (recompute == Recompute::kFull) {
      ForBlocks([this, layer](const internal::RowBlock& block, int64_t part, ParallelFor* inner) {
        ForwardLayer(layer, block, Kept(layer, block.row_begin), scratch[part].hidden.data(),
                     scratch[part].activated.data(), nullptr, /*is_recompute=*/true, part, inner);
      });
    }
    if (shard_exchange.splits_rows()) norm_gradients.assign(2 * shape.hidden, Real(0));
    unit = begin(1 + layer);
    BackwardMlp(layer, unit);
    BackwardAttention(layer, unit);
    SumNormGradients(unit);
    LEEWAY_RETURN_IF_ERROR(end(1 + layer, unit));
  }
  unit = shape.tied_head ? tied : begin(0);
  BackwardEmbedding(unit);
  return end(0, unit);
}

template <typename Real>
absl::Status Transformer<Real>::Backward(absl::Span<const Real> logprob_gradients,
                                         absl::Span<const Real> entropy_gradients, absl::Span<Real> gradients) {
  LEEWAY_CHECK(static_cast<int64_t>(gradients.size()) == state_->shape.ParameterCount()) << gradients.size();
  return state_->Backward(logprob_gradients, entropy_gradients, gradients.data(), nullptr);
}

template <typename Real>
absl::Status Transformer<Real>::Backward(absl::Span<const Real> logprob_gradients,
                                         absl::Span<const Real> entropy_gradients, GradientSink<Real>* sink) {
  return state_->Backward(logprob_gradients, entropy_gradients, nullptr, sink);
}

}  // namespace leeway

#endif  // LEEWAY_MODEL_TRANSFORMER_TRANSFORMER_BACKWARD_INL_H_
